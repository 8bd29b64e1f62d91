"""Log-probabilities and entropies of tokens straight from the last hidden states, without all logits at once.

With 151,936 words in the vocabulary, the logits of a token take more memory than the states that all layers keep of it.
Here they exist for ``ROWS`` tokens at a time; the backward pass computes them again. Softmax in fp32 throughout.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

ROWS = 4096
"""Tokens whose logits exist at once: 1.2 GB in bf16 for 151,936 words."""


class TokenScores(torch.autograd.Function):
    """Log-probabilities (K,) and entropies (K,) (or None), in fp32, at a temperature.

    From hidden states (K, C), the output layer's weight (V, C), target tokens (K,), the temperature, whether entropies
    are wanted, and whether to compile the softmax into fused kernels.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KC: Tensor,
        weight_VC: Tensor,
        targets_K: Tensor,
        temperature: float,
        with_entropy: bool,
        compiled: bool,
    ) -> Any:
        scores = _compiled(_scores) if compiled else _scores
        parts = [
            scores(hidden @ weight_VC.t(), targets, temperature, with_entropy)
            for hidden, targets in zip(hidden_KC.split(ROWS), targets_K.split(ROWS), strict=True)
        ]
        log_probs, normalizers, entropies = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(hidden_KC, weight_VC, targets_K, normalizers, entropies)
        ctx.settings = temperature, with_entropy, compiled
        ctx.mark_non_differentiable(*([] if with_entropy else [entropies]))
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, grad_log_probs_K: Tensor, grad_entropies_K: Tensor) -> Any:
        hidden_KC, weight_VC, *per_token = ctx.saved_tensors
        temperature, with_entropy, compiled = ctx.settings
        logits_gradient: Any = _compiled(_logits_gradient) if compiled else _logits_gradient
        grad_hidden = torch.empty_like(hidden_KC)
        grad_weight = torch.zeros_like(weight_VC, dtype=torch.float32)
        per_token += [grad_log_probs_K, grad_entropies_K]
        for rows in _chunks(len(hidden_KC)):
            logits = hidden_KC[rows] @ weight_VC.t()
            chunk = [values[rows] for values in per_token]
            grad_logits = logits_gradient(logits, *chunk, temperature, with_entropy)
            grad_hidden[rows] = grad_logits @ weight_VC
            grad_weight += grad_logits.t() @ hidden_KC[rows]
        return grad_hidden, grad_weight.to(weight_VC.dtype), None, None, None, None


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + ROWS) for start in range(0, count, ROWS)]


def _scores(logits_KV: Tensor, targets_K: Tensor, temperature: float, with_entropy: bool) -> tuple[Tensor, ...]:
    """Log-probabilities, log-sum-exps, and entropies (or nothing in particular)."""
    scaled = logits_KV.float() / temperature
    peaks = scaled.amax(-1)
    weights = (scaled - peaks[:, None]).exp()
    totals = weights.sum(-1)
    normalizers = peaks + totals.log()
    log_probs = scaled.gather(-1, targets_K[:, None])[:, 0] - normalizers
    entropies = normalizers - (weights * scaled).sum(-1) / totals if with_entropy else torch.zeros_like(log_probs)
    return log_probs, normalizers, entropies


def _logits_gradient(
    logits_KV: Tensor,
    targets_K: Tensor,
    normalizers_K: Tensor,
    entropies_K: Tensor,
    grad_log_probs_K: Tensor,
    grad_entropies_K: Tensor,
    temperature: float,
    with_entropy: bool,
) -> Tensor:
    """The gradient with respect to the logits of the sum of both scores, each times its gradient."""
    log_probs_KV = logits_KV.float() / temperature - normalizers_K[:, None]
    slope = grad_log_probs_K[:, None]
    if with_entropy:
        slope = slope + grad_entropies_K[:, None] * (log_probs_KV + entropies_K[:, None])
    places = torch.arange(logits_KV.shape[1], device=logits_KV.device)
    hit = torch.where(places == targets_K[:, None], grad_log_probs_K[:, None], 0.0)
    return ((hit - log_probs_KV.exp() * slope) / temperature).to(logits_KV.dtype)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
