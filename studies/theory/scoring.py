"""How likely each token of a given response was: one pass over prompt and response together.

Rows are padded on the right, where a causal network needs no mask against padding. Shapes: B rows, L tokens of the
longest response, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cobalt.sampler.prompts import PREFILL_TOKENS, additive_mask

LOGITS = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Held at once for one network: bounds the memory of scoring."""

Scored = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of the response to it."""


@torch.inference_mode()
def response_log_probs(model: Any, rows: Sequence[Scored], temperature: float) -> torch.Tensor:
    """Log-probabilities (B, L, V) of every token at each place of the responses, at ``temperature``, in fp32.

    ``model`` must use ``network.ATTENTION``. Places beyond a row's response hold numbers that mean nothing.
    """
    device = model.device
    starts = torch.tensor([len(prompt) for prompt, _ in rows], device=device)
    longest = max(len(response) for _, response in rows)
    width = max(len(prompt) + len(response) for prompt, response in rows)
    columns = torch.arange(width, device=device)
    first = int(starts.min()) - 1  # the prompt's last token gives the response's first
    logits = model(
        input_ids=torch.tensor([_padded(prompt, response, width) for prompt, response in rows], device=device),
        attention_mask=additive_mask((columns[:, None] >= columns)[None, None], model.dtype),
        use_cache=False,
        logits_to_keep=width - first,
    ).logits
    places = starts[:, None] - 1 - first + torch.arange(longest, device=device)
    chosen = logits[torch.arange(len(rows), device=device)[:, None], places.clamp(max=logits.shape[1] - 1)]
    return (chosen.float() / temperature).log_softmax(-1)


def _padded(prompt: Sequence[int], response: Sequence[int], width: int) -> list[int]:
    return [*prompt, *response, *[0] * (width - len(prompt) - len(response))]


def scoring_batches(rows: Sequence[Scored], device: str, vocabulary: int) -> Iterator[list[int]]:
    """Indices of ``rows`` in batches of similar length, each small enough for ``device``."""
    left = sorted(range(len(rows)), key=lambda index: len(rows[index][0]) + len(rows[index][1]), reverse=True)
    while left:
        prompt, response = rows[left[0]]
        tokens = len(prompt) + len(response)
        size = max(1, min(PREFILL_TOKENS[device] // tokens, LOGITS[device] // (tokens * vocabulary)))
        yield left[:size]
        left = left[size:]
