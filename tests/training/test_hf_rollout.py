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
        meta_info={"eos_token_id": EOS, "pad_token_id": PAD, "global_steps": 1, **meta},
    )


def rollout_config(**changes):
    config = {"micro_batch_size": 4, "response_length": RESPONSES, "do_sample": True, "temperature": 1.0, "top_p": 1.0}
    return OmegaConf.create({**config, "top_k": 0, "val_kwargs": {}, **changes})


def make_rollout(**changes):
    return HFRollout(make_model(), rollout_config(**changes))


def test_greedy_tokens_equal_those_of_plain_forward_passes():
    model, prompts = make_model().eval(), make_prompts(do_sample=False)
    output = make_rollout().generate_sequences(prompts).batch
    for ids, mask in zip(output["input_ids"], output["attention_mask"].bool(), strict=True):
        tokens = ids[:PROMPTS][mask[:PROMPTS]]
        for _ in range(RESPONSES):
            tokens = torch.cat([tokens, model(tokens[None]).logits[0, -1:].argmax(-1)])
            if tokens[-1] == EOS:
                break
        assert tokens.equal(ids[mask])


def test_output_has_one_row_per_prompt_row_in_the_same_order_and_positions_count_the_valid_tokens():
    prompts = make_prompts()
    ids, prompt_mask = prompts.batch["input_ids"].clone(), prompts.batch["attention_mask"].clone()
    output = make_rollout(micro_batch_size=3).generate_sequences(prompts).batch
    mask = output["attention_mask"].bool()
    assert output["prompts"].equal(ids)
    assert mask[:, :PROMPTS].equal(prompt_mask.bool())
    assert output["input_ids"].shape == (8, PROMPTS + RESPONSES)
    assert output["input_ids"][:, PROMPTS:].equal(output["responses"])
    assert output["position_ids"][mask].equal((mask.long().cumsum(-1) - 1)[mask])


def test_samples_of_one_prompt_differ_and_repeat_with_the_seed():
    first, again, other = (
        HFRollout(make_model(), rollout_config(), seed).generate_sequences(make_prompts()).batch["responses"]
        for seed in (0, 0, 1)
    )
    assert first.equal(again)
    assert not first[0].equal(first[1])
    assert not first.equal(other)


def test_a_run_that_resumes_at_a_step_samples_what_an_uninterrupted_one_does_there():
    """Whatever was validated before. The batches of a validation are sampled with seeds of their own."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    uninterrupted, resumed = (make_rollout(val_kwargs=sampling) for _ in range(2))

    def responses(rollout, step, **meta):
        return rollout.generate_sequences(make_prompts(global_steps=step, **meta)).batch["responses"]

    first, second = (responses(uninterrupted, step) for step in (1, 2))
    validations = [responses(resumed, 1, validate=True, do_sample=True) for _ in range(2)]
    assert responses(resumed, 2).equal(second) and not first.equal(second)
    assert not validations[0].equal(validations[1]) and not validations[0].equal(first)


def test_samples_come_from_the_weights_as_they_are_now():
    model, prompts = make_model(), make_prompts(do_sample=False)
    rollout = HFRollout(model, rollout_config())
    before = rollout.generate_sequences(prompts).batch["responses"]
    with torch.no_grad():
        model.model.norm.weight.neg_()
    assert not rollout.generate_sequences(prompts).batch["responses"].equal(before)


def test_validation_samples_with_its_own_settings_and_top_k_is_refused():
    greedy = make_rollout().generate_sequences(make_prompts(do_sample=False)).batch["responses"]
    rollout = make_rollout(val_kwargs={"temperature": 1e-4, "top_p": 1.0, "top_k": 0})
    assert rollout.generate_sequences(make_prompts(do_sample=True, validate=True)).batch["responses"].equal(greedy)
    assert not rollout.generate_sequences(make_prompts(do_sample=True)).batch["responses"].equal(greedy)
    with pytest.raises(ValueError, match="top_k"):
        make_rollout(top_k=5)
