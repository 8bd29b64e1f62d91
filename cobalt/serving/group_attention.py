"""A vLLM attention backend that reads the keys and values which requests share once (``prefix_groups.py``).

``attention_backend=CUSTOM``. Decode steps take two FlashAttention calls: the queries of a group over what it shares,
as one sequence, and each query over the rest of its request. Their results are merged by log-sum-exp, so attention is
the same up to rounding. Other steps are vLLM's own. For vLLM 0.24, models without sliding windows, keys and values as
the model computes them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func
from vllm.v1.attention.backends.flash_attn import (
    FlashAttentionBackend,
    FlashAttentionImpl,
    FlashAttentionMetadata,
    FlashAttentionMetadataBuilder,
)
from vllm.v1.attention.ops.merge_attn_states import merge_attn_states

from cobalt.serving.prefix_groups import PrefixGroups, prefix_groups


@dataclass
class GroupMetadata(FlashAttentionMetadata):
    """vLLM's, and the groups of a decode step."""

    groups: PrefixGroups | None = None


class GroupMetadataBuilder(FlashAttentionMetadataBuilder):
    """Finds the groups, once for all layers. CUDA graphs read them where the graph was captured."""

    _cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    supports_update_block_table = False

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._most = max(vllm_config.scheduler_config.max_num_seqs, self.max_cudagraph_size or 0)
        self._kept: dict[str, torch.Tensor] = {}

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> GroupMetadata:
        """See the base class."""
        batch = common_attn_metadata
        metadata = GroupMetadata(**vars(super().build(0, batch, fast_build or batch.max_query_len == 1)))
        if batch.max_query_len == 1:
            found = vars(prefix_groups(batch.block_table_tensor, batch.seq_lens, self.block_size))
            for name, value in found.items():
                if name not in self._kept:
                    self._kept[name] = value.new_zeros(self._most + 1, *value.shape[1:])
                self._kept[name][: len(value)] = value
            metadata.groups = PrefixGroups(**{name: self._kept[name][: len(value)] for name, value in found.items()})
        return metadata


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
        groups = attn_metadata and attn_metadata.groups
        if groups is None:
            inputs = query, key, value, kv_cache, attn_metadata, output, output_scale, output_block_scale
            return super().forward(layer, *inputs)
        tokens = attn_metadata.num_actual_tokens
        asked = query[:tokens].index_select(0, groups.order_N)
        keys, values = kv_cache.unbind(1)
        settings: dict[str, Any] = {
            "q": asked, "k": keys, "v": values, "softmax_scale": self.scale, "max_seqlen_k": attn_metadata.max_seq_len,
            "return_softmax_lse": True, "fa_version": self.vllm_flash_attn_version,
            "num_splits": attn_metadata.max_num_splits,
        }  # fmt: skip
        shared, shared_lse = flash_attn_varlen_func(
            **settings,
            cu_seqlens_q=groups.starts_N1,
            max_seqlen_q=tokens,
            seqused_k=groups.prefix_lengths_N,
            block_table=groups.prefix_tables_NB,
            causal=False,
        )
        own, own_lse = flash_attn_varlen_func(
            **settings,
            cu_seqlens_q=attn_metadata.query_start_loc,
            max_seqlen_q=1,
            seqused_k=groups.suffix_lengths_N,
            block_table=groups.suffix_tables_NB,
            causal=True,
        )
        merged = torch.empty_like(asked)
        merge_attn_states(merged, shared, shared_lse, own, own_lse)
        output[:tokens].index_copy_(0, groups.order_N, merged)
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
