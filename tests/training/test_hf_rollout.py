"""``HFRollout`` as patched: each prompt sampled once, tokens at their own positions, rows as veRL expects."""

import sys

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from test_packing import make_model
from verl import DataProto

from cobalt.training import hf_rollout

PROMPTS, RESPONSES, EOS, PAD = 7, 5, 49, 0


@pytest.fixture
def rollout_class(monkeypatch):
    """A freshly imported, patched ``HFRollout``; the module that others see stays as it is."""
    name = "verl.workers.rollout.hf_rollout"
    monkeypatch.delitem(sys.modules, name, raising=False)
    import importlib

    module = importlib.import_module(name)
    monkeypatch.setattr(torch.cpu, "empty_cache", lambda: None, raising=False)
    monkeypatch.setattr(torch, "autocast", lambda *_args, **_kwargs: torch.no_grad())
    hf_rollout.patch(module)
    return module.HFRollout


def make_prompts(repeats=2, **meta):
    generator = torch.Generator().manual_seed(1)
    lengths = [6, 2, 7, 4]
    ids = torch.randint(1, 49, (len(lengths), PROMPTS), generator=generator)
    mask = torch.stack([(torch.arange(PROMPTS) >= PROMPTS - length).long() for length in lengths])
    batch = {"input_ids": ids * mask, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    batch = {name: value.repeat_interleave(repeats, dim=0) for name, value in batch.items()}
    return DataProto(
        batch=TensorDict(batch, batch_size=len(ids) * repeats),
        meta_info={"eos_token_id": EOS, "pad_token_id": PAD, **meta},
    )


def make_rollout(rollout_class, micro_batch_size=4):
    config = {"n": 2, "micro_batch_size": micro_batch_size, "response_length": RESPONSES, "do_sample": True}
    return rollout_class(make_model(), OmegaConf.create({**config, "temperature": 1.0, "top_p": 1.0, "top_k": 0}))


def argmax_by_full_forward(model, prompt, steps):
    ids = prompt
    for _ in range(steps):
        ids = torch.cat([ids, model(ids[None]).logits[0, -1:].argmax(-1)])
        if ids[-1] == EOS:
            break
    return ids[len(prompt) :].tolist()


def test_greedy_tokens_equal_those_of_plain_forward_passes(rollout_class):
    rollout, prompts = make_rollout(rollout_class), make_prompts(do_sample=False)
    expected = [
        argmax_by_full_forward(rollout.module.eval(), ids[mask.bool()], RESPONSES)
        for ids, mask in zip(prompts.batch["input_ids"], prompts.batch["attention_mask"], strict=True)
    ]
    output = rollout.generate_sequences(prompts)
    lengths = output.batch["attention_mask"][:, PROMPTS:].sum(-1)
    got = [ids[:length].tolist() for ids, length in zip(output.batch["responses"], lengths, strict=True)]
    assert got == expected


def test_output_has_one_row_per_prompt_row_in_the_same_order_and_width(rollout_class):
    prompts = make_prompts()
    ids, mask = prompts.batch["input_ids"].clone(), prompts.batch["attention_mask"].clone()
    output = make_rollout(rollout_class, micro_batch_size=3).generate_sequences(prompts)
    assert output.batch["prompts"].equal(ids)
    assert output.batch["attention_mask"][:, :PROMPTS].equal(mask)
    assert output.batch["input_ids"].shape == (8, PROMPTS + RESPONSES)
    assert output.batch["input_ids"][:, PROMPTS:].equal(output.batch["responses"])


def test_positions_count_the_valid_tokens(rollout_class):
    output = make_rollout(rollout_class).generate_sequences(make_prompts())
    mask = output.batch["attention_mask"].bool()
    expected = (mask.long().cumsum(-1) - 1).clamp(min=0)
    assert output.batch["position_ids"][mask].equal(expected[mask])


def test_samples_of_one_prompt_differ_and_repeat_with_the_seed(rollout_class):
    first = make_rollout(rollout_class).generate_sequences(make_prompts()).batch["responses"]
    again = make_rollout(rollout_class).generate_sequences(make_prompts()).batch["responses"]
    assert first.equal(again)
    assert not first[0].equal(first[1])
