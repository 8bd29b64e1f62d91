"""Attention in which rows share the keys and values of what they have in common, with FlashAttention's kernels.

L tokens without padding, in the segments of a tree: what several rows begin with stands above what they go on with.
One call with sequences of varying length for each level of the tree and one more, and no key or value is ever copied:

- *alone*: each segment attends causally to itself;
- for each level: what stands below a segment of this level, as one sequence of queries, attends to all of it.

A token's results are merged by their log-sum-exp. The gradient is exact: each call's backward kernel is given the
merged output and the merged log-sum-exp, so that it recomputes the probabilities of the softmax over all keys.

The kernels are FlashAttention-2's that PyTorch ships (CUDA, bf16 or fp16; H query heads over J key heads, H a multiple
of J). On Hopper's and Blackwell's GPUs they are FlashAttention-4's, which vLLM and SGLang bring.

Where a layer is computed again for its gradient (activation checkpointing), ``attention_kept`` spares its attention
that: output and log-sum-exp stay, 2·H·D bytes for each token of each layer in bf16, as much as a checkpoint itself.
With FlashAttention-4 that is more memory than it is worth: at 4B, 15 GB for 1.6 of 81 s.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class Spans(NamedTuple):
    """N sequences of queries, laid end to end, and of the keys that each of them sees. All on the model's device.

    ``query_starts`` and ``key_starts`` (N+1,) are int32.
    """

    query_starts: Tensor
    key_starts: Tensor
    longest_query: int
    longest_key: int


class Segment(NamedTuple):
    """Tokens ``start`` to ``end`` of L. What stands below them is ``first`` to ``last``, all of it together."""

    level: int
    start: int
    end: int
    first: int
    last: int


class Level(NamedTuple):
    """The segments of a level as keys, and all that stands below them as queries: ranges of L."""

    queries: slice
    keys: slice
    spans: Spans


@dataclass(frozen=True)
class SharedPrompts:
    """Which tokens attend to which; the model hands it to each layer's attention as ``shared_prompts``."""

    alone: Spans
    levels: tuple[Level, ...]
    """From the top. A level's queries are among those of the level above."""

    @classmethod
    def of(cls, segments: Sequence[Segment], device: Any) -> "SharedPrompts":
        """Made of a tree's segments in the order of L. A level's segments come in the order of what is below them."""
        lengths, levels = [segment.end - segment.start for segment in segments], []
        above = [segment for segment in segments if segment.last > segment.first]
        for level in sorted({segment.level for segment in above}):
            nodes = [segment for segment in above if segment.level == level]
            pairs = [(nodes[0].last - nodes[0].first, nodes[0].end - nodes[0].start)]
            for before, node in pairwise(nodes):
                # what lies between them are queries without keys, and keys without queries
                pairs += [(node.first - before.last, 0), (0, node.start - before.end)]
                pairs += [(node.last - node.first, node.end - node.start)]
            asking, looked_at = map(list, zip(*filter(any, pairs), strict=True))
            queries, keys = slice(nodes[0].first, nodes[-1].last), slice(nodes[0].start, nodes[-1].end)
            levels.append(Level(queries, keys, spans(asking, looked_at, device)))
        return cls(spans(lengths, lengths, device), tuple(levels))


def spans(query_lengths: list[int], key_lengths: list[int], device: Any) -> Spans:
    """Sequences of these lengths."""
    queries, keys = torch.tensor(query_lengths), torch.tensor(key_lengths)
    query_starts, key_starts = (torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]) for lengths in (queries, keys))
    # at least 2: kernels take sequences of one query for decoding, and lay out their log-sum-exp in another way
    longest_query, longest_key = max(2, *query_lengths), max(2, *key_lengths)
    query_starts, key_starts = query_starts.to(device, torch.int32), key_starts.to(device, torch.int32)
    return Spans(query_starts, key_starts, longest_query, longest_key)


def extend_attention(config: Any) -> None:
    """Make the attention of models of this configuration obey ``shared_prompts`` where it is given, and only there.

    Raises ``NotImplementedError`` for eager attention, which transformers offers no way to extend.
    """
    name = config._attn_implementation
    if name == "eager":
        raise NotImplementedError("shared prompts exclude eager attention: take flash_attention_2 or sdpa")
    if shares_prompts(config):
        return
    original: Any = ALL_ATTENTION_FUNCTIONS[name]

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

    attention.shares_prompts = True  # pyright: ignore[reportFunctionMemberAccess] - a mark for ``shares_prompts``
    ALL_ATTENTION_FUNCTIONS[name] = attention


def shares_prompts(config: Any) -> bool:
    """Whether the attention of models of this configuration obeys ``shared_prompts``."""
    return hasattr(ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation), "shares_prompts")


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
        def compute() -> tuple[Tensor, Tensor, Any]:
            out_LHD, lse_HL, rng = varlen_forward(query, key, value, shared.alone, True, scale)
            if not shared.levels:
                return out_LHD, lse_HL, rng
            own_HL, parts = lse_HL.clone(), []
            for at, keys, of_level in shared.levels:
                seen_LHD, seen_HL, _ = varlen_forward(query[at], key[keys], value[keys], of_level, False, scale)
                seen_HL = seen_HL.masked_fill(seen_HL == torch.inf, -torch.inf)  # the kernel's answer without keys
                lse_HL[:, at] = torch.logaddexp(lse_HL[:, at], seen_HL)
                parts.append((at, seen_LHD, seen_HL))
            # the softmax over all keys; in fp32, rounded once
            sums_LHD, ((top, top_LHD, top_HL), *deeper) = out_LHD * share(own_HL, lse_HL), parts
            for at, seen_LHD, seen_HL in deeper:
                sums_LHD[at].addcmul_(seen_LHD, share(seen_HL, lse_HL[:, at]))
            torch.addcmul(sums_LHD[top], top_LHD, share(top_HL, lse_HL[:, top]), out=out_LHD[top])
            return out_LHD, lse_HL, rng

        out_LHD, lse_HL, rng = _RESULTS.get()(compute)
        ctx.save_for_backward(query, key, value, out_LHD, lse_HL)
        ctx.rest = shared, scale, rng
        return out_LHD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (grad_LHD,) = gradients
        query, key, value, out, lse_HL = ctx.saved_tensors
        shared, scale, rng = ctx.rest
        alone = varlen_backward(grad_LHD, query, key, value, out, lse_HL, rng, shared.alone, True, scale)
        for at, keys, of_level in shared.levels:
            inputs = grad_LHD[at], query[at], key[keys], value[keys], out[at], lse_HL[:, at].contiguous()
            of_keys = varlen_backward(*inputs, rng, of_level, False, scale)
            for total, span, more in zip(alone, (at, keys, keys), of_keys, strict=True):
                total[span] += more
        return *alone, None, None


def share(part_HL: Tensor, total_HL: Tensor) -> Tensor:
    """(L, H, 1): the share of a softmax that has this part of its log-sum-exp."""
    return (part_HL - total_HL).exp().t()[..., None]


def varlen_forward(query: Tensor, key: Tensor, value: Tensor, spans: Spans, causal: bool, scale: float) -> Any:
    """Output, log-sum-exp (H, Q), state for the backward pass. Causal: aligned at the last query and the last key."""
    if (newer := newer_kernels()) is not None:
        out, lse = newer._flash_attn_fwd(query, key, value, **newer_settings(spans, causal, scale), return_lse=True)
        return out, lse, None
    out, lse, *rng, _ = torch.ops.aten._flash_attention_forward(
        query, key, value, *spans, 0.0, causal, False, scale=scale
    )
    return out, lse, rng


def varlen_backward(*inputs: Any) -> Any:
    """From gradient, query, key, value, output, log-sum-exp, state, spans, causal, scale: the three gradients."""
    *tensors, lse, state, spans, causal, scale = inputs
    if (newer := newer_kernels()) is not None:
        grad, *rest = tensors
        zeros = {name: torch.zeros_like(of) for name, of in zip(("dq", "dk", "dv"), rest[:3], strict=True)}
        return newer._flash_attn_bwd(*rest, grad, lse, **newer_settings(spans, causal, scale), **zeros)
    return torch.ops.aten._flash_attention_backward(*tensors, lse, *spans, 0.0, causal, *state, scale=scale)


@cache
def newer_kernels() -> Any:
    """The module of FlashAttention-4, whose kernels are compiled when they are first called; or None."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] not in (9, 10):
        return None
    missing = []
    for package in ("vllm.vllm_flash_attn", "flash_attn"):  # vLLM's own copy; flash-attn-4, which SGLang depends on
        try:
            return import_module(f"{package}.cute.interface")
        except ImportError as error:  # another engine's, or an installation without what these kernels need
            missing.append(str(error))
    print(f"cobalt: shared attention with FlashAttention-2, for FlashAttention-4 cannot be imported: {missing}")
    return None


def newer_settings(spans: Spans, causal: bool, scale: float) -> dict[str, Any]:
    """Arguments of both passes."""
    return {
        "cu_seqlens_q": spans.query_starts,
        "cu_seqlens_k": spans.key_starts,
        "max_seqlen_q": spans.longest_query,
        "max_seqlen_k": spans.longest_key,
        "softmax_scale": scale,
        "causal": causal,
    }
