"""Attention for sampling with Hugging Face models: grouped query heads share their keys without copying them.

Registered under ``ATTENTION``; masks are additive, finite and four-dimensional ``(batch, 1, queries, keys)``, so that
rows of padding give numbers (never NaN) that nothing reads. Sliding-window models are not supported.
"""

from typing import Any

import torch

ATTENTION = "cobalt_grouped"


def register() -> None:
    """Make ``ATTENTION`` known to transformers."""
    from transformers import AttentionInterface

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
    weights = weights.softmax(-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(weights, value).view(rows, 1, heads, size), None
