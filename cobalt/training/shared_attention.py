"""Attention in which the responses to a prompt share its keys and values, with FlashAttention-2's kernels.

L tokens without padding: the prompts of all groups, then all responses in the order of their prompts. Two calls with
sequences of varying length, and no key or value is ever copied:

- *alone*: each prompt and each response attends causally to itself;
- *across*: the responses of a group, as one sequence of queries, attend to all of their prompt.

A response's two results are merged by their log-sum-exp. The gradient is exact: each call's backward kernel is given
the merged output and the merged log-sum-exp, so that it recomputes the probabilities of the softmax over both.

The kernels are those that PyTorch ships (CUDA, bf16 or fp16; H query heads over J key heads, H a multiple of J).

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
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class Spans(NamedTuple):
    """N sequences of queries, laid end to end, and of the keys that each of them sees. All on the model's device.

    ``query_starts`` and ``key_starts`` (N+1,) are int32. The kernels take the first four.
    """

    query_starts: Tensor
    key_starts: Tensor
    longest_query: int
    longest_key: int
    places_Q: Tensor
    """Each query's place in N · ``longest_query``."""


@dataclass(frozen=True)
class SharedPrompts:
    """Which tokens attend to which; the model hands it to each layer's attention as ``shared_prompts``."""

    prompt_tokens: int
    """Number of prompt tokens of all groups. The responses start there."""
    alone: Spans
    across: Spans | None
    """None: there are no response tokens."""


def spans(query_lengths: list[int], key_lengths: list[int], device: Any) -> Spans:
    """Sequences of these lengths."""
    queries, keys = torch.tensor(query_lengths), torch.tensor(key_lengths)
    query_starts, key_starts = (torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]) for lengths in (queries, keys))
    # at least 2: kernels take sequences of one query for decoding, and lay out their log-sum-exp in another way
    longest_query, longest_key = max(2, *query_lengths), max(2, *key_lengths)
    sequences = torch.repeat_interleave(queries)
    places = sequences * longest_query + torch.arange(len(sequences)) - query_starts[sequences]
    query_starts, key_starts = query_starts.to(device, torch.int32), key_starts.to(device, torch.int32)
    return Spans(query_starts, key_starts, longest_query, longest_key, places.to(device))


def extend_attention(config: Any) -> None:
    """Make the attention of models of this configuration obey ``shared_prompts`` where it is given, and only there.

    Raises ``NotImplementedError`` for eager attention, which transformers offers no way to extend.
    """
    name = config._attn_implementation
    if name == "eager":
        raise NotImplementedError("shared prompts exclude eager attention: take flash_attention_2 or sdpa")
    original: Any = ALL_ATTENTION_FUNCTIONS[name]
    if hasattr(original, "shares_prompts"):
        return

    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any) -> Any:
        """The states as transformers hands them over: (1, H or J, L, D). Gives (1, L, H, D)."""
        shared = kwargs.pop("shared_prompts", None)
        if shared is None:
            return original(module, query, key, value, mask, **kwargs)
        if kwargs.get("dropout") or kwargs.get("sliding_window"):
            raise NotImplementedError("shared prompts need attention without dropout and without a sliding window")
        states = [states[0].transpose(0, 1) for states in (query, key, value)]
        device_type = query.device.type
        if torch.is_autocast_enabled(device_type):
            states = [states.to(torch.get_autocast_dtype(device_type)) for states in states]
        out_LHD: Any = SharedPromptAttention.apply(*states, shared, kwargs["scaling"])
        return out_LHD[None], None

    attention.shares_prompts = True
    ALL_ATTENTION_FUNCTIONS[name] = attention


def attention_kept() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For ``torch.utils.checkpoint(..., context_fn=attention_kept)``: results of attention are not computed again."""
    kept: list[Any] = []

    def keep(compute: Callable[[], Any]) -> Any:
        out, *rest = compute()
        kept.append((out.detach(), *rest))  # autograd makes `out` itself part of this pass's graph
        return out, *rest

    @contextmanager
    def results_by(source: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
        token = _RESULTS.set(source)
        try:
            yield
        finally:
            _RESULTS.reset(token)

    return results_by(keep), results_by(lambda _compute: kept.pop(0))


_RESULTS: ContextVar[Callable[[Callable[[], Any]], Any]] = ContextVar("results", default=lambda compute: compute())


class SharedPromptAttention(torch.autograd.Function):
    """(L, H, D) from queries (L, H, D), keys and values (L, J, D), ``SharedPrompts`` and the scale of the scores."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, shared: SharedPrompts, scale: float) -> Tensor:
        p = shared.prompt_tokens

        def compute() -> tuple[Tensor, Tensor, Any]:
            out_LHD, lse_HL, rng = varlen_forward(query, key, value, shared.alone, True, scale)
            if shared.across is not None:
                seen_LHD, seen_HL, _ = varlen_forward(query[p:], key[:p], value[:p], shared.across, False, scale)
                # the softmax over its own keys and the prompt's; in fp32, rounded once
                total_HL = torch.logaddexp(lse_HL[:, p:], seen_HL)
                own, other = ((part - total_HL).exp().t()[..., None] for part in (lse_HL[:, p:], seen_HL))
                torch.addcmul(out_LHD[p:] * own, seen_LHD, other, out=out_LHD[p:])
                lse_HL[:, p:] = total_HL
            return out_LHD, lse_HL, rng

        out_LHD, lse_HL, rng = _RESULTS.get()(compute)
        ctx.save_for_backward(query, key, value, out_LHD, lse_HL)
        ctx.rest = shared, scale, rng
        return out_LHD

    @staticmethod
    def backward(ctx: Any, grad_LHD: Tensor) -> Any:
        query, key, value, out, lse_HL = ctx.saved_tensors
        shared, scale, rng = ctx.rest
        p = shared.prompt_tokens
        alone = varlen_backward(grad_LHD, query, key, value, out, lse_HL, rng, shared.alone, True, scale)
        if shared.across is not None:
            merged = out[p:], lse_HL[:, p:].contiguous()
            inputs = query[p:], key[:p], value[:p]
            across = varlen_backward(grad_LHD[p:], *inputs, *merged, rng, shared.across, False, scale)
            for total, places, more in zip(alone, (slice(p, None), slice(p), slice(p)), across, strict=True):
                total[places] += more
        return *alone, None, None


def varlen_forward(query: Tensor, key: Tensor, value: Tensor, spans: Spans, causal: bool, scale: float) -> Any:
    """Output, log-sum-exp (H, Q), state for the backward pass. Causal: aligned at the last query and the last key."""
    out, lse, *rng, _ = torch.ops.aten._flash_attention_forward(
        query, key, value, *spans[:4], 0.0, causal, False, scale=scale
    )
    padded = lse.ndim == 3  # (N, H, longest query) in torch 2.6, (H, Q) in later ones
    if padded:
        lse = lse.transpose(0, 1).flatten(1)[:, spans.places_Q]
    return out, lse, (padded, rng)


def varlen_backward(*inputs: Any) -> Any:
    """From gradient, query, key, value, output, log-sum-exp, state, spans, causal, scale: the three gradients."""
    *tensors, lse, (padded, rng), spans, causal, scale = inputs
    if padded:
        filled = lse.new_zeros(len(lse), (len(spans.query_starts) - 1) * spans.longest_query)
        filled[:, spans.places_Q] = lse
        lse = filled.unflatten(1, (-1, spans.longest_query)).transpose(0, 1).contiguous()
    return torch.ops.aten._flash_attention_backward(*tensors, lse, *spans[:4], 0.0, causal, *rng, scale=scale)
