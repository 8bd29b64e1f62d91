"""A key-value cache with room to grow: a decoding step writes one column instead of copying everything."""

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

GROWTH = 64


class GrowingLayer(DynamicLayer):
    """Keys and values ``(batch, kv_heads, length, head_dim)`` as views into larger buffers."""

    keys: torch.Tensor
    values: torch.Tensor

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, cache_kwargs: dict[str, Any] | None = None
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
        self.lazy_initialization(keys)
        self._store(keys, values)

    def select_rows(self, places: torch.Tensor) -> None:
        """Keep the rows ``places``, in that order."""
        self._store(self.keys[places], self.values[places])

    def _store(self, keys: torch.Tensor, values: torch.Tensor, spare: int = GROWTH) -> None:
        self._key_buffer, self._value_buffer = _with_room(keys, spare), _with_room(values, spare)
        length = keys.shape[2]
        self.keys, self.values = self._key_buffer[:, :, :length], self._value_buffer[:, :, :length]


def _with_room(states: torch.Tensor, spare: int) -> torch.Tensor:
    rows, heads, length, size = states.shape
    buffer = states.new_empty(rows, heads, length + spare, size)
    buffer[:, :, :length] = states
    return buffer


def growing_cache() -> Cache:
    """An empty cache of ``GrowingLayer``."""
    return Cache(layer_class_to_replicate=GrowingLayer)
