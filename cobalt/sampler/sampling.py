"""Sampling a batch of responses from a Hugging Face causal language model, by hand.

A row's random numbers come from its own seed, so its text depends on the other rows only through rounding. Equal
prompts are read once. Finished rows are handed over at once and dropped from the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cobalt.sampler.network import GrowingLayer
from cobalt.sampler.prompts import Prefix, Prompt, read_prompts

COMPACT_AT = 0.8  # share of active rows below which the finished ones are dropped


@dataclass(frozen=True)
class Row:
    """One response to sample: token ids of the prompt, at most ``max_new`` tokens."""

    prompt: tuple[int, ...]
    max_new: int
    temperature: float
    top_p: float
    seed: int
    known: Prefix | None = None
    """What an earlier turn left of the prompt's beginning; the same for equal prompts."""


OnFinished = Callable[[int, list[int], int | None], None]
"""Takes a row's index, its tokens without the end token, and that one, or None where there was no room for it."""

OnRead = Callable[[Prefix], None]
"""Takes the columns of each distinct prompt."""


@torch.inference_mode()
def sample_batch(
    model: Any,
    rows: Sequence[Row],
    end_tokens: set[int],
    on_finished: OnFinished,
    on_read: OnRead = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Sample all ``rows``; return early once ``stopped()``. ``model`` must use ``cobalt.sampler.network.ATTENTION``."""
    state = _State(model, rows, on_read)
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
                on_finished(index, tokens_of[index], token if token in end_tokens else None)
        if not active or stopped():
            return
        if len(active) < COMPACT_AT * len(places):
            kept = torch.tensor([place for place, index in enumerate(places) if index in active], device=tokens.device)
            places = [index for index in places if index in active]
            tokens = tokens[kept]
            state.keep(kept)
        state.advance(tokens)


class _State:
    """Tensors of a batch of B rows: cache, mask over its columns, logits of the next token."""

    def __init__(self, model: Any, rows: Sequence[Row], on_read: OnRead):
        self.model, device = model, model.device
        prompts = [Prompt(row.prompt, row.known) for row in {row.prompt: row for row in rows}.values()]
        prompts.sort(key=lambda prompt: len(prompt.tokens))
        read = read_prompts(model, prompts, lambda prompt, columns: on_read(Prefix(prompt.tokens, columns)))
        self.cache, self.mask, self.logits = read.cache, read.mask, read.logits
        self.positions = torch.tensor([len(prompt.tokens) for prompt in prompts], device=device)
        place = {prompt.tokens: number for number, prompt in enumerate(prompts)}
        self._select(torch.tensor([place[row.prompt] for row in rows], device=device))
        self.temperature = torch.tensor([row.temperature for row in rows], device=device)
        self.top_p = torch.tensor([row.top_p for row in rows], device=device)
        longest = max(row.max_new for row in rows)
        draws = [np.random.default_rng(row.seed).random(longest, dtype=np.float32) for row in rows]
        self.uniforms = torch.from_numpy(np.stack(draws)).to(device)
        self.step = 0

    def _select(self, places: torch.Tensor) -> None:
        for layer in self.cache.layers:
            assert isinstance(layer, GrowingLayer)
            layer.select_rows(places)
        self.mask, self.logits, self.positions = self.mask[places], self.logits[places], self.positions[places]

    def keep(self, places: torch.Tensor) -> None:
        """Drop all rows but those in ``places``."""
        self._select(places)
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
