"""How the sampler runs a Hugging Face network: its attention, and a key-value cache with room to grow.

Attention is registered under ``ATTENTION``: grouped query heads share their keys without copying them. Masks are
additive, finite and four-dimensional ``(batch, 1, queries, keys)``, so that rows of padding give numbers (never NaN)
that nothing reads. Sliding-window models are not supported.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer

ATTENTION = "cobalt_grouped"
CPU_DTYPE = torch.float64
"""Of sampling on a CPU, so that a text does not depend on its batch: which rows it has is a matter of timing.

Sums in another order change logits by 1e-14 here. In fp32 it is 1e-5, enough for another text now and then.
"""
GROWTH = 64
"""Columns that a buffer grows by at least: a decoding step then writes one column instead of copying everything."""
READING = 1.5
"""What a decoding step takes to read a prompt's columns from memory, in what it takes to multiply them for one row."""

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer."""


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class Prompts:
    """Prompts that R rows continue, each prompt in memory once for several of its rows.

    ``layers``: keys (P, kv_heads, W, head_dim) and values transposed, (P, kv_heads, head_dim, W); ``mask``: additive,
    (P, 1, 1, W); ``of_rows`` (R,): the prompt of each row, ascending. Rows attend to their prompt in one product, so a
    step reads its columns once for all of them. Each prompt has equally many places for rows. One with more rows than
    places is there several times.
    """

    def __init__(self, layers: Layers, mask: torch.Tensor, of_rows: torch.Tensor):
        rows = torch.arange(len(of_rows), device=of_rows.device)
        counts = torch.bincount(of_rows, minlength=len(mask))
        widths = torch.arange(1, int(counts.max()) + 1, device=of_rows.device)
        copies = (counts[:, None] + widths - 1) // widths  # of each prompt, with so many places
        width = int((copies.sum(0) * (widths + READING)).argmin())
        copies, self._width = copies[:, width], width + 1
        number = rows - (counts.cumsum(0) - counts)[of_rows]  # among the rows of its prompt
        self._of_rows = (copies.cumsum(0) - copies)[of_rows] + number // self._width
        self._places = number % self._width
        self._rows = rows.new_zeros(int(copies.sum()), self._width)  # in the places; any row in an empty one
        self._rows[self._of_rows, self._places] = rows
        self._is_full = self._rows.numel() == len(rows)
        source = torch.arange(len(mask), device=rows.device).repeat_interleave(copies)
        self.layers = [(keys[source], values[source]) for keys, values in layers]
        self.mask = mask[source]

    @classmethod
    def of(cls, columns: Sequence[torch.Tensor], of_rows: torch.Tensor) -> "Prompts":
        """``columns`` (layers, 2, kv_heads, length, head_dim): keys and values of each prompt."""
        layers, _, heads, _, size = columns[0].shape
        width = max(own.shape[3] for own in columns)
        keys = columns[0].new_zeros(layers, len(columns), heads, width, size)
        values = columns[0].new_zeros(layers, len(columns), heads, size, width)
        mask = columns[0].new_zeros(len(columns), 1, 1, width)
        for prompt, own in enumerate(columns):
            length = own.shape[3]
            keys[:, prompt, :, :length], values[:, prompt, ..., :length] = own[:, 0], own[:, 1].transpose(-1, -2)
            mask[prompt, ..., length:] = torch.finfo(mask.dtype).min
        return cls([*zip(keys, values, strict=True)], mask, of_rows)

    def by_prompt(self, values: torch.Tensor) -> torch.Tensor:
        """(R, kv_heads, g, X) as (prompts, kv_heads, places x g, X)."""
        in_places = values.unflatten(0, self._rows.shape) if self._is_full else values[self._rows]
        return in_places.transpose(1, 2).flatten(2, 3)

    def by_row(self, values: torch.Tensor) -> torch.Tensor:
        """The inverse."""
        in_places = values.unflatten(2, (self._width, -1)).transpose(1, 2)
        return in_places.flatten(0, 1) if self._is_full else in_places[self._of_rows, self._places]

    def select_rows(self, indices: torch.Tensor) -> "Prompts":
        """The rows ``indices``, ascending, and the prompts that they continue."""
        return Prompts(self.layers, self.mask, self._of_rows[indices])


def register() -> None:
    AttentionInterface.register(ATTENTION, grouped_attention)


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    prompts: Prompts | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """``query`` (B, heads, Q, d), ``key`` and ``value`` (B, kv_heads, K, d); returns (B, Q, heads, d).

    With ``prompts`` it is a decoding step of their rows: Q is 1, ``attention_mask`` is that of the prompts, and ``key``
    and ``value`` are those of a ``GrowingLayer``, all of which a row sees.
    """
    if prompts is None:
        groups = query.shape[1] // key.shape[1]
        output = torch.nn.functional.scaled_dot_product_attention(
            query,
            key.repeat_interleave(groups, 1),
            value.repeat_interleave(groups, 1),
            attn_mask=attention_mask,
            scale=scaling,
        )
        return output.transpose(1, 2).contiguous(), None
    # The long operand is the first of each product, and read along its rows: the other way takes a CPU twice as long.
    keys, values = prompts.layers[module.layer_idx]
    grouped = (query * scaling).unflatten(1, (key.shape[1], -1)).squeeze(3)  # (B, kv_heads, g, d)
    of_prompts = torch.matmul(keys, prompts.by_prompt(grouped).transpose(-1, -2)).transpose(-1, -2) + attention_mask
    of_own = torch.matmul(key, grouped.transpose(-1, -2)).transpose(-1, -2)
    weights = torch.cat([prompts.by_row(of_prompts), of_own], -1)
    weights = weights.softmax(-1, dtype=at_least_fp32(weights.dtype)).to(value.dtype)
    of_prompts, of_own = weights.split([keys.shape[2], key.shape[2]], -1)
    read = torch.matmul(values, prompts.by_prompt(of_prompts).transpose(-1, -2)).transpose(-1, -2)
    output = prompts.by_row(read) + torch.matmul(value, of_own.transpose(-1, -2)).transpose(-1, -2)
    return output.flatten(1, 2)[:, None], None


class GrowingLayer(DynamicLayer):
    """Columns of a decoding step's rows, as views into larger buffers: keys (batch, kv_heads, length, head_dim), and
    values transposed, (batch, kv_heads, head_dim, length).
    """

    keys: torch.Tensor
    values: torch.Tensor

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new column; returns all columns."""
        added = value_states.transpose(-1, -2)
        if not self.is_initialized:
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self._store(key_states, added)
            return self.keys, self.values
        start, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        if end > self._key_buffer.shape[2]:
            self._store(self.keys, self.values, spare=max(GROWTH, start // 2))
        self._key_buffer[:, :, start:end], self._value_buffer[..., start:end] = key_states, added
        self.keys, self.values = self._key_buffer[:, :, :end], self._value_buffer[..., :end]
        return self.keys, self.values

    def select_rows(self, indices: torch.Tensor) -> None:
        """Keep the rows ``indices``, in that order."""
        self._store(self.keys[indices], self.values[indices])

    def _store(self, keys: torch.Tensor, values: torch.Tensor, spare: int = GROWTH) -> None:
        rows, heads, length, size = keys.shape
        self._key_buffer = keys.new_empty(rows, heads, length + spare, size)
        self._value_buffer = values.new_empty(rows, heads, size, length + spare)
        self.keys, self.values = self._key_buffer[:, :, :length], self._value_buffer[..., :length]
        self.keys[:], self.values[:] = keys, values
