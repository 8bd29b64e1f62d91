"""What a training step costs, for the benchmarks of steps: FLOPs, the GPU's peak, and what veRL calls the phases."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
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
