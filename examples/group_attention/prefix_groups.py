"""Which requests of vLLM begin with the same tokens, so that a decode step reads those keys and values once.

GRPO asks for many responses to each prompt. vLLM stores a prompt once, but each response's decode step reads it anew:
16 responses of 6,144 tokens to a prompt of 4,096 read it 16 times, which is more than half of all that is read.

A physical block of vLLM's cache stands for one content of all tokens up to its end. So requests with the same block in
the same column of their block tables share everything before it. Everything here is computed on the GPU, without
waiting for it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PrefixGroups:
    """N requests of one query each, and up to N groups of them; those behind the last have no queries."""

    order_N: Tensor
    """The request at each place: those of a group are neighbours."""
    places_N: Tensor
    """The place of each request."""
    starts_N1: Tensor
    """(N + 1,) int32, the place at which each group begins."""
    prefix_lengths_N: Tensor
    """int32, tokens that all of a group share, whole blocks."""
    prefix_tables_NB: Tensor
    """int32, block tables of the shared tokens, one for each group."""
    suffix_lengths_N: Tensor
    """int32, tokens of each request behind those that it shares, at least 1."""
    suffix_tables_NB: Tensor
    """int32, block tables of the requests that begin behind the shared tokens."""


def prefix_groups(tables_NB: Tensor, lengths_N: Tensor, block: int) -> PrefixGroups:
    """From block tables, lengths in tokens (0: no request), and the tokens of a block.

    A request belongs to those with which it shares the most blocks. Its last token is never shared.
    """
    count, width = tables_NB.shape
    rows_N = torch.arange(count, device=tables_NB.device)
    columns_B = torch.arange(width, device=tables_NB.device)
    whole_N1 = ((lengths_N - 1).clamp(min=0) // block)[:, None]
    # entries behind a request's blocks are left from others: each gets a number that nobody else has
    ids_NB = torch.where(columns_B < whole_N1, tables_NB, -1 - rows_N[:, None].to(tables_NB.dtype))
    sorted_NB, places_NB = ids_NB.sort(0)
    equal = sorted_NB[1:] == sorted_NB[:-1]
    shared_NB = torch.zeros_like(ids_NB, dtype=torch.bool)
    shared_NB[1:] |= equal
    shared_NB[:-1] |= equal
    shared_NB = torch.zeros_like(shared_NB).scatter_(0, places_NB, shared_NB)
    depths_N = shared_NB.cumprod(1).sum(1)

    # the last shared block names the group
    last_N = tables_NB.gather(1, (depths_N - 1).clamp(min=0)[:, None])[:, 0].long()
    names, order_N = torch.where(depths_N > 0, last_N, (1 << 40) + rows_N).sort(stable=True)
    groups_N = torch.cat([names.new_zeros(1), (names[1:] != names[:-1]).cumsum(0)])
    starts_N1 = torch.searchsorted(groups_N, torch.arange(count + 1, device=groups_N.device))
    firsts_N = order_N[starts_N1[:-1].clamp(max=count - 1)]
    lengths_of_groups = torch.where(starts_N1[:-1] < count, depths_N[firsts_N] * block, 0)
    behind_NB = (columns_B + depths_N[:, None]).clamp(max=width - 1)
    return PrefixGroups(
        order_N,
        torch.empty_like(order_N).scatter_(0, order_N, rows_N),
        starts_N1.int(),
        lengths_of_groups.int(),
        tables_NB[firsts_N],
        (lengths_N - depths_N * block).clamp(min=1).int(),
        tables_NB.gather(1, behind_NB),
    )


def register() -> None:
    """vLLM's entry point for plug-ins: ``attention_backend=CUSTOM`` is ours then. vLLM calls it in each process."""
    from vllm.v1.attention.backends import registry  # type: ignore[import-not-found]

    registry.register_backend(registry.AttentionBackendEnum.CUSTOM, "group_attention.GroupAttentionBackend")
