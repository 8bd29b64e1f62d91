"""Attention in which the responses to a prompt share its keys and values, with FlashAttention-2's kernels.

L tokens without padding: the prompts of all groups, then all responses in the order of their prompts. Two calls with
sequences of varying length, and no key or value is ever copied:

- *alone*: each prompt and each response attends causally to itself;
- *across*: the responses of a group, as one sequence of queries, attend to all of their prompt.

A response's two results are merged by their log-sum-exp. The gradient is exact: each call's backward kernel is given
the merged output and the merged log-sum-exp, so that it recomputes the probabilities of the softmax over both.

The kernels are those that PyTorch ships (CUDA, bf16 or fp16; H query heads over J key heads, H a multiple of J). On a
CPU plain tensor operations with the same signature take their place, which need T·T memory.

Where a layer is computed again for its gradient (activation checkpointing), ``attention_kept`` spares its attention
that: output and log-sum-exp stay, 2·H·D bytes for each token of each layer in bf16, as much as a checkpoint itself.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Spans:
    """N sequences of queries, laid end to end, and of the keys that each of them sees. All on the model's device."""

    query_starts: Tensor
    """(N+1,) int32."""
    key_starts: Tensor
    """(N+1,) int32."""
    longest_query: int
    longest_key: int
    sequences_Q: Tensor
    """The sequence of each query."""
    offsets_Q: Tensor
    """Its place in that sequence."""


@dataclass(frozen=True)
class SharedPrompts:
    """Which tokens attend to which; the model hands it to each layer's attention as ``shared_prompts``."""

    prompt_tokens: int
    """Of all groups together: where the responses start."""
    alone: Spans
    across: Spans | None
    """None: there are no response tokens."""


def spans(query_lengths: list[int], key_lengths: list[int], device: Any) -> Spans:
    """Sequences of these lengths."""
    queries, keys = torch.tensor(query_lengths), torch.tensor(key_lengths)
    sequences = torch.repeat_interleave(queries)
    offsets = torch.arange(len(sequences)) - _starts(queries)[sequences]
    return Spans(
        query_starts=_starts(queries).to(device, torch.int32),
        key_starts=_starts(keys).to(device, torch.int32),
        # at least 2: kernels take sequences of one query for decoding, and lay out their log-sum-exp in another way
        longest_query=max(2, *query_lengths),
        longest_key=max(2, *key_lengths),
        sequences_Q=sequences.to(device),
        offsets_Q=offsets.to(device),
    )


def _starts(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def extend_attention(config: Any) -> None:
    """Make the attention of models of this configuration obey ``shared_prompts`` where it is given, and only there.

    Raises ``NotImplementedError`` for eager attention, which transformers offers no way to extend.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = config._attn_implementation
    if name == "eager":
        raise NotImplementedError("shared prompts exclude eager attention: take flash_attention_2 or sdpa")
    present = ALL_ATTENTION_FUNCTIONS[name]
    if not isinstance(present, _Extended):
        ALL_ATTENTION_FUNCTIONS[name] = _Extended(present)


@dataclass(frozen=True)
class _Extended:
    """An attention implementation of transformers, and shared prompts."""

    original: Any

    def __call__(self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any) -> Any:
        shared = kwargs.pop("shared_prompts", None)
        if shared is None:
            return self.original(module, query, key, value, mask, **kwargs)
        return _layer_attention(query, key, value, shared, **kwargs), None


def _layer_attention(
    query_1HLD: Tensor,
    key_1JLD: Tensor,
    value_1JLD: Tensor,
    shared: SharedPrompts,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_kwargs: Any,
) -> Tensor:
    """As transformers calls it: (1, T, H, D)."""
    if dropout or sliding_window:
        raise NotImplementedError("shared prompts need attention without dropout and without a sliding window")
    states = [states[0].transpose(0, 1) for states in (query_1HLD, key_1JLD, value_1JLD)]
    device_type = query_1HLD.device.type
    if torch.is_autocast_enabled(device_type):
        states = [states.to(torch.get_autocast_dtype(device_type)) for states in states]
    out_LHD: Any = SharedPromptAttention.apply(*states, shared, scaling)
    return out_LHD[None]


def attention_kept() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For ``torch.utils.checkpoint(..., context_fn=attention_kept)``: results of attention are not computed again."""
    kept: list[Any] = []

    def keep(compute: Callable[[], Any]) -> Any:
        out, *rest = compute()
        kept.append((out.detach(), *rest))  # autograd makes `out` itself part of this pass's graph
        return out, *rest

    return _results_by(keep), _results_by(lambda _compute: kept.pop(0))


_RESULTS: ContextVar[Callable[[Callable[[], Any]], Any]] = ContextVar("results", default=lambda compute: compute())


@contextmanager
def _results_by(source: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    token = _RESULTS.set(source)
    try:
        yield
    finally:
        _RESULTS.reset(token)


class SharedPromptAttention(torch.autograd.Function):
    """(L, H, D) from queries (L, H, D), keys and values (L, J, D), ``SharedPrompts`` and the scale of the scores."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, shared: SharedPrompts, scale: float) -> Tensor:
        kernels = FLASH if query.is_cuda else PLAIN
        p = shared.prompt_tokens

        def compute() -> tuple[Tensor, Tensor, Any]:
            out_LHD, lse_HL, rng = kernels.forward(query, key, value, shared.alone, True, scale)
            if shared.across is not None:
                seen_LHD, seen_HL, _ = kernels.forward(query[p:], key[:p], value[:p], shared.across, False, scale)
                _merge_into(out_LHD[p:], lse_HL[:, p:], seen_LHD, seen_HL)
            return out_LHD, lse_HL, rng

        out_LHD, lse_HL, rng = _RESULTS.get()(compute)
        ctx.save_for_backward(query, key, value, out_LHD, lse_HL)
        ctx.rest = kernels, shared, scale, rng
        return out_LHD

    @staticmethod
    def backward(ctx: Any, grad_LHD: Tensor) -> Any:
        query, key, value, out, lse_HL = ctx.saved_tensors
        kernels, shared, scale, rng = ctx.rest
        p = shared.prompt_tokens
        alone = kernels.backward(grad_LHD, query, key, value, out, lse_HL, rng, shared.alone, True, scale)
        if shared.across is not None:
            merged = out[p:], lse_HL[:, p:].contiguous()
            inputs = query[p:], key[:p], value[:p]
            across = kernels.backward(grad_LHD[p:], *inputs, *merged, rng, shared.across, False, scale)
            for total, places, more in zip(alone, (slice(p, None), slice(p), slice(p)), across, strict=True):
                total[places] += more
        return *alone, None, None


def _merge_into(out_LHD: Tensor, lse_HL: Tensor, other_LHD: Tensor, other_HL: Tensor) -> None:
    """Make a softmax's output and log-sum-exp those of the softmax over its keys and the other's."""
    total_HL = torch.logaddexp(lse_HL, other_HL)
    weight, other_weight = ((part - total_HL).exp().t()[..., None] for part in (lse_HL, other_HL))
    torch.addcmul(out_LHD * weight, other_LHD, other_weight, out=out_LHD)  # in fp32, rounded once
    lse_HL.copy_(total_HL)


class Kernels(NamedTuple):
    """Attention over ``Spans``; causal means aligned at the last query and the last key."""

    forward: Any
    """(query, key, value, spans, causal, scale) -> output, log-sum-exp (H, Q), state for the backward pass."""
    backward: Any
    """(grad, query, key, value, output, log-sum-exp, state, spans, causal, scale) -> the three gradients."""


def _flash_forward(query: Tensor, key: Tensor, value: Tensor, spans: Spans, causal: bool, scale: float) -> Any:
    out, lse, *rng, _ = torch.ops.aten._flash_attention_forward(
        query, key, value, *_ends(spans), 0.0, causal, False, scale=scale
    )
    padded = lse.ndim == 3  # (N, H, longest query) in torch 2.6, (H, Q) in later ones
    if padded:
        lse = lse[spans.sequences_Q, :, spans.offsets_Q].t().contiguous()
    return out, lse, (padded, rng)


def _flash_backward(*inputs: Any) -> Any:
    *tensors, lse_HQ, (padded, rng), spans, causal, scale = inputs
    lse = lse_HQ
    if padded:
        lse = lse_HQ.new_zeros(len(spans.query_starts) - 1, len(lse_HQ), spans.longest_query)
        lse[spans.sequences_Q, :, spans.offsets_Q] = lse_HQ.t()
    return torch.ops.aten._flash_attention_backward(*tensors, lse, *_ends(spans), 0.0, causal, *rng, scale=scale)


def _ends(spans: Spans) -> tuple[Tensor, Tensor, int, int]:
    return spans.query_starts, spans.key_starts, spans.longest_query, spans.longest_key


def _plain_forward(query: Tensor, key: Tensor, value: Tensor, spans: Spans, causal: bool, scale: float) -> Any:
    repeats = query.shape[1] // key.shape[1]
    scores_HQX = _scores(query, key, spans, causal, scale)
    lse_HQ = scores_HQX.logsumexp(-1)
    probabilities = (scores_HQX - lse_HQ[..., None]).exp()
    out = torch.einsum("hqk,khd->qhd", probabilities, value.float().repeat_interleave(repeats, 1))
    return out.to(query.dtype), lse_HQ, None


def _plain_backward(*inputs: Any) -> Any:
    grad, query, key, value, out, lse_HQ, _, spans, causal, scale = inputs
    repeats = query.shape[1] // key.shape[1]
    grad_QHD, query_QHD, out_QHD = grad.float(), query.float(), out.float()
    key_XHD, value_XHD = (states.float().repeat_interleave(repeats, 1) for states in (key, value))
    probabilities_HQX = (_scores(query, key, spans, causal, scale) - lse_HQ[..., None]).exp()
    grad_value = torch.einsum("hqk,qhd->khd", probabilities_HQX, grad_QHD)
    grad_probabilities = torch.einsum("qhd,khd->hqk", grad_QHD, value_XHD)
    expected_HQ = (grad_QHD * out_QHD).sum(-1).t()
    grad_scores = probabilities_HQX * (grad_probabilities - expected_HQ[..., None]) * scale
    grad_query = torch.einsum("hqk,khd->qhd", grad_scores, key_XHD)
    grad_key = torch.einsum("hqk,qhd->khd", grad_scores, query_QHD)
    by_key_head = (grad.unflatten(1, (-1, repeats)).sum(2) for grad in (grad_key, grad_value))
    return tuple(grad.to(query.dtype) for grad in (grad_query, *by_key_head))


def _scores(query: Tensor, key: Tensor, spans: Spans, causal: bool, scale: float) -> Tensor:
    """(H, Q, X), minus infinity where a query does not see a key."""
    lengths_q, lengths_k = spans.query_starts.diff(), spans.key_starts.diff()
    sequences_X = torch.repeat_interleave(lengths_k)
    places_X = torch.arange(len(sequences_X), device=key.device) - spans.key_starts[sequences_X]
    seen_QX = spans.sequences_Q[:, None] == sequences_X
    if causal:
        places_Q = spans.offsets_Q + (lengths_k - lengths_q)[spans.sequences_Q]
        seen_QX = seen_QX & (places_X <= places_Q[:, None])
    repeated = key.float().repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), repeated) * scale
    return scores.masked_fill(~seen_QX, -torch.inf)


FLASH = Kernels(_flash_forward, _flash_backward)
PLAIN = Kernels(_plain_forward, _plain_backward)
