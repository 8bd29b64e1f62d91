"""Shared prompts give what veRL's own forward pass gives: log-probabilities, entropies, gradients, updates."""

import random
from itertools import product

import plain_attention
import pytest
import torch
from actors import (
    PROMPTS,
    make_batch,
    make_data,
    make_model,
    make_update,
    stand_in,
    updated,
    verls_actor,
    worker_settings,
)
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from verl.workers.actor import dp_actor

from cobalt.training import patches, shared_attention, shared_prompts, token_scores
from cobalt.training.shared_attention import SharedPromptAttention, SharedPrompts, spans
from cobalt.training.shared_prompts import Group, balanced_rows, micro_batches, rank_parts
from cobalt.training.token_scores import TokenScores
from cobalt.training.workers import CobaltActor

__all__ = ["verls_actor"]
OWN = dp_actor.DataParallelPPOActor
BATCHES = {
    "two prompts, rows out of order": [("d", 6), ("i", 1), ("d", 3), ("d", 6), ("i", 5)],
    "groups of one row": [("a", 6), ("d", 2), ("i", 4)],
    "a response without tokens": [("d", 3), ("d", 0), ("d", 2), ("f", 1)],
    "a group without tokens": [("d", 0), ("f", 2), ("d", 0), ("f", 3)],
    "a prompt of one token, responses of one": [("a", 1), ("a", 1), ("a", 1)],
}
MIXED = BATCHES["two prompts, rows out of order"]
FORWARDS = {"dense": shared_prompts.forward_dense, "varlen": shared_prompts.forward_varlen}
both_machines = pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
checkpointing_or_not = pytest.mark.parametrize("checkpointing", [False, True])


@pytest.fixture(autouse=True)
def fp32(verls_actor):
    plain_attention.install(verls_actor)
    return verls_actor


def padded(actor, *rest):
    """veRL's own forward pass, on padded rows."""
    return OWN._forward_micro_batch(actor, *rest)


def recomputing(model):
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def log_probs_of(forward, model, batch):
    return forward(stand_in(model), batch, 1.0, False)[1]


def scores_and_gradients(forward, model, batch):
    mask = batch["attention_mask"][:, PROMPTS:]
    entropy, log_probs = forward(stand_in(model), batch, 0.7, True)
    ((log_probs + 0.1 * entropy) * mask).sum().backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return entropy * mask, log_probs * mask, gradients


QWEN, LLAMA = (Qwen3ForCausalLM, Qwen3Config), (LlamaForCausalLM, LlamaConfig)


@both_machines
@pytest.mark.parametrize(
    ("rows", "kind", "tied", "checkpointing"),
    [
        *((rows, QWEN, True, False) for rows in BATCHES.values()),
        *((MIXED, *settings) for settings in product((QWEN, LLAMA), (False, True), (False, True))),
    ],
)
def test_scores_and_gradients_equal_verls_for_each_model_with_and_without_recomputation(
    forward, rows, kind, tied, checkpointing
):
    own = scores_and_gradients(padded, make_model(*kind, tied), make_batch(rows))
    model = make_model(*kind, tied)
    ours = scores_and_gradients(forward, recomputing(model) if checkpointing else model, make_batch(rows))
    for expected, found in zip(own, ours, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@checkpointing_or_not
def test_attention_is_computed_once_where_layers_are_computed_again(checkpointing, fp32):
    computed, norms, kernel = [], [], shared_attention.varlen_forward
    fp32.setattr(shared_attention, "varlen_forward", lambda *args: computed.append(args) or kernel(*args))
    model = make_model().train()
    if checkpointing:
        recomputing(model)
    model.model.layers[0].input_layernorm.register_forward_hook(lambda *_: norms.append(1))
    log_probs_of(shared_prompts.forward_varlen, model, make_batch(MIXED)).sum().backward()
    assert len(norms) == 1 + checkpointing
    assert len(computed) == 2 * len(model.model.layers)  # alone and across, for each layer


def test_recomputation_sees_the_plan_of_its_own_micro_batch():
    """Two forward passes before the first backward pass: state kept anywhere but in the graph would be the second's."""
    batches = [make_batch(BATCHES[name], seed) for seed, name in enumerate(list(BATCHES)[:2])]
    gradients = []
    for together in (False, True):
        model = recomputing(make_model())
        sums = [log_probs_of(shared_prompts.forward_varlen, model, batch).sum() for batch in batches if together]
        for batch in [] if together else batches:
            log_probs_of(shared_prompts.forward_varlen, model, batch).sum().backward()
        for value in sums:
            value.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*gradients)


@both_machines
def test_outside_of_the_responses_everything_is_zero(forward):
    batch, model = make_batch(BATCHES["a response without tokens"]), make_model()
    assert (log_probs_of(forward, model, batch) == 0).equal(batch["attention_mask"][:, PROMPTS:] == 0)
    log_probs = log_probs_of(forward, model, make_batch([("d", 0), ("d", 0)]))
    log_probs.sum().backward()
    assert not log_probs.any()
    assert not any(parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


@both_machines
def test_each_prompt_goes_through_the_model_once_without_padding(forward):
    model, seen = make_model(), []
    model.model.embed_tokens.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape))
    log_probs_of(forward, model, make_batch(MIXED))
    assert seen == [(1, 4 + 9 + 6 + 3 + 6 + 1 + 5)]
    assert len(shared_prompts.padded_layout(make_batch(MIXED)).predictors_R) == 6 + 3 + 6 + 1 + 5


def test_a_prompt_that_begins_with_token_0_is_not_taken_for_a_shorter_one():
    ids = torch.tensor([[0, 0, 5, 7], [0, 0, 5, 7]])
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    assert len(shared_prompts.groups_of({"input_ids": ids, "attention_mask": mask, "responses": ids[:, 3:]})) == 2


@pytest.mark.parametrize(("name", "value"), [("model_type", "gemma2"), ("_attn_implementation", "eager")])
def test_models_it_does_not_know_and_eager_attention_are_refused(name, value):
    model = make_model()
    setattr(model.config, name, value)
    with pytest.raises(NotImplementedError, match=value):
        log_probs_of(shared_prompts.forward_varlen, model, make_batch([("d", 1)]))


def test_forward_passes_without_shared_prompts_are_as_before():
    model, batch = make_model(), make_batch([("d", 6), ("i", 1)])
    before = log_probs_of(padded, model, batch)
    log_probs_of(shared_prompts.forward_varlen, model, batch)
    assert log_probs_of(padded, model, batch).equal(before)


ROWS = [("d", 6), ("d", 1), ("i", 3), ("i", 5), ("d", 2), ("d", 4), ("b", 6), ("b", 6)]
MICRO_BATCHES = [
    *({"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": rows} for rows in (1, 2, 4)),
    {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": 99, "ppo_micro_batch_size_per_gpu": 4},
]


@both_machines
@pytest.mark.parametrize("config", MICRO_BATCHES, ids=str)
def test_the_update_is_verls_on_the_same_micro_batches(forward, config, fp32):
    _, own_metrics, own = updated(OWN, make_update(ROWS), **config)
    fp32.setattr(shared_prompts, "forward_dense", forward)  # the one for a CPU's tensors
    patches.share_prompts_in_micro_batches()
    _, metrics, ours = updated(CobaltActor, make_update(ROWS), worker_settings(share_prompts=True), **config)
    torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)
    for name in ("actor/grad_norm", "actor/kl_loss"):
        assert metrics[name] == pytest.approx(own_metrics[name], rel=1e-3)


def test_micro_batches_hold_whole_groups_and_results_return_to_their_rows():
    data = make_data([("d", 6), ("i", 1), ("d", 3), ("i", 5), ("d", 6), ("b", 2)])
    batches, places = shared_prompts.prepare_dynamic_batch(data, 19)
    assert sorted(map(sorted, places)) == [[0, 2, 4], [1, 3, 5]]
    results = torch.cat([batch.batch["input_ids"] for batch in batches])
    assert dp_actor.restore_dynamic_batch(results, places).equal(data.batch["input_ids"])


def make_groups(sizes, prompt=10, response=5):
    """Groups of these numbers of rows, in order."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        Group(tuple(range(start, start + size)), prompt, (response,) * size)
        for start, size in zip(starts, sizes, strict=True)
    ]


def test_every_row_comes_once_no_micro_batch_is_too_large_and_groups_that_fit_stay_whole():
    for seed in range(200):
        generator, groups, row = random.Random(seed), [], 0
        for _ in range(generator.randint(1, 6)):
            responses = tuple(generator.randint(0, 20) for _ in range(generator.randint(1, 8)))
            rows = tuple(range(row, row + len(responses)))
            groups.append(Group(rows, generator.randint(1, 30), responses))
            row += len(rows)
        max_tokens = generator.randint(50, 150)
        found = micro_batches(groups, max_tokens, at_least=generator.randint(1, row))
        assert sorted(row for batch in found for row in batch) == list(range(row)), seed
        for batch in map(set, found):
            parts = [group.part([i for i, row in enumerate(group.rows) if row in batch]) for group in groups]
            assert sum(part.tokens for part in parts if part.rows) <= max_tokens, seed
        found = micro_batches(groups, max(group.tokens for group in groups))
        assert all(any(set(group.rows) <= set(batch) for batch in found) for group in groups), seed


def test_micro_batches_are_as_many_as_other_ranks_need_in_even_parts_the_costliest_first():
    for wanted in range(1, 13):
        assert len(micro_batches(make_groups([4, 4, 4]), 1000, at_least=wanted)) == wanted
    assert micro_batches(make_groups([2, 2]), 1000, at_least=2) == [[0, 1], [2, 3]]  # groups are cut last
    assert [len(batch) for batch in micro_batches(make_groups([6]), 10 + 4 * 5)] == [3, 3]
    groups = [Group((0,), 5, (1,)), Group((1,), 9, (9,)), Group((2,), 7, (3,))]
    assert micro_batches(groups, 18) == [[1], [0, 2]]
    with pytest.raises(ValueError, match="a row of 15 tokens"):
        micro_batches(make_groups([2]), 14)


@pytest.mark.parametrize(
    ("sizes", "ranks", "rows"), [([4] * 4, 2, 4), ([16] * 3, 2, 8), ([16] * 2, 4, 8), ([16], 16, 1), ([4, 6], 2, 1)]
)
def test_ranks_take_whole_groups_where_they_can_and_else_the_largest_equal_parts(sizes, ranks, rows):
    parts = rank_parts(make_groups(sizes), ranks)
    assert {len(part.rows) for part in parts} == {rows}
    assert len(parts) % ranks == 0
    assert [row for part in parts for row in part.rows] == list(range(sum(sizes)))


def test_ranks_get_whole_groups_balanced_by_shared_tokens():
    """Groups are cut where ranks outnumber them."""
    mixed = [("a", 6), ("a", 6), ("b", 1), ("b", 1), ("c", 6), ("c", 5), ("d", 1), ("d", 2)]
    for rows, ranks, names in ((mixed, 2, ["ad", "bc"]), ([("a", 6)] * 4 + [("b", 1)] * 4, 4, [*"aabb"])):
        data, size = make_data(rows), len(rows) // ranks
        order, metrics = balanced_rows(shared_prompts.groups_of(data.batch), ranks)
        assert sorted(order) == list(range(len(rows)))
        by_rank = [{rows[row][0] for row in order[start : start + size]} for start in range(0, len(rows), size)]
        assert sorted("".join(sorted(found)) for found in by_rank) == names
        assert ranks == 4 or metrics["global_seqlen/balanced_max"] == 20


def test_attention_in_bf16_is_as_near_to_the_truth_as_rounding_lets_it():
    prompts, groups = [5, 2], [[3, 1, 4], [2, 6]]
    lengths = [*prompts, *groups[0], *groups[1]]
    across = spans([sum(group) for group in groups], prompts, "cpu")
    plan = SharedPrompts(sum(prompts), spans(lengths, lengths, "cpu"), across)
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(sum(lengths), heads, 8, generator=generator) for heads in (4, 2, 2)]
    exact = SharedPromptAttention.apply(*states, plan, 0.3)
    rounded = SharedPromptAttention.apply(*(state.bfloat16() for state in states), plan, 0.3)
    assert rounded.dtype == torch.bfloat16
    assert ((rounded.float() - exact).norm() / exact.norm()).item() < 1e-2


TOKENS, WORDS, CHANNELS = 13, 21, 8


def make_inputs():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, CHANNELS, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(WORDS, CHANNELS, generator=generator, dtype=torch.float64, requires_grad=True)
    return hidden, weight, torch.randint(0, WORDS, (TOKENS,), generator=generator)


def whole(hidden, weight, targets, temperature, *_):
    log_probs = (hidden @ weight.t() / temperature).log_softmax(-1)
    return log_probs.gather(-1, targets[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)


@pytest.mark.parametrize(
    ("rows", "with_entropy", "compiled"),
    [*((rows, with_entropy, False) for rows in (1, 4, 13, 100) for with_entropy in (False, True)), (4, True, True)],
)
def test_scores_in_chunks_and_their_gradients_equal_those_of_the_whole_logits(rows, with_entropy, compiled, fp32):
    fp32.setattr(token_scores, "ROWS", rows)
    results = []
    for way in (whole, TokenScores.apply):
        hidden, weight, targets = make_inputs()
        log_probs, entropies = way(hidden, weight, targets, 0.7, with_entropy, compiled)
        entropies = entropies if with_entropy else torch.zeros(TOKENS)
        ((log_probs + 0.3 * entropies) * torch.arange(TOKENS) / TOKENS).sum().backward()
        results.append((log_probs.float(), entropies.float(), hidden.grad.float(), weight.grad.float()))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_logits_never_exist_for_more_than_a_chunk(fp32):
    seen = []

    def counting(function):
        return lambda logits, *rest: seen.append(len(logits)) or function(logits, *rest)

    fp32.setattr(token_scores, "ROWS", 4)
    for name in ("_scores", "_logits_gradient"):
        fp32.setattr(token_scores, name, counting(getattr(token_scores, name)))
    hidden, weight, targets = make_inputs()
    TokenScores.apply(hidden, weight, targets, 1.0, False, False)[0].sum().backward()
    assert seen == [4, 4, 4, 1] * 2
