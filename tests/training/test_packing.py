"""Packed forward passes give what veRL's padded ones give."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl.workers.actor import dp_actor

from cobalt.training.patches import packing

PROMPTS, RESPONSES, VOCAB = 9, 6, 50


def make_model(attention="sdpa"):
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    config._attn_implementation = attention
    return Qwen3ForCausalLM(config)


def make_micro_batch(seed=0):
    """Two prompts of different length, with three and two responses of different lengths, out of order."""
    generator = torch.Generator().manual_seed(seed)
    prompt_lengths, response_lengths = [4, 9, 4, 4, 9], [6, 1, 3, 6, 5]
    ids = torch.randint(1, VOCAB, (5, PROMPTS + RESPONSES), generator=generator)
    for row, source in ((2, 0), (3, 0), (4, 1)):
        ids[row, :PROMPTS] = ids[source, :PROMPTS]
    mask = torch.zeros_like(ids)
    for row, (prompt, response) in enumerate(zip(prompt_lengths, response_lengths, strict=True)):
        mask[row, PROMPTS - prompt : PROMPTS + response] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "responses": ids[:, PROMPTS:]}


def make_actor(model):
    config = {"entropy_checkpointing": False}
    actor = SimpleNamespace(actor_module=model, device_name="cpu", use_remove_padding=False, use_fused_kernels=False)
    actor.config = SimpleNamespace(**config)
    actor.use_ulysses_sp = False
    return actor


@pytest.fixture(autouse=True)
def fp32(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_args, **_kwargs: torch.enable_grad())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_log_probs_entropies_and_gradients_equal_the_padded_ones(attention):
    batch, mask = make_micro_batch(), make_micro_batch()["attention_mask"][:, PROMPTS:]
    results = []
    for forward in (dp_actor.DataParallelPPOActor._forward_micro_batch, packing._forward):
        model = make_model(attention)
        entropy, log_probs = forward(make_actor(model), batch, 0.7, True)
        ((log_probs + 0.1 * entropy) * mask).sum().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        results.append((entropy * mask, log_probs * mask, gradients))
    for padded, packed in zip(*results, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-5)


def test_outside_of_the_responses_everything_is_zero():
    batch = make_micro_batch()
    _, log_probs = packing._forward(make_actor(make_model()), batch, 1.0, False)
    assert (log_probs == 0).equal(batch["attention_mask"][:, PROMPTS:] == 0)


def test_a_group_is_one_sequence_without_padding_of_its_own():
    packed = packing.pack(make_micro_batch())
    assert packed.input_ids_GL.shape == (2, 4 + 6 + 3 + 6)
    assert (packed.segments_GL >= 0).sum(-1).tolist() == [19, 15]


def test_a_prompt_that_begins_with_token_0_is_not_taken_for_a_shorter_one():
    ids = torch.tensor([[0, 0, 5, 7], [0, 0, 5, 7]])
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    batch = {"input_ids": ids, "attention_mask": mask, "position_ids": mask.cumsum(-1) - 1, "responses": ids[:, 3:]}
    assert len(packing.pack(batch).input_ids_GL) == 2
