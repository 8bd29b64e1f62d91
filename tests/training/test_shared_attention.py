"""Attention with shared prompts equals attention of each response to its prompt and itself."""

import pytest
import torch

from cobalt.training.patches.shared_attention import PLAIN, SharedPromptAttention, SharedPrompts, spans

HEADS, KEY_HEADS, CHANNELS, SCALE = 4, 2, 8, 0.3
PROMPTS, RESPONSES = [5, 2], [[3, 1, 4], [2, 6]]


def make_states(tokens, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(tokens, heads, CHANNELS) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def make_plan():
    flat = [tokens for group in RESPONSES for tokens in group]
    return SharedPrompts(
        sum(PROMPTS),
        spans(PROMPTS + flat, PROMPTS + flat, "cpu"),
        spans([sum(group) for group in RESPONSES], PROMPTS, "cpu"),
    )


def visible():
    """(T, T): whether the query sees the key, written out token by token."""
    group_of, response_of, place_of = [], [], []
    for group, tokens in enumerate(PROMPTS):
        for place in range(tokens):
            group_of.append(group), response_of.append(None), place_of.append(place)
    for group, responses in enumerate(RESPONSES):
        for response, tokens in enumerate(responses):
            for place in range(tokens):
                group_of.append(group), response_of.append(response), place_of.append(place + PROMPTS[group])
    count = len(group_of)
    seen = torch.zeros(count, count, dtype=torch.bool)
    for query in range(count):
        for key in range(count):
            same = response_of[key] is None or response_of[key] == response_of[query]
            seen[query, key] = group_of[key] == group_of[query] and same and place_of[key] <= place_of[query]
    return seen


def dense(query, key, value):
    key, value = (states.repeat_interleave(HEADS // KEY_HEADS, 1) for states in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * SCALE
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~visible(), -torch.inf).softmax(-1), value)


def test_output_and_gradients_equal_those_of_a_dense_mask():
    tokens = len(visible())
    weights = torch.randn(tokens, HEADS, CHANNELS, generator=torch.Generator().manual_seed(1))
    results = []
    for attention in (dense, lambda *states: SharedPromptAttention.apply(*states, make_plan(), SCALE)):
        states = make_states(tokens)
        out = attention(*states)
        (out * weights).sum().backward()
        results.append((out, *(state.grad for state in states)))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_in_bf16_it_is_as_near_to_the_truth_as_rounding_lets_it():
    tokens = len(visible())
    exact = dense(*make_states(tokens))
    rounded = SharedPromptAttention.apply(*make_states(tokens, dtype=torch.bfloat16), make_plan(), SCALE)
    assert rounded.dtype == torch.bfloat16
    assert ((rounded.float() - exact).norm() / exact.norm()).item() < 1e-2


@pytest.mark.parametrize("lengths", [([3, 2], [3, 2]), ([3, 2], [5, 2]), ([1, 4], [6, 4])])
def test_the_plain_kernels_align_a_causal_mask_at_the_last_key(lengths):
    plan, (query_lengths, key_lengths) = spans(*lengths, "cpu"), lengths
    query, key, value = make_states(max(sum(query_lengths), sum(key_lengths)))
    query, key, value = query[: sum(query_lengths)], key[: sum(key_lengths)], value[: sum(key_lengths)]
    out, _, _ = PLAIN.forward(query, key, value, plan, True, SCALE)
    expected = []
    for q, k, v in zip(query.split(query_lengths), key.split(key_lengths), value.split(key_lengths), strict=True):
        k, v = (states.repeat_interleave(HEADS // KEY_HEADS, 1) for states in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * SCALE
        hidden = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
        expected.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v))
    torch.testing.assert_close(out, torch.cat(expected), rtol=1e-5, atol=1e-5)
