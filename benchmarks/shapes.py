"""Shapes of Qwen3, and where the heads of a small network are in a larger one."""

import math
from dataclasses import dataclass

from cobalt.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a Qwen3, by the names of its ``config.json``."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.num_attention_heads // self.num_key_value_heads


def qwen3(hidden_size: int, intermediate_size: int, layers: int, heads: int, *, tied: bool) -> Shape:
    """One of the published dense shapes (arXiv 2505.09388, table 1, and the models' ``config.json``)."""
    return Shape(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151_936,
        tie_word_embeddings=tied,
        max_position_embeddings=40_960,
    )


SHAPES: dict[str, Shape] = {
    "qwen3-0.6b": qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-1.7b": qwen3(2048, 6144, 28, 16, tied=True),
    "qwen3-4b": qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": qwen3(4096, 12288, 36, 32, tied=False),
}


def heads_in_wide(narrow: Shape, wide: Shape) -> tuple[list[int], list[int]]:
    """Where each query head of the narrow network is in the wide one, and the key-value head that it then reads.

    A key-value head whose group of query heads is larger than the wide network's is there more than once.
    """
    copies = math.ceil(narrow.group / wide.group)
    query_heads, key_value_heads = [], []
    for head in range(narrow.num_attention_heads):
        group, member = divmod(head, narrow.group)
        key_value_heads.append(group * copies + member // wide.group)
        query_heads.append(key_value_heads[-1] * wide.group + member % wide.group)
    return query_heads, key_value_heads


def refuse_unfit(narrow: Shape, wide: Shape, least_hidden_size: int) -> None:
    """Raise ``InputError`` if the narrow network has no room in the wide one."""
    least = {
        "hidden_size": least_hidden_size,
        "intermediate_size": narrow.intermediate_size,
        "num_hidden_layers": narrow.num_hidden_layers,
        "num_key_value_heads": max(heads_in_wide(narrow, wide)[1]) + 1,
        "vocab_size": narrow.vocab_size,
    }
    for name, size in least.items():
        if getattr(wide, name) < size:
            raise InputError(f"{name}: the model needs at least {size}, the shape has {getattr(wide, name)}")
    if wide.head_dim % narrow.head_dim:
        raise InputError(f"head_dim: the shape's {wide.head_dim} is no multiple of the model's {narrow.head_dim}")
    if not narrow.tie_word_embeddings:
        raise InputError("tie_word_embeddings: only models with tied embeddings can be widened")
