"""The published dense shapes of Qwen3."""

from dataclasses import dataclass


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
    "qwen3-14b": qwen3(5120, 17408, 40, 40, tied=False),
    "qwen3-32b": qwen3(5120, 25600, 64, 64, tied=False),
}
