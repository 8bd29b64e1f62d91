"""What a training step costs: the shapes of Qwen3, FLOPs, the GPU's peak, and what veRL calls the phases."""

from dataclasses import dataclass, field
from typing import Any

PEAK_FLOPS = 989e12
"""Per second, dense bf16, of an H100 or H200."""
PHASES = {
    "generation": "timing_s/gen",
    "reward": "timing_s/reward",
    "old log-probs": "timing_s/old_log_prob",
    "reference": "timing_s/ref",
    "update": "timing_s/update_actor",
    "step": "timing_s/step",
}
"""Metrics that hold their seconds."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3, by the names of its ``config.json``. The defaults are those of all published dense ones."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int = 8
    head_dim: int = 128
    vocab_size: int = 151_936
    tie_word_embeddings: bool = field(kw_only=True)
    max_position_embeddings: int = 40_960

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.num_attention_heads // self.num_key_value_heads


SHAPES = {
    "qwen3-0.6b": Shape(1024, 3072, 28, 16, tie_word_embeddings=True),
    "qwen3-1.7b": Shape(2048, 6144, 28, 16, tie_word_embeddings=True),
    "qwen3-4b": Shape(2560, 9728, 36, 32, tie_word_embeddings=True),
    "qwen3-8b": Shape(4096, 12288, 36, 32, tie_word_embeddings=False),
    "qwen3-14b": Shape(5120, 17408, 40, 40, tie_word_embeddings=False),
    "qwen3-32b": Shape(5120, 25600, 64, 64, tie_word_embeddings=False),
}
"""The published dense shapes (arXiv 2505.09388, table 1, and the models' ``config.json``)."""


def layer_weights(model: Any) -> int:
    """Of all layers, norms left out. ``model``: sizes by the names of a ``config.json``."""
    attention, keys = (heads * model.head_dim for heads in (model.num_attention_heads, model.num_key_value_heads))
    return model.num_hidden_layers * model.hidden_size * (2 * attention + 2 * keys + 3 * model.intermediate_size)


def forward_flops(model: Any, prompt: int, response: int, samples: int) -> float:
    """Of a forward pass over a prompt and its responses; see bench_step.py for the formula."""
    layers, channels = model.num_hidden_layers, model.hidden_size
    attention = model.num_attention_heads * model.head_dim
    answered = samples * response
    pairs = prompt * prompt / 2 + answered * (prompt + response / 2)
    head = 2 * model.vocab_size * channels * answered
    return 2 * layer_weights(model) * (prompt + answered) + 4 * layers * attention * pairs + head
