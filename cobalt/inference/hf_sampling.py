"""Sampling a batch of responses from a Hugging Face causal language model, by hand.

A row's random numbers come from its own seed, so its text depends on the other rows only through rounding. Equal
prompts are read once. Finished rows are handed over at once and dropped from the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from cobalt.inference.hf_cache import GrowingLayer, growing_cache

PREFILL_TOKENS = {"cpu": 1 << 13, "cuda": 1 << 16}
COMPACT_AT = 0.8  # share of active rows below which the finished ones are dropped


@dataclass(frozen=True)
class Row:
    """One response to sample: token ids of the prompt, at most ``max_new`` tokens."""

    prompt: tuple[int, ...]
    max_new: int
    temperature: float
    top_p: float
    seed: int


OnFinished = Callable[[int, list[int], bool], None]
"""Takes a row's index, its tokens without the end token, and whether it ended by itself."""


@torch.inference_mode()
def sample_batch(model: Any, rows: Sequence[Row], end_tokens: set[int], on_finished: OnFinished) -> None:
    """Sample all ``rows`` from ``model``, which must use ``hf_attention``."""
    state = _State(model, rows)
    tokens_of: list[list[int]] = [[] for _ in rows]
    places = list(range(len(rows)))  # the row in each place of the tensors
    active = set(places)
    while True:
        tokens = state.sample()
        for index, token in zip(places, tokens.tolist(), strict=True):
            if index not in active:
                continue
            if token not in end_tokens:
                tokens_of[index].append(token)
            if token in end_tokens or len(tokens_of[index]) >= rows[index].max_new:
                active.remove(index)
                on_finished(index, tokens_of[index], token in end_tokens)
        if not active:
            return
        if len(active) < COMPACT_AT * len(places):
            kept = torch.tensor([place for place, index in enumerate(places) if index in active], device=tokens.device)
            places = [index for index in places if index in active]
            tokens = tokens[kept]
            state.keep(kept)
        state.advance(tokens)


class _State:
    """Tensors of a batch of B rows: cache, mask over its columns, logits of the next token."""

    def __init__(self, model: Any, rows: Sequence[Row]):
        self.model, self.device, self.dtype = model, model.device, model.dtype
        prompts = sorted({row.prompt for row in rows}, key=len)
        place = {prompt: number for number, prompt in enumerate(prompts)}
        self.cache, self.mask, self.logits = self._read_prompts(prompts)
        self.positions = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        self.temperature = torch.tensor([row.temperature for row in rows], device=self.device)
        self.top_p = torch.tensor([row.top_p for row in rows], device=self.device)
        longest = max(row.max_new for row in rows)
        draws = [np.random.default_rng(row.seed).random(longest, dtype=np.float32) for row in rows]
        self.uniforms = torch.from_numpy(np.stack(draws)).to(self.device)
        self.step = 0
        self._select_prompts(torch.tensor([place[row.prompt] for row in rows], device=self.device))

    def _read_prompts(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Cache, torch.Tensor, torch.Tensor]:
        """Left-padded prompts, sorted by length, a bounded number of tokens at a time."""
        width = len(prompts[-1])
        rows_at_once = max(1, PREFILL_TOKENS[self.device.type] // width)
        parts = [
            self._read_part(prompts[start : start + rows_at_once], width)
            for start in range(0, len(prompts), rows_at_once)
        ]
        cache = growing_cache()
        for layers in zip(*(part[0].layers for part in parts), strict=True):
            layer = GrowingLayer()
            layer.adopt(torch.cat([part.keys for part in layers]), torch.cat([part.values for part in layers]))
            cache.layers.append(layer)
        return cache, torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])

    def _read_part(self, prompts: Sequence[tuple[int, ...]], width: int) -> tuple[Cache, torch.Tensor, torch.Tensor]:
        padded = torch.tensor([(0,) * (width - len(prompt)) + prompt for prompt in prompts], device=self.device)
        pads = torch.tensor([width - len(prompt) for prompt in prompts], device=self.device)[:, None]
        columns = torch.arange(width, device=self.device)
        visible = columns >= pads
        causal = columns[:, None] >= columns
        cache = growing_cache()
        logits = self.model(
            input_ids=padded,
            attention_mask=self._additive(visible[:, None, None] & causal),
            position_ids=(columns - pads).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, 0]
        return cache, self._additive(visible[:, None, None]), logits

    def _additive(self, visible: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(~visible, torch.finfo(self.dtype).min)

    def _select_prompts(self, places: torch.Tensor) -> None:
        for layer in self.cache.layers:
            assert isinstance(layer, GrowingLayer)
            layer.select_rows(places)
        self.mask, self.logits, self.positions = self.mask[places], self.logits[places], self.positions[places]

    def keep(self, places: torch.Tensor) -> None:
        """Drop all rows but those in ``places``."""
        self._select_prompts(places)
        self.temperature, self.top_p = self.temperature[places], self.top_p[places]
        self.uniforms = self.uniforms[places]

    def sample(self) -> torch.Tensor:
        """One token per row, shape (B,)."""
        return sample_tokens(self.logits, self.temperature, self.top_p, self.uniforms[:, self.step])

    def advance(self, tokens: torch.Tensor) -> None:
        """Read ``tokens`` and compute the next logits."""
        self.mask = torch.nn.functional.pad(self.mask, (0, 1))
        self.logits = self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask,
            position_ids=self.positions[:, None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, 0]
        self.positions = self.positions + 1
        self.step += 1


def sample_tokens(
    logits: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor, uniforms: torch.Tensor
) -> torch.Tensor:
    """Nucleus sampling by inverting the cumulative distribution; temperature 0 takes the most probable token.

    ``logits`` (B, vocabulary); the others (B,), ``uniforms`` in [0, 1). Returns token ids (B,).
    """
    greedy = temperature == 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperature)[:, None]
    probabilities, order = torch.sort(scaled.softmax(-1), dim=-1, descending=True, stable=True)
    before = probabilities.cumsum(-1) - probabilities
    kept = before < top_p[:, None]
    cumulative = torch.where(kept, probabilities, 0).cumsum(-1)
    chosen = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(-1)
    chosen = torch.minimum(chosen, kept.sum(-1) - 1).masked_fill(greedy, 0)
    return order.gather(-1, chosen[:, None])[:, 0]
