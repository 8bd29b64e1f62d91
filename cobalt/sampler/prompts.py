"""Reading prompts: token ids become keys and values. What an earlier turn has read is kept.

Rows are padded on the left. A part of a prompt that an earlier turn has read (a ``Prefix``) has its columns first. Then
come the new ones. Each of the two blocks is padded on its own left, so columns of padding may lie between them.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

STORE_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}
"""Most bytes of keys and values that are kept between turns."""
PREFILL_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 16}
"""Most tokens that are read in one pass, padding included. On a CPU more are slower: they do not fit into its cache."""


@dataclass(frozen=True)
class Prefix:
    """``columns`` (layers, 2, kv_heads, length, head_dim): keys and values of ``tokens``."""

    tokens: tuple[int, ...]
    columns: torch.Tensor

    def common_with(self, prompt: tuple[int, ...]) -> "Prefix":
        """The part shared with ``prompt``, without the prompt's last token: that one is always read."""
        pairs = zip(self.tokens, prompt[:-1], strict=False)
        length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return Prefix(self.tokens[:length], self.columns[:, :, :, :length])


class PrefixStore:
    """Prefixes by key, the least recently used dropped beyond ``most_bytes``. Used by several threads."""

    def __init__(self, most_bytes: int):
        self._most_bytes = most_bytes
        self._bytes = 0
        self._prefixes: OrderedDict[Hashable, Prefix] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Prefix | None:
        with self._lock:
            if key in self._prefixes:
                self._prefixes.move_to_end(key)
            return self._prefixes.get(key)

    def put(self, key: Hashable, prefix: Prefix) -> None:
        """Store ``prefix``, unless there is one already."""
        with self._lock:
            if key in self._prefixes:
                return
            self._prefixes[key] = prefix
            self._bytes += prefix.columns.nbytes
            while self._bytes > self._most_bytes:
                _, dropped = self._prefixes.popitem(last=False)
                self._bytes -= dropped.columns.nbytes


@dataclass(frozen=True)
class Row:
    """One response to sample: token ids of the prompt, at most ``max_new`` tokens."""

    prompt: tuple[int, ...]
    max_new: int
    temperature: float
    top_p: float
    seed: int
    known: Prefix | None = None
    """Keys and values of the prompt's beginning, from an earlier turn: these tokens are not read again.

    Equal prompts have the same.
    """

    @property
    def known_length(self) -> int:
        """Tokens of the prompt that are known."""
        return len(self.known.tokens) if self.known else 0

    @property
    def new_length(self) -> int:
        """Tokens of the prompt to be read."""
        return len(self.prompt) - self.known_length


def read_prompts(
    model: Any, rows: Sequence[Row], on_read: Callable[[Prefix], None]
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The columns of each prompt, as in ``Prefix``, and logits (P, vocabulary).

    A bounded number of tokens is read at a time, of prompts of similar length. ``on_read`` gets each prompt's columns.
    """
    most = PREFILL_TOKENS[model.device.type]
    parts: list[list[int]] = [[]]
    for index in sorted(range(len(rows)), key=lambda index: rows[index].new_length):
        if parts[-1] and (len(parts[-1]) + 1) * rows[index].new_length > most:
            parts.append([])
        parts[-1].append(index)
    columns, logits = {}, {}
    for part in parts:
        for index, own, last in zip(part, *_read_part(model, [rows[index] for index in part]), strict=True):
            columns[index], logits[index] = own, last
            on_read(Prefix(rows[index].prompt, own))
    in_order = range(len(rows))
    return [columns[index] for index in in_order], torch.stack([logits[index] for index in in_order])


def _read_part(model: Any, rows: Sequence[Row]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """One pass of the network."""
    device, dtype = model.device, model.dtype
    known_width, width = max(row.known_length for row in rows), max(row.new_length for row in rows)
    known = torch.tensor([row.known_length for row in rows], device=device)[:, None]
    new = torch.tensor([row.new_length for row in rows], device=device)[:, None]
    columns = torch.arange(width, device=device)
    is_known = torch.arange(known_width, device=device) >= known_width - known
    is_new = columns >= width - new
    causal = columns[:, None] >= columns
    # Keys are (known block, new block). Every new token sees all known ones, which come before it in the text, and the
    # new ones up to itself. Queries that are padding see padding only: finite numbers come out, and nothing reads them.
    visible = torch.cat([is_known[:, None].expand(-1, width, -1), is_new[:, None] & causal], -1)
    cache: Any = Cache(layer_class_to_replicate=DynamicLayer)
    if known_width:
        some = next(row.known.columns for row in rows if row.known)
        layers, _, heads, _, size = some.shape
        block = some.new_zeros(layers, 2, len(rows), heads, known_width, size)
        for place, row in enumerate(rows):
            if row.known:
                block[:, :, place, :, known_width - row.known_length :] = row.known.columns
        for layer, (keys, values) in enumerate(block):
            cache.update(keys, values, layer)
    padded = [(0,) * (width - row.new_length) + row.prompt[row.known_length :] for row in rows]
    logits = model(
        input_ids=torch.tensor(padded, device=device),
        attention_mask=additive_mask(visible[:, None], dtype),
        position_ids=(columns - width + known + new).clamp(min=0),  # the last column is the prompt's last token
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, 0]
    read = torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])
    own = torch.cat([is_known, is_new], -1)  # without columns of padding
    return [read[:, :, place].index_select(-2, kept.nonzero()[:, 0]) for place, kept in enumerate(own)], logits


def additive_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What the attention adds to its weights: 0 where a query may look, else the lowest number."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)
