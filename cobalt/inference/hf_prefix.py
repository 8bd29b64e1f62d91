"""Keys and values of prompts already read, so that the next turn of a conversation reads only what is new."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import takewhile

import torch

STORE_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}


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
        """The prefix stored under ``key``."""
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
