"""How the sampler runs a Hugging Face network: its attention, and a key-value cache with room to grow.

Attention is registered under ``ATTENTION``: grouped query heads share their keys without copying them. Masks are
additive, finite and four-dimensional ``(batch, 1, queries, keys)``, so that rows of padding give numbers (never NaN)
that nothing reads. Sliding-window models are not supported.
"""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer

ATTENTION = "cobalt_grouped"
CPU_DTYPE = torch.float64
"""Of sampling on a CPU, so that a text does not depend on its batch: which rows it has is a matter of timing.

Sums in another order change logits by 1e-14 here. In fp32 it is 1e-5, enough for another text now and then.
"""
GROWTH = 64
"""Columns that a buffer grows by at least: a decoding step then writes one column instead of copying everything."""


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def register() -> None:
    AttentionInterface.register(ATTENTION, grouped_attention)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """``query`` (B, heads, Q, d), ``key`` and ``value`` (B, kv_heads, K, d); returns (B, Q, heads, d)."""
    if query.shape[2] > 1:
        groups = query.shape[1] // key.shape[1]
        output = torch.nn.functional.scaled_dot_product_attention(
            query,
            key.repeat_interleave(groups, 1),
            value.repeat_interleave(groups, 1),
            attn_mask=attention_mask,
            scale=scaling,
        )
        return output.transpose(1, 2).contiguous(), None
    rows, heads, _queries, size = query.shape
    grouped = query.view(rows, key.shape[1], -1, size)
    weights = torch.matmul(grouped, key.transpose(-1, -2)) * scaling + attention_mask
    weights = weights.softmax(-1, dtype=at_least_fp32(weights.dtype)).to(value.dtype)
    return torch.matmul(weights, value).view(rows, 1, heads, size), None


class GrowingLayer(DynamicLayer):
    """Keys and values ``(batch, kv_heads, length, head_dim)`` as views into larger buffers."""

    keys: torch.Tensor
    values: torch.Tensor

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new columns; returns all columns."""
        if not self.is_initialized:
            self.adopt(key_states, value_states)
            return self.keys, self.values
        start, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if end > self._key_buffer.shape[2]:
            self._store(self.keys, self.values, spare=max(end - start, GROWTH, start // 2))
        self._key_buffer[:, :, start:end] = key_states
        self._value_buffer[:, :, start:end] = value_states
        self.keys, self.values = self._key_buffer[:, :, :end], self._value_buffer[:, :, :end]
        return self.keys, self.values

    def adopt(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Take these columns as the content of an empty layer."""
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._store(keys, values)

    def select_rows(self, indices: torch.Tensor) -> None:
        """Keep the rows ``indices``, in that order."""
        self._store(self.keys[indices], self.values[indices])

    def _store(self, keys: torch.Tensor, values: torch.Tensor, spare: int = GROWTH) -> None:
        rows, heads, length, size = keys.shape
        self._key_buffer, self._value_buffer = (s.new_empty(rows, heads, length + spare, size) for s in (keys, values))
        self.keys, self.values = self._key_buffer[:, :, :length], self._value_buffer[:, :, :length]
        self.keys[:], self.values[:] = keys, values


def growing_cache(layers: Iterable[tuple[torch.Tensor, torch.Tensor]] = ()) -> Cache:
    """A cache of ``GrowingLayer`` with these keys and values, or empty."""
    cache = Cache(layer_class_to_replicate=GrowingLayer)
    for keys, values in layers:
        layer = GrowingLayer()
        layer.adopt(keys, values)
        cache.layers.append(layer)
    return cache
