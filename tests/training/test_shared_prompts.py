"""Shared prompts give what veRL's own forward pass gives: log-probabilities, entropies, gradients, updates."""

import random
from itertools import product

import plain_attention
import pytest
import torch
from actors import (
    PROMPTS,
    RESPONSES,
    VOCAB,
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
from cobalt.training.shared_attention import SharedPromptAttention
from cobalt.training.shared_prompts import Rows, balanced_rows, lay_out, micro_batches, padded_layout, rows_by_prefix
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
    mask = batch["attention_mask"][:, -RESPONSES:]
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


@checkpointing_or_not
def test_newer_kernels_give_the_same_and_compute_attention_again(checkpointing, fp32):
    calls, kernels = [], plain_attention.NewerKernels()
    forward = kernels._flash_attn_fwd
    kernels._flash_attn_fwd = lambda *args, **kwargs: calls.append(args) or forward(*args, **kwargs)
    found = []
    for install in (None, plain_attention.install_newer):
        model = make_model()
        if install:
            install(fp32, kernels)
            model = recomputing(model) if checkpointing else model
        found.append(scores_and_gradients(shared_prompts.forward_varlen, model, make_batch(MIXED)))
    for older, newer in zip(*found, strict=True):
        torch.testing.assert_close(newer, older, rtol=1e-4, atol=1e-5)
    assert len(calls) == (1 + checkpointing) * 2 * len(model.model.layers)  # alone and across, for each layer


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
    rows = shared_prompts.padded_rows({"input_ids": ids, "attention_mask": mask, "responses": ids[:, 3:]})
    assert len(rows.trees()) == 2


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


def make_rows(sizes, prompt=10, response=5):
    """Rows with these numbers of responses to a prompt."""
    shared = [tokens for size in sizes for tokens in (0, *[prompt] * (size - 1))]
    count = len(shared)
    return Rows(tuple(range(count)), (prompt,) * count, (response,) * count, tuple(shared))


def random_prompts(seed, depth, longest=4):
    """Contexts of up to ``depth`` turns, in random order. Each has responses, goes on in other contexts, or both."""
    generator, prompts = random.Random(seed), []

    def grow(before, turns):
        prompt = before + [generator.randrange(1, VOCAB) for _ in range(generator.randint(1, longest))]
        prompts.extend([prompt] * generator.randint(0 if turns else 1, 3))
        for _ in range(generator.randint(1, 2) if turns else 0):
            grow(prompt, turns - 1)

    for _ in range(2):
        grow([], depth - 1)
    generator.shuffle(prompts)
    return prompts


def batch_of(prompts, seed, fewest=0):
    """They as veRL's padded batch, with responses of ``fewest`` to ``RESPONSES`` tokens."""
    generator, width = torch.Generator().manual_seed(seed), max(map(len, prompts))
    ids = torch.randint(1, VOCAB, (len(prompts), width + RESPONSES), generator=generator)
    tokens = torch.randint(fewest, RESPONSES + 1, (len(prompts),), generator=generator)
    mask = (torch.arange(width + RESPONSES) < width + tokens[:, None]).long()
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) : width] = torch.tensor(prompt)
        mask[row, : width - len(prompt)] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "responses": ids[:, width:]}


def one_by_one(actor, batch, *rest):
    """veRL's own forward pass on each row by itself."""
    rows = range(len(batch["input_ids"]))
    found = [padded(actor, {name: of[row : row + 1] for name, of in batch.items()}, *rest) for row in rows]
    return tuple(torch.cat(values) for values in zip(*found, strict=True))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_trees_of_prompts_give_what_each_row_gives_by_itself(depth, fp32):
    """Log-probabilities, entropies and all gradients. Trees of more levels where these cost nothing, or of fewer."""
    deepest = 0
    for seed in range(3):
        batch = batch_of(random_prompts(seed, depth), seed)
        own = scores_and_gradients(one_by_one, make_model(), batch)
        for cost, forward in product((0, 0.5), FORWARDS.values()):
            fp32.setattr(shared_prompts, "LEVEL_COST", cost)
            for expected, found in zip(own, scores_and_gradients(forward, make_model(), batch), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            deepest = max(deepest, len(padded_layout(batch).attention().levels))
    assert deepest >= depth


def test_a_context_may_have_responses_of_its_own_and_go_on_in_others():
    """Of the first problem: a prompt, two contexts that begin with all of it, and one that begins with a context."""
    prompts = [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4, 5, 6], [9, 8], [1, 2, 3, 7], [1, 2, 3, 4, 5, 6], [9, 8]]
    batch = batch_of(prompts, seed=0, fewest=1)
    layout = padded_layout(batch)
    responses = int(batch["attention_mask"][:, 6:].sum())
    assert len(layout.cells_L) == 6 + 1 + 2 + responses  # [9, 8] once, and the seventh token of the first tree
    assert len(layout.attention().levels) == 3
    own, ours = (scores_and_gradients(way, make_model(), batch) for way in (one_by_one, FORWARDS["varlen"]))
    for expected, found in zip(own, ours, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_token_is_computed_at_its_position_in_each_row_that_shares_it():
    for seed in range(20):
        batch = batch_of(random_prompts(seed, 3), seed)
        rows, valid = shared_prompts.padded_rows(batch), batch["attention_mask"].bool()
        ids, positions = ([batch[name][row][valid[row]] for row in rows.rows] for name in ("input_ids", "position_ids"))
        for place, tokens, _, _ in shared_prompts.segments_of(rows):
            for other in range(place, len(ids)):
                if all(shared >= tokens.stop for shared in rows.shared[place + 1 : other + 1]):
                    assert positions[other][tokens].tolist() == [*range(tokens.start, tokens.stop)]
                    assert ids[other][tokens].equal(ids[place][tokens])


def test_prompts_without_a_common_beginning_are_one_level_as_before():
    """All prompts, then all responses in the order of their prompts, and no query or key between them that waits."""
    batch = make_batch(MIXED)
    rows, plan = shared_prompts.padded_rows(batch), padded_layout(batch).attention()
    prompts = [rows.prompts[tree.start] for tree in rows.trees()]
    of_prompts = [sum(rows.responses[place] for place in tree) for tree in rows.trees()]
    assert plan.alone.query_starts.diff().tolist() == [*prompts, *rows.responses]
    (level,) = plan.levels
    assert (level.keys, level.queries) == (slice(0, 13), slice(13, 13 + sum(of_prompts)))
    assert level.spans.query_starts.diff().tolist() == of_prompts
    assert level.spans.key_starts.diff().tolist() == prompts


@pytest.mark.parametrize(
    ("contexts", "responses", "shared"),
    [
        ("a prompt and its samples", [900] * 4, [0, 100, 100, 100]),
        ("a prompt too short for its responses", [9000] * 4, [0, 0, 0, 0]),
        ("two turns, and the tokens that end a prompt", [900] * 4, [0, 200, 302, 200]),
        ("a system prompt", [900] * 6, [0, 130, 130, 0, 130, 130]),
    ],
)
def test_tokens_are_shared_where_that_saves_more_than_a_level_costs(contexts, responses, shared):
    """Tokens that are not worth a level are computed with each row, and those above them are shared without them."""
    problem, end = torch.arange(100), torch.tensor([7, 8])
    turns = [torch.cat([torch.arange(tokens), end]) for tokens in (200, 300)]
    prompts = {
        "a prompt and its samples": [problem] * 4,
        "a prompt too short for its responses": [problem] * 4,
        "two turns, and the tokens that end a prompt": [*turns, *turns],
        "a system prompt": [torch.cat([problem[:30], torch.full((100,), number)]) for number in (1, 2) for _ in "abc"],
    }
    rows = rows_by_prefix(prompts[contexts], responses)
    assert list(rows.shared) == shared


def test_every_row_comes_once_no_micro_batch_is_too_large_and_trees_that_fit_stay_whole():
    for seed in range(200):
        generator = random.Random(seed)
        prompts = [torch.tensor(prompt) for prompt in random_prompts(seed, generator.randint(1, 4), longest=20)]
        lengths = [generator.randint(0, 20) for _ in prompts]
        rows = rows_by_prefix(prompts, lengths)
        max_tokens = max(map(sum, zip(rows.prompts, rows.responses, strict=True))) + generator.randint(0, 100)
        found = micro_batches(rows, max_tokens, at_least=generator.randint(1, len(prompts)))
        assert sorted(row for part in found for row in part.rows) == list(range(len(prompts))), seed
        for part in found:
            assert part.tokens <= max_tokens, seed
            if all(part.responses):  # the cost is what is computed
                cells = [torch.arange(len(prompts[row]) + lengths[row]) for row in range(len(prompts))]
                assert len(lay_out(part, cells.__getitem__, "cpu").cells_L) == part.tokens, seed
        trees = [rows.part(tree) for tree in rows.trees()]
        found = micro_batches(rows, max(tree.tokens for tree in trees))
        assert all(any(set(tree.rows) <= set(part.rows) for part in found) for tree in trees), seed


def test_micro_batches_are_as_many_as_other_ranks_need_in_even_parts_the_costliest_first():
    def rows_of(*args, **kwargs):
        return [list(part.rows) for part in micro_batches(*args, **kwargs)]

    for wanted in range(1, 13):
        assert len(micro_batches(make_rows([4, 4, 4]), 1000, at_least=wanted)) == wanted
    assert rows_of(make_rows([2, 2]), 1000, at_least=2) == [[0, 1], [2, 3]]  # trees are cut last
    assert [len(rows) for rows in rows_of(make_rows([6]), 10 + 4 * 5)] == [3, 3]
    assert rows_of(Rows((0, 1, 2), (5, 9, 7), (1, 9, 3), (0, 0, 0)), 18) == [[1], [0, 2]]
    # two contexts of one problem with three responses each: 40 + 2 · 10 + 6 · 5
    contexts = Rows(tuple(range(6)), (50,) * 6, (5,) * 6, (0, 50, 50, 40, 50, 50))
    assert contexts.tokens == 90
    assert rows_of(contexts, 90) == [[0, 1, 2, 3, 4, 5]]
    assert rows_of(contexts, 89) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="a row of 15 tokens"):
        micro_batches(make_rows([2]), 14)


@pytest.mark.parametrize(
    ("sizes", "ranks", "parts"), [([4] * 4, 2, 4), ([16] * 3, 2, 4), ([16] * 2, 4, 4), ([16], 16, 16), ([4, 6], 2, 3)]
)
def test_ranks_get_equally_many_rows_and_whole_trees_where_they_can(sizes, ranks, parts):
    trees = [tree for tree, size in enumerate(sizes) for _ in range(size)]
    order, _ = balanced_rows(make_rows(sizes), ranks)
    assert sorted(order) == list(range(sum(sizes)))
    size = sum(sizes) // ranks
    by_rank = [[trees[row] for row in order[start : start + size]] for start in range(0, len(order), size)]
    assert sum(len(set(of_rank)) for of_rank in by_rank) == parts
    with pytest.raises(ValueError, match="rows for 7 ranks"):
        balanced_rows(make_rows(sizes), 7)


def test_ranks_get_trees_balanced_by_shared_tokens():
    mixed = [("a", 6), ("a", 6), ("b", 1), ("b", 1), ("c", 6), ("c", 5), ("d", 1), ("d", 2)]
    for rows, ranks, names in ((mixed, 2, ["ad", "bc"]), ([("a", 6)] * 4 + [("b", 1)] * 4, 4, [*"aabb"])):
        data, size = make_data(rows), len(rows) // ranks
        order, metrics = balanced_rows(shared_prompts.padded_rows(data.batch), ranks)
        assert sorted(order) == list(range(len(rows)))
        by_rank = [{rows[row][0] for row in order[start : start + size]} for start in range(0, len(rows), size)]
        assert sorted("".join(sorted(found)) for found in by_rank) == names
        assert ranks == 4 or metrics["global_seqlen/balanced_max"] == 20


def test_attention_in_bf16_is_as_near_to_the_truth_as_rounding_lets_it():
    batch = batch_of(random_prompts(0, 4), 0)
    plan, tokens = padded_layout(batch).attention(), len(padded_layout(batch).cells_L)
    assert len(plan.levels) > 2
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(tokens, heads, 8, generator=generator) for heads in (4, 2, 2)]
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
