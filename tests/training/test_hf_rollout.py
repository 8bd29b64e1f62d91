"""``HFRollout`` as replaced: each prompt sampled once, tokens at their own positions, rows as veRL expects."""

import pytest
import torch
from actors import make_model
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto

from cobalt.training.rollout_engines import HFRollout

PROMPTS, RESPONSES, EOS, PAD = 7, 5, 49, 0


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


def rollout_config(**changes):
    config = {"micro_batch_size": 4, "response_length": RESPONSES, "do_sample": True, "temperature": 1.0, "top_p": 1.0}
    return OmegaConf.create({**config, "top_k": 0, "val_kwargs": {}, **changes})


def make_rollout(**changes):
    return HFRollout(make_model(), rollout_config(**changes))


def argmax_by_full_forward(model, prompt, steps):
    ids = prompt
    for _ in range(steps):
        ids = torch.cat([ids, model(ids[None]).logits[0, -1:].argmax(-1)])
        if ids[-1] == EOS:
            break
    return ids[len(prompt) :].tolist()


def test_greedy_tokens_equal_those_of_plain_forward_passes():
    model, rollout, prompts = make_model().eval(), make_rollout(), make_prompts(do_sample=False)
    expected = [
        argmax_by_full_forward(model, ids[mask.bool()], RESPONSES)
        for ids, mask in zip(prompts.batch["input_ids"], prompts.batch["attention_mask"], strict=True)
    ]
    output = rollout.generate_sequences(prompts)
    lengths = output.batch["attention_mask"][:, PROMPTS:].sum(-1)
    got = [ids[:length].tolist() for ids, length in zip(output.batch["responses"], lengths, strict=True)]
    assert got == expected


def test_output_has_one_row_per_prompt_row_in_the_same_order_and_width():
    prompts = make_prompts()
    ids, mask = prompts.batch["input_ids"].clone(), prompts.batch["attention_mask"].clone()
    output = make_rollout(micro_batch_size=3).generate_sequences(prompts)
    assert output.batch["prompts"].equal(ids)
    assert output.batch["attention_mask"][:, :PROMPTS].equal(mask)
    assert output.batch["input_ids"].shape == (8, PROMPTS + RESPONSES)
    assert output.batch["input_ids"][:, PROMPTS:].equal(output.batch["responses"])


def test_positions_count_the_valid_tokens():
    output = make_rollout().generate_sequences(make_prompts())
    mask = output.batch["attention_mask"].bool()
    expected = (mask.long().cumsum(-1) - 1).clamp(min=0)
    assert output.batch["position_ids"][mask].equal(expected[mask])


def test_samples_of_one_prompt_differ_and_repeat_with_the_seed():
    first = make_rollout().generate_sequences(make_prompts()).batch["responses"]
    again = make_rollout().generate_sequences(make_prompts()).batch["responses"]
    assert first.equal(again)
    assert not first[0].equal(first[1])
    other = HFRollout(make_model(), rollout_config(), seed=1).generate_sequences(make_prompts()).batch["responses"]
    assert not first.equal(other)


def test_samples_come_from_the_weights_as_they_are_now():
    model, prompts = make_model(), make_prompts(do_sample=False)
    rollout = HFRollout(model, rollout_config())
    before = rollout.generate_sequences(prompts).batch["responses"]
    with torch.no_grad():
        model.model.norm.weight.neg_()
    assert not rollout.generate_sequences(prompts).batch["responses"].equal(before)


def test_validation_samples_with_its_own_settings():
    greedy = make_rollout().generate_sequences(make_prompts(do_sample=False)).batch["responses"]
    config = rollout_config(val_kwargs={"temperature": 1e-4, "top_p": 1.0, "top_k": 0})
    rollout = HFRollout(make_model(), config)
    assert rollout.generate_sequences(make_prompts(do_sample=True, validate=True)).batch["responses"].equal(greedy)
    assert not rollout.generate_sequences(make_prompts(do_sample=True)).batch["responses"].equal(greedy)


def test_top_k_is_refused():
    with pytest.raises(ValueError, match="top_k"):
        HFRollout(make_model(), rollout_config(top_k=5))
