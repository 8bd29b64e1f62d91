"""A vLLM attention backend that reads the keys and values which requests share once (``prefix_groups.py``).

``attention_backend=CUSTOM``. Decode steps take two FlashAttention calls, side by side: the queries of a group over what
it shares, as one sequence, and each query over the rest of its request. Their results are merged by log-sum-exp, so
attention is the same up to rounding. Other steps are vLLM's own. For vLLM 0.24, models without sliding windows, keys
and values as the model computes them.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from prefix_groups import PrefixGroups, prefix_groups
from torch import Tensor
from vllm.triton_utils import tl, triton
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func
from vllm.v1.attention.backends.flash_attn import (
    FlashAttentionBackend,
    FlashAttentionImpl,
    FlashAttentionMetadata,
    FlashAttentionMetadataBuilder,
)


@dataclass
class GroupMetadata(FlashAttentionMetadata):
    """vLLM's, and the groups of a decode step: found by its first layer, as part of the CUDA graph."""

    block_size: int = 0
    groups: PrefixGroups | None = None


class GroupMetadataBuilder(FlashAttentionMetadataBuilder):
    """Makes a step's metadata."""

    _cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    supports_update_block_table = False

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> GroupMetadata:
        """See the base class."""
        decodes = common_attn_metadata.max_query_len == 1
        plain = super().build(0, common_attn_metadata, fast_build or decodes)
        return GroupMetadata(**vars(plain), block_size=self.block_size)


@triton.jit
def _merge(
    result, shared, shared_sums, own, own_sums, places, count, width: tl.constexpr, padded: tl.constexpr
):  # fmt: skip
    """Of one head of one request: both outputs, weighed by their log-sum-exps."""
    row, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    place = tl.load(places + row)
    shared_sum, own_sum = tl.load(shared_sums + head * count + place), tl.load(own_sums + head * count + row)
    # of no token FlashAttention gives an infinite sum, of either sign
    weight = tl.where(tl.abs(shared_sum) == float("inf"), 0.0, tl.sigmoid(shared_sum - own_sum))
    columns = tl.arange(0, padded)
    inside = columns < width
    a = tl.load(shared + (place * heads + head) * width + columns, inside).to(tl.float32)
    b = tl.load(own + (row * heads + head) * width + columns, inside).to(tl.float32)
    merged = tl.where(weight == 0.0, b, weight * a + (1 - weight) * b)
    tl.store(result + (row * heads + head) * width + columns, merged.to(result.dtype.element_ty), inside)


@functools.cache
def _side_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def group_attention(
    result: Tensor,
    query: Tensor,
    cache: tuple[Tensor, Tensor],
    query_starts: Tensor,
    groups: PrefixGroups,
    **settings: Any,
) -> None:
    """Write to ``result`` the attention of ``query``, both (N, heads, D), over the paged keys and values of ``cache``.

    ``query_starts`` is 0 to N; ``settings`` are more arguments of ``flash_attn_varlen_func``.
    """
    settings = {"k": cache[0], "v": cache[1], "return_softmax_lse": True, **settings}
    main, side = torch.cuda.current_stream(), _side_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        shared, shared_sums = flash_attn_varlen_func(
            q=query.index_select(0, groups.order_N),
            cu_seqlens_q=groups.starts_N1,
            max_seqlen_q=len(query),
            seqused_k=groups.prefix_lengths_N,
            block_table=groups.prefix_tables_NB,
            causal=False,
            **settings,
        )
    own, own_sums = flash_attn_varlen_func(
        q=query,
        cu_seqlens_q=query_starts,
        max_seqlen_q=1,
        seqused_k=groups.suffix_lengths_N,
        block_table=groups.suffix_tables_NB,
        causal=True,
        **settings,
    )
    main.wait_stream(side)
    count, heads, width = query.shape
    padded = triton.next_power_of_2(width)
    _merge[count, heads](result, shared, shared_sums, own, own_sums, groups.places_N, count, width, padded)


class GroupAttentionImpl(FlashAttentionImpl):
    """Attention of one layer."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        plain = self.sliding_window == (-1, -1) and self.alibi_slopes is None and not self.logits_soft_cap
        if not plain or self.sinks is not None or self.dcp_world_size > 1:
            raise NotImplementedError("cobalt's attention backend knows plain causal attention only: take vLLM's own")

    def forward(
        self,
        layer: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class."""
        metadata = attn_metadata
        if metadata is None or metadata.max_query_len > 1:
            inputs = query, key, value, kv_cache, metadata, output, output_scale, output_block_scale
            return super().forward(layer, *inputs)
        if metadata.groups is None:
            metadata.groups = prefix_groups(metadata.block_table, metadata.seq_lens, metadata.block_size)
        tokens = metadata.num_actual_tokens
        group_attention(
            output[:tokens],
            query[:tokens],
            kv_cache.unbind(1),
            metadata.query_start_loc,
            metadata.groups,
            max_seqlen_k=metadata.max_seq_len,
            softmax_scale=self.scale,
            fa_version=self.vllm_flash_attn_version,
            num_splits=metadata.max_num_splits,
        )
        return output


class GroupAttentionBackend(FlashAttentionBackend):
    """See the module."""

    @staticmethod
    def get_name() -> str:
        """As vLLM's registry has it."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[FlashAttentionImpl]:
        """See the base class."""
        return GroupAttentionImpl

    @staticmethod
    def get_builder_cls() -> type[FlashAttentionMetadataBuilder]:
        """See the base class."""
        return GroupMetadataBuilder

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: Any) -> bool:
        """Not FP8."""
        return kv_cache_dtype in (None, "auto", "float16", "bfloat16")
