"""Log-probabilities and entropies of tokens straight from the last hidden states, without all logits at once.

With 151,936 words in the vocabulary, the logits of a token take more memory than the states that all layers keep of it.
Here they exist for ``ROWS`` tokens at a time, and the backward pass computes them again. Softmax, scores and the sum of
the weight's gradient are in fp32.

veRL 0.5.0 has two such kernels (``use_fused_kernels``). Measured for 32,768 tokens of Qwen3-8B's output layer in bf16
(``research/results/infrastructure.md``), its torch one takes 2.2 times as long and rounds log-probabilities to bf16:
their error is 7 times larger, and the ratio of the policies is made of them. Its Triton one takes 9.4 times as long.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

ROWS = 4096
"""Tokens whose logits exist at once: 1.2 GB in bf16 for 151,936 words."""


class TokenScores(torch.autograd.Function):
    """Log-probabilities (R,) and entropies (R,) (zeros if not wanted), in fp32, at a temperature.

    From hidden states (R, U), the output layer's weight (V, U), target tokens (R,), the temperature, whether entropies
    are wanted, and whether to compile the softmax into fused kernels.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_RU: Tensor,
        weight_VU: Tensor,
        targets_R: Tensor,
        temperature: float,
        with_entropy: bool,
        compiled: bool,
    ) -> Any:
        scores = _compiled(_scores) if compiled else _scores
        parts = [
            scores(hidden @ weight_VU.t(), targets, temperature, with_entropy)
            for hidden, targets in zip(hidden_RU.split(ROWS), targets_R.split(ROWS), strict=True)
        ]
        log_probs, normalizers, entropies = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(hidden_RU, weight_VU, targets_R, normalizers, entropies)
        ctx.settings = temperature, with_entropy, compiled
        ctx.mark_non_differentiable(*([] if with_entropy else [entropies]))
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        hidden_RU, weight_VU, *per_token = ctx.saved_tensors
        temperature, with_entropy, compiled = ctx.settings
        logits_gradient: Any = _compiled(_logits_gradient) if compiled else _logits_gradient
        grad_hidden = torch.empty_like(hidden_RU)
        grad_weight = None
        if ctx.needs_input_grad[1]:  # else it is frozen, as with LoRA
            grad_weight = torch.zeros_like(weight_VU, dtype=torch.float32)
        per_token += gradients  # of log-probabilities, of entropies
        for start in range(0, len(hidden_RU), ROWS):
            rows = slice(start, start + ROWS)
            logits = hidden_RU[rows] @ weight_VU.t()
            grad_logits = logits_gradient(logits, *(values[rows] for values in per_token), temperature, with_entropy)
            grad_hidden[rows] = grad_logits @ weight_VU
            if grad_weight is not None:
                grad_weight += grad_logits.t() @ hidden_RU[rows]
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight_VU.dtype)
        return grad_hidden, grad_weight, None, None, None, None


def _scores(logits_RV: Tensor, targets_R: Tensor, temperature: float, with_entropy: bool) -> tuple[Tensor, ...]:
    """Log-probabilities, log-sum-exps, and entropies (or zeros)."""
    scaled = logits_RV.float() / temperature
    peaks = scaled.amax(-1)
    weights = (scaled - peaks[:, None]).exp()
    totals = weights.sum(-1)
    normalizers = peaks + totals.log()
    log_probs = scaled.gather(-1, targets_R[:, None])[:, 0] - normalizers
    entropies = normalizers - (weights * scaled).sum(-1) / totals if with_entropy else torch.zeros_like(log_probs)
    return log_probs, normalizers, entropies


def _logits_gradient(
    logits_RV: Tensor,
    targets_R: Tensor,
    normalizers_R: Tensor,
    entropies_R: Tensor,
    grad_log_probs_R: Tensor,
    grad_entropies_R: Tensor,
    temperature: float,
    with_entropy: bool,
) -> Tensor:
    """The gradient with respect to the logits of the sum of both scores, each times its gradient."""
    log_probs_RV = logits_RV.float() / temperature - normalizers_R[:, None]
    slope = grad_log_probs_R[:, None]
    if with_entropy:
        slope = slope + grad_entropies_R[:, None] * (log_probs_RV + entropies_R[:, None])
    tokens_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    hit = torch.where(tokens_V == targets_R[:, None], grad_log_probs_R[:, None], 0.0)
    return ((hit - log_probs_RV.exp() * slope) / temperature).to(logits_RV.dtype)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
