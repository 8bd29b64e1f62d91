"""Sampling a batch of responses from a Hugging Face causal language model, by hand.

A row's random numbers come from its own seed, so its text depends on the other rows only through rounding. Equal
prompts are read once. Finished rows are handed over at once and dropped from the batch.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from cobalt.sampler.network import GrowingLayer, Prompts, at_least_fp32
from cobalt.sampler.prompts import Prefix, Row, read_prompts

COMPACT_AT = 0.8  # share of active rows below which the finished ones are dropped


@torch.inference_mode()
def sample_batch(
    model: Any,
    rows: Sequence[Row],
    end_tokens: set[int],
    on_finished: Callable[[int, list[int], int | None], None],
    on_read: Callable[[Prefix], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Sample all ``rows``; return early once ``stopped()``. ``model`` must use ``cobalt.sampler.network.ATTENTION``.

    ``on_finished`` gets a row's index, its tokens without the end token, and the end token. That one is None if the row
    was cut at its ``max_new`` tokens. ``on_read`` gets the columns of each distinct prompt.
    """
    device = model.device
    distinct = [*{row.prompt: row for row in rows}.values()]
    columns, last = read_prompts(model, distinct, on_read)

    # Each line of these tensors is a row of ``rows``; ``lines`` says which. Those of a prompt are neighbours. Some rows
    # have finished.
    place = {row.prompt: number for number, row in enumerate(distinct)}
    lines = sorted(range(len(rows)), key=lambda index: place[rows[index].prompt])
    of_lines = [rows[index] for index in lines]
    prompt_of = torch.tensor([place[row.prompt] for row in of_lines], device=device)
    prompts, logits = Prompts.of(columns, prompt_of), last[prompt_of]
    cache: Any = Cache(layer_class_to_replicate=GrowingLayer)
    positions = torch.tensor([len(row.prompt) for row in of_lines], device=device)
    temperature = torch.tensor([row.temperature for row in of_lines], device=device)
    top_p = torch.tensor([row.top_p for row in of_lines], device=device)
    longest = max(row.max_new for row in rows)
    draws = [np.random.default_rng(row.seed).random(longest, dtype=np.float32) for row in of_lines]
    uniforms = torch.from_numpy(np.stack(draws)).to(device)

    tokens_of: list[list[int]] = [[] for _ in rows]
    active = set(lines)
    for step in itertools.count():
        tokens = sample_tokens(logits, temperature, top_p, uniforms[:, step])
        for index, token in zip(lines, tokens.tolist(), strict=True):
            if index not in active:
                continue
            if token not in end_tokens:
                tokens_of[index].append(token)
            if token in end_tokens or len(tokens_of[index]) >= rows[index].max_new:
                active.remove(index)
                on_finished(index, tokens_of[index], token if token in end_tokens else None)
        if not active or stopped():
            return
        if len(active) < COMPACT_AT * len(lines):
            kept = torch.tensor([line for line, index in enumerate(lines) if index in active], device=device)
            lines = [index for index in lines if index in active]
            for layer in cache.layers:
                layer.select_rows(kept)
            prompts, tokens, positions = prompts.select_rows(kept), tokens[kept], positions[kept]
            temperature, top_p, uniforms = temperature[kept], top_p[kept], uniforms[kept]
        logits = model(
            input_ids=tokens[:, None],
            prompts=prompts,
            attention_mask=prompts.mask,
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
        ).logits[:, 0]
        positions = positions + 1


def sample_tokens(
    logits: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor, uniforms: torch.Tensor
) -> torch.Tensor:
    """Nucleus sampling by inverting the cumulative distribution; temperature 0 takes the most probable token.

    ``logits`` (B, vocabulary); the others (B,), ``uniforms`` in [0, 1). Returns token ids (B,).
    """
    greedy = temperature == 0
    scaled = logits.to(at_least_fp32(logits.dtype)) / torch.where(greedy, 1.0, temperature)[:, None]
    probabilities, order = torch.sort(scaled.softmax(-1), dim=-1, descending=True, stable=True)
    before = probabilities.cumsum(-1) - probabilities
    kept = before < top_p[:, None]
    cumulative = torch.where(kept, probabilities, 0).cumsum(-1)
    chosen = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(-1)
    chosen = torch.minimum(chosen, kept.sum(-1) - 1).masked_fill(greedy, 0)
    return order.gather(-1, chosen[:, None])[:, 0]
