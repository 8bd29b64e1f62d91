"""Shared prompts give what a model gives on each row by itself: log-probabilities, entropies and gradients."""

import random
import sys
from functools import cache, partial
from itertools import product

import plain_attention
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cobalt.training import shared_attention, shared_prompts, token_scores
from cobalt.training.shared_attention import SharedPromptAttention, newer_kernels
from cobalt.training.shared_prompts import Rows, balanced_rows, lay_out, micro_batches, prepare, rows_by_prefix
from cobalt.training.token_scores import TokenScores
from cobalt.training.updates import evened

VOCAB, RESPONSES = 50, 6
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
BATCHES = {
    "two prompts, rows out of order": [("d", 6), ("i", 1), ("d", 3), ("d", 6), ("i", 5)],
    "groups of one row": [("a", 6), ("d", 2), ("i", 4)],
    "a response without tokens": [("d", 3), ("d", 0), ("d", 2), ("f", 1)],
    "a group without tokens": [("d", 0), ("f", 2), ("d", 0), ("f", 3)],
    "a prompt of one token, responses of one": [("a", 1), ("a", 1), ("a", 1)],
}
MIXED = BATCHES["two prompts, rows out of order"]
both_machines = pytest.mark.parametrize("kernels", [False, True], ids=["dense", "varlen"])
checkpointing_or_not = pytest.mark.parametrize("checkpointing", [False, True])


@pytest.fixture(autouse=True)
def patched(monkeypatch):
    """The kernels on a CPU; transformers' attention is put back after the test."""
    plain_attention.install(monkeypatch)
    monkeypatch.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", {})
    return monkeypatch


def make_model(model=Qwen3ForCausalLM, config=Qwen3Config, tied=True, kernels=False, checkpointing=False):
    """``kernels``: attention is that of a GPU, and else torch's with a dense mask."""
    torch.manual_seed(0)
    made = config(**SHAPE, tie_word_embeddings=tied)
    made._attn_implementation = "sdpa"
    made = model(made).train()
    if checkpointing:
        made.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if kernels:
        prepare(made, False)
    return made


def make_batch(rows, seed=0):
    """Prompts and responses. ``rows``: a prompt's name (its length is its place among the letters), response tokens."""
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(1, VOCAB, (length,), generator=generator) for length in range(1, 10)]
    responses = [torch.randint(1, VOCAB, (tokens,), generator=generator) for _, tokens in rows]
    return [prompts["abcdefghi".index(name)] for name, _ in rows], responses


def batch_of(prompts, seed, fewest=0):
    """These prompts, with responses of ``fewest`` to ``RESPONSES`` tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(fewest, RESPONSES + 1, (len(prompts),), generator=generator).tolist()
    return [*map(torch.tensor, prompts)], [torch.randint(1, VOCAB, (n,), generator=generator) for n in lengths]


def flat(batch):
    """Token ids and positions of all rows, laid end to end, and the cells of each row."""
    rows = [torch.cat(pair) for pair in zip(*batch, strict=True)]
    cells = torch.arange(sum(map(len, rows))).split([len(row) for row in rows])
    return torch.cat(rows), torch.cat([torch.arange(len(row)) for row in rows]), cells


def layout_of(batch):
    rows = rows_by_prefix(batch[0], [len(response) for response in batch[1]])
    return lay_out(rows, flat(batch)[2].__getitem__, "cpu")


def shared(model, batch, temperature=0.7):
    """Log-probabilities and entropies of the response tokens of all rows."""
    ids, positions, cells = flat(batch)
    layout = layout_of(batch)
    found = shared_prompts.score_tokens(
        model, model.get_output_embeddings(), layout, ids, positions, temperature, True, False
    )
    of_responses = torch.cat([row[len(prompt) :] for row, prompt in zip(cells, batch[0], strict=True)])
    return [torch.zeros(len(ids)).index_put((layout.cells_R,), values)[of_responses] for values in found]


def one_by_one(model, batch, temperature=0.7):
    """The same of each row by itself, by a plain forward pass."""
    found = []
    for prompt, response in zip(*batch, strict=True):
        logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1] / temperature
        log_probs = logits.log_softmax(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        found.append((log_probs.gather(-1, response[:, None])[:, 0], entropies))
    return [torch.cat(values) for values in zip(*found, strict=True)]


def gradients_of(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def with_gradients(way, model, batch):
    log_probs, entropies = way(model, batch)
    (log_probs + 0.1 * entropies).sum().backward()
    return log_probs, entropies, gradients_of(model)


def assert_close(found, expected):
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


QWEN, LLAMA = (Qwen3ForCausalLM, Qwen3Config), (LlamaForCausalLM, LlamaConfig)


@pytest.mark.parametrize(
    ("rows", "kind", "tied"),
    [*((rows, QWEN, True) for rows in BATCHES.values()), (MIXED, QWEN, False), (MIXED, LLAMA, False)],
)
def test_scores_and_gradients_are_those_of_each_row_for_each_model_with_and_without_recomputation(rows, kind, tied):
    batch = make_batch(rows)
    expected = with_gradients(one_by_one, make_model(*kind, tied), batch)
    for kernels, checkpointing in product((False, True), repeat=2):
        assert_close(with_gradients(shared, make_model(*kind, tied, kernels, checkpointing), batch), expected)


@checkpointing_or_not
def test_attention_is_computed_once_where_layers_are_computed_again(checkpointing, patched):
    computed, norms, kernel = [], [], shared_attention.varlen_forward
    patched.setattr(shared_attention, "varlen_forward", lambda *args: computed.append(args) or kernel(*args))
    model = make_model(kernels=True, checkpointing=checkpointing)
    model.model.layers[0].input_layernorm.register_forward_hook(lambda *_: norms.append(1))
    shared(model, make_batch(MIXED))[0].sum().backward()
    assert len(norms) == 1 + checkpointing
    assert len(computed) == 2 * len(model.model.layers)  # alone and across, for each layer


@checkpointing_or_not
def test_newer_kernels_give_the_same_and_compute_attention_again(checkpointing, patched):
    calls, kernels = [], plain_attention.NewerKernels()
    forward = kernels._flash_attn_fwd
    kernels._flash_attn_fwd = lambda *args, **kwargs: calls.append(args) or forward(*args, **kwargs)
    older = with_gradients(shared, make_model(kernels=True), make_batch(MIXED))
    plain_attention.install_newer(patched, kernels)
    model = make_model(kernels=True, checkpointing=checkpointing)
    assert_close(with_gradients(shared, model, make_batch(MIXED)), older)
    assert len(calls) == (1 + checkpointing) * 2 * len(model.model.layers)  # alone and across, for each layer


@pytest.mark.parametrize("package", ["vllm.vllm_flash_attn", "flash_attn", None])
def test_newer_kernels_are_the_engines_and_missing_ones_are_told(monkeypatch, capsys, package):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    if package is not None:
        monkeypatch.setitem(sys.modules, f"{package}.cute.interface", plain_attention)
    assert newer_kernels.__wrapped__() is (package and plain_attention)
    told = "FlashAttention-2, for FlashAttention-4 cannot be imported: " in capsys.readouterr().out
    assert told == (package is None)


def test_recomputation_sees_the_plan_of_its_own_micro_batch():
    """Two forward passes before the first backward pass: state kept anywhere but in the graph would be the second's."""
    batches = [make_batch(BATCHES[name], seed) for seed, name in enumerate(list(BATCHES)[:2])]
    found = []
    for together in (False, True):
        model = make_model(kernels=True, checkpointing=True)
        sums = [shared(model, batch)[0].sum() for batch in batches if together]
        for batch in [] if together else batches:
            shared(model, batch)[0].sum().backward()
        for value in sums:
            value.backward()
        found.append(gradients_of(model))
    torch.testing.assert_close(*found)


@both_machines
def test_without_a_response_nothing_is_learned(kernels):
    model = make_model(kernels=kernels)
    shared(model, make_batch([("d", 0), ("d", 0)]))[0].sum().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


@both_machines
def test_each_prompt_goes_through_the_model_once_without_padding(kernels):
    model, seen = make_model(kernels=kernels), []
    model.model.embed_tokens.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape))
    shared(model, make_batch(MIXED))
    assert seen == [(1, 4 + 9 + 6 + 3 + 6 + 1 + 5)]
    assert len(layout_of(make_batch(MIXED)).predictors_R) == 6 + 3 + 6 + 1 + 5


@pytest.mark.parametrize(("name", "value"), [("model_type", "gemma2"), ("_attn_implementation", "eager")])
def test_models_it_does_not_know_and_eager_attention_are_refused(name, value):
    model = make_model()
    setattr(model.config, name, value)
    with pytest.raises(NotImplementedError, match=value):
        prepare(model, False)
    with pytest.raises(NotImplementedError, match="exclude use_fused_kernels and ulysses"):
        prepare(make_model(), True)


def test_forward_passes_without_shared_prompts_are_as_before():
    model, batch = make_model(), make_batch([("d", 6), ("i", 1)])
    before = one_by_one(model, batch)
    prepare(model, False)
    shared(model, batch)
    assert all(map(torch.equal, one_by_one(model, batch), before))


def make_rows(sizes):
    """Rows of five tokens each, with these numbers of responses to a prompt of ten."""
    shared = [tokens for size in sizes for tokens in (0, *[10] * (size - 1))]
    count = len(shared)
    return Rows(tuple(range(count)), (10,) * count, (5,) * count, tuple(shared))


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


@pytest.mark.parametrize("depth", [2, 4])
def test_trees_of_prompts_give_what_each_row_gives_by_itself(depth, patched):
    """Log-probabilities, entropies and all gradients. Trees of more levels where these cost nothing, or of fewer."""
    deepest = 0
    for seed in range(3):
        batch = batch_of(random_prompts(seed, depth), seed)
        expected = with_gradients(one_by_one, make_model(), batch)
        for cost, kernels in product((0, 0.5), (False, True)):
            patched.setattr(shared_prompts, "LEVEL_COST", cost)
            patched.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", {})
            assert_close(with_gradients(shared, make_model(kernels=kernels), batch), expected)
            deepest = max(deepest, len(layout_of(batch).attention().levels))
    assert deepest >= depth


def test_a_context_may_have_responses_of_its_own_and_go_on_in_others():
    """Of the first problem: a prompt, two contexts that begin with all of it, and one that begins with a context."""
    prompts = [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4, 5, 6], [9, 8], [1, 2, 3, 7], [1, 2, 3, 4, 5, 6], [9, 8]]
    batch = batch_of(prompts, seed=0, fewest=1)
    layout = layout_of(batch)
    assert len(layout.cells_L) == 6 + 1 + 2 + sum(map(len, batch[1]))  # [9, 8] once, and the first tree's seventh token
    assert len(layout.attention().levels) == 3
    expected = with_gradients(one_by_one, make_model(), batch)
    assert_close(with_gradients(shared, make_model(kernels=True), batch), expected)


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
        (prompts, responses), size = make_batch(rows), len(rows) // ranks
        order, metrics = balanced_rows(rows_by_prefix(prompts, [*map(len, responses)]), ranks)
        assert sorted(order) == list(range(len(rows)))
        by_rank = [{rows[row][0] for row in order[start : start + size]} for start in range(0, len(rows), size)]
        assert sorted("".join(sorted(found)) for found in by_rank) == names
        assert ranks == 4 or metrics["global_seqlen/balanced_max"] == 20


@cache
def short_answers(seed):
    """64 contexts with 16 short answers each. All prompts begin with a system prompt; problems have 1 to 3 contexts."""
    chance, prompts, responses = random.Random(seed), [], []
    system = torch.arange(250)
    for problem in range(64):
        prompt = torch.cat([system, torch.full((chance.randint(100, 600),), 1000 + problem)])
        for _ in range(chance.randint(1, 3)):
            mean = 160 * chance.lognormvariate(0, 0.5)
            for _ in range(16):
                prompts.append(prompt)
                responses.append(max(5, min(768, int(chance.expovariate(1 / mean)))))
            prompt = torch.cat([prompt, torch.full((chance.randint(100, 300),), 5000 + len(prompts))])
    return rows_by_prefix(prompts[:1024], responses[:1024])


@pytest.mark.parametrize(("ranks", "updates"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)])
def test_ranks_wait_for_each_other_hardly_ever(ranks, updates):
    """Of real contexts all are one tree, by the system prompt. Samples of a context stay together all the same."""
    for seed in range(4):
        rows = short_answers(seed)
        places = {row: place for place, row in enumerate(rows.rows)}
        order, metrics = evened(rows, ranks, updates)
        size, of_ranks, costs = len(order) // ranks // updates, [], []
        for start in range(0, len(order), size):
            of_ranks.append(order[start : start + size])
            costs.append(rows.part(places[row] for row in of_ranks[-1]).tokens)
        assert len(rows.trees()) == 1 and sorted(order) == [*range(1024)]
        by_update = [costs[update::updates] for update in range(updates)]
        assert metrics["global_seqlen/balanced_max"] == sum(map(max, by_update))
        assert sum(map(max, by_update)) * ranks <= 1.05 * rows.tokens
        assert sum(len({row // 16 for row in of_rank}) for of_rank in of_ranks) == 64


def test_attention_in_bf16_is_as_near_to_the_truth_as_rounding_lets_it():
    batch = batch_of(random_prompts(0, 4), 0)
    plan, tokens = layout_of(batch).attention(), len(layout_of(batch).cells_L)
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
def test_scores_in_chunks_and_their_gradients_equal_those_of_the_whole_logits(rows, with_entropy, compiled, patched):
    """Compiled, as torch traces them: what makes kernels of the traces is torch's own, and takes long."""
    patched.setattr(token_scores, "ROWS", rows)
    patched.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    results = []
    for way in (whole, TokenScores.apply):
        hidden, weight, targets = make_inputs()
        log_probs, entropies = way(hidden, weight, targets, 0.7, with_entropy, compiled)
        entropies = entropies if with_entropy else torch.zeros(TOKENS)
        ((log_probs + 0.3 * entropies) * torch.arange(TOKENS) / TOKENS).sum().backward()
        results.append((log_probs.float(), entropies.float(), hidden.grad.float(), weight.grad.float()))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_logits_never_exist_for_more_than_a_chunk(patched):
    seen = []

    def counting(function):
        return lambda logits, *rest: seen.append(len(logits)) or function(logits, *rest)

    patched.setattr(token_scores, "ROWS", 4)
    for name in ("_scores", "_logits_gradient"):
        patched.setattr(token_scores, name, counting(getattr(token_scores, name)))
    hidden, weight, targets = make_inputs()
    TokenScores.apply(hidden, weight, targets, 1.0, False, False)[0].sum().backward()
    assert seen == [4, 4, 4, 1] * 2
