"""A small Qwen3 inside a larger one, with the same function: the larger network's weights, part by part.

The residual stream of the wide network (D channels; d in the narrow one):

    copies    3 d   each of the narrow network's channels three times, written and read with the same weights, times 16
    constants   2   the same number for every token, read by the last norm only
    free     rest   zero until training writes to them

*Norms.* A wide mean square is (3 * 16^2 sum(x^2) + 2 constant^2) / D. The constant is chosen so that it stands for what
the narrow eps is beside sum(x^2), less a small wide eps; the root is then the narrow one times 16 sqrt(3 d / D). The
second factor goes into the norm's weights. One bf16 weight would round it to 8 bits; so the first copy's weight is
rounded, the second's is what the first lacks, the third's what both lack: 24 bits in the sum.

*Attention.* Heads are R times as long, and channel j of a narrow head is channel R j of a wide one, where the rotary
frequency is the same (one theta). Queries have zeros in between, so that their norm makes them sqrt(R) times as large:
what the wide scale, 1 / sqrt(head size), lacks. Keys are repeated R times, so that their norm leaves them as they are.
(Their norms' eps is the one thing not exact: at most 1e-6, as in the narrow network, of mean squares above 0.1.)

*Added parts* (layers, heads, feed-forward units, free channels) read with random weights and are written with zeros. In
the first training step every ``o_proj`` and ``down_proj`` gets a gradient, also where it is zero (but, with tied
embeddings, for free channels behind the last layer that has MiniCoder's weights: nothing reads them), and so does
whatever MiniCoder's weights are in; the added parts' own projections get one from the second step on.

*Padded vocabulary.* The rows of the ids that no tokenizer gives read the constants alone, with huge weights: their
logits are below -1000 for any input. Training can move the constants, since layers may write to their channels. That
the stream is 16 times as large makes its gradient so small (16^-2) that AdamW's epsilon, 1e-8, slows them: a policy's
gradients hardly move them, 15 steps of 1e-4 towards noise do (docs/results/minicoder.md). It also makes up for the
width, which gives one step of AdamW the more effect on the stream the more channels are read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cobalt.minicode.shapes import Shape, heads_in_wide, refuse_unfit

if TYPE_CHECKING:
    import torch

COPIES = 3
"""Of each channel: three bf16 weights make one of fp32's precision."""

STREAM_SCALE = 2.0**4
"""Of the residual stream, relative to the narrow network's."""

EPS_SHARE = 2.0**-7
"""Of what stands for the narrow eps: the wide eps; the constants are the rest. Twice what rounding them can miss."""

HEAD_SCALE = 2.0
"""Of queries and keys before their norms, which take it out again: it makes the wide eps as small as the narrow one."""

CONSTANT_SIGNS = (1.0, -1.0)
"""The last norm's weights of the two constants. Tied embeddings, which hold both for each token, read zero of them."""

PADDING_WEIGHT = -(2.0**24)
"""What a padded id reads the constants with, times their signs."""


class Widening:
    """The wide network's tensors, bf16, on the CPU, under their names in a checkpoint."""

    def __init__(
        self,
        weights: "Mapping[str, torch.Tensor]",
        narrow: Shape,
        wide: Shape,
        *,
        norm_eps: float,
        noise_std: float,
        seed: int,
    ):
        """``weights``: the narrow network's; ``norm_eps``: its RMSNorm eps; ``noise_std``: of weights that are added.

        Raises ``InputError`` if there is no room.
        """
        import torch

        copied = COPIES * narrow.hidden_size
        refuse_unfit(narrow, wide, least_hidden_size=copied + len(CONSTANT_SIGNS))
        self._weights, self._narrow, self._wide, self._noise_std = weights, narrow, wide, noise_std
        self._query_heads, self._key_value_heads = heads_in_wide(narrow, wide)
        self._spread = wide.head_dim // narrow.head_dim
        self._constants = slice(copied, copied + len(CONSTANT_SIGNS))
        self._norm_scale = math.sqrt(copied / wide.hidden_size)
        squares = STREAM_SCALE**2 * copied * norm_eps
        self._constant = torch.tensor(squares * (1 - EPS_SHARE) / len(CONSTANT_SIGNS)).sqrt().bfloat16()
        self.norm_eps = (squares - len(CONSTANT_SIGNS) * self._constant.item() ** 2) / wide.hidden_size
        """The wide network's RMSNorm eps."""
        self._random = torch.Generator().manual_seed(seed)
        self._zeros, self._ones = (partial(make, dtype=torch.bfloat16) for make in (torch.zeros, torch.ones))
        self.real_layers = [
            number * wide.num_hidden_layers // narrow.num_hidden_layers for number in range(narrow.num_hidden_layers)
        ]
        """Places of the narrow network's layers, evenly spread."""

    @property
    def num_parts(self) -> int:
        """How many ``parts`` there are."""
        return self._wide.num_hidden_layers + 2

    def parts(self) -> "Iterator[dict[str, torch.Tensor]]":
        """The embedding, each layer, the last norm with the head (if untied). A part is made when it is asked for."""
        yield {"model.embed_tokens.weight": self._embedding()}
        for place in range(self._wide.num_hidden_layers):
            yield {f"model.layers.{place}.{name}": tensor for name, tensor in self._layer(place).items()}
        norm = self._norm(self._weights["model.norm.weight"])
        if self._wide.tie_word_embeddings:
            norm /= STREAM_SCALE  # the head reads with what the embedding writes
        norm[self._constants] = norm.new_tensor(CONSTANT_SIGNS)
        yield {"model.norm.weight": norm} | ({} if self._wide.tie_word_embeddings else {"lm_head.weight": self._head()})

    def _embedding(self) -> "torch.Tensor":
        tokens = self._narrow.vocab_size
        table = self._zeros(self._wide.vocab_size, self._wide.hidden_size)
        self._write(table[:tokens].T, self._weights["model.embed_tokens.weight"].T * STREAM_SCALE)
        table[:, self._constants] = self._constant
        if self._wide.tie_word_embeddings:
            self._pad(table)
        return table

    def _head(self) -> "torch.Tensor":
        tokens = self._narrow.vocab_size
        table = self._zeros(self._wide.vocab_size, self._wide.hidden_size)
        table[:tokens] = self._reading(self._weights["model.embed_tokens.weight"])
        self._pad(table)
        return table

    def _pad(self, table: "torch.Tensor") -> None:
        """The output rows of padded ids."""
        table[self._narrow.vocab_size :, self._constants] = PADDING_WEIGHT * table.new_tensor(CONSTANT_SIGNS)

    def _layer(self, place: int) -> "dict[str, torch.Tensor]":
        wide, long = self._wide, self._wide.head_dim
        queries = self._noise(wide.num_attention_heads * long).view(-1, long, wide.hidden_size)
        keys = self._noise(wide.num_key_value_heads * long).view(-1, long, wide.hidden_size)
        values = self._noise(wide.num_key_value_heads * long).view(-1, long, wide.hidden_size)
        gate, up = self._noise(wide.intermediate_size), self._noise(wide.intermediate_size)
        attended = self._zeros(wide.hidden_size, wide.num_attention_heads, long)
        down = self._zeros(wide.hidden_size, wide.intermediate_size)
        norms = {name: self._ones(self._narrow.hidden_size) for name in ("input", "post_attention")}
        head_norms = {name: self._ones(self._narrow.head_dim) for name in ("q", "k")}
        if place in self.real_layers:
            prefix = f"model.layers.{self.real_layers.index(place)}"
            self._place_attention(f"{prefix}.self_attn", queries, keys, values, attended)
            self._place_feed_forward(f"{prefix}.mlp", gate, up, down)
            norms = {name: self._weights[f"{prefix}.{name}_layernorm.weight"] for name in norms}
            head_norms = {name: self._weights[f"{prefix}.self_attn.{name}_norm.weight"] for name in head_norms}
        return {
            "self_attn.q_proj.weight": queries.flatten(0, 1),
            "self_attn.k_proj.weight": keys.flatten(0, 1),
            "self_attn.v_proj.weight": values.flatten(0, 1),
            "self_attn.o_proj.weight": attended.flatten(1),
            "mlp.gate_proj.weight": gate,
            "mlp.up_proj.weight": up,
            "mlp.down_proj.weight": down,
            **{f"{name}_layernorm.weight": self._norm(weight) for name, weight in norms.items()},
            **{
                f"self_attn.{name}_norm.weight": weight.bfloat16().repeat_interleave(self._spread)
                for name, weight in head_norms.items()
            },
        }

    def _place_attention(
        self,
        prefix: str,
        queries: "torch.Tensor",
        keys: "torch.Tensor",
        values: "torch.Tensor",
        attended: "torch.Tensor",
    ) -> None:
        """Narrow heads into wide ones: (heads, head size, D) each, ``attended`` (D, heads, head size)."""
        narrow = self._narrow
        of_head = {
            name: self._weights[f"{prefix}.{name}_proj.weight"].view(-1, narrow.head_dim, narrow.hidden_size)
            for name in ("q", "k", "v")
        }
        outputs = self._weights[f"{prefix}.o_proj.weight"].view(narrow.hidden_size, -1, narrow.head_dim)
        for head, (query, key_value) in enumerate(zip(self._query_heads, self._key_value_heads, strict=True)):
            source = head // narrow.group
            between = of_head["q"].new_zeros(self._wide.head_dim, narrow.hidden_size)
            between[:: self._spread] = of_head["q"][head] * HEAD_SCALE
            repeated = of_head["k"][source].repeat_interleave(self._spread, dim=0) * HEAD_SCALE
            queries[query], keys[key_value] = self._reading(between), self._reading(repeated)
            values[key_value, :: self._spread] = self._reading(of_head["v"][source])
            self._write(attended[:, query, :: self._spread], outputs[:, head] * STREAM_SCALE)

    def _place_feed_forward(self, prefix: str, gate: "torch.Tensor", up: "torch.Tensor", down: "torch.Tensor") -> None:
        """Narrow units into the first wide ones."""
        units = self._narrow.intermediate_size
        gate[:units] = self._reading(self._weights[f"{prefix}.gate_proj.weight"])
        up[:units] = self._reading(self._weights[f"{prefix}.up_proj.weight"])
        self._write(down[:, :units], self._weights[f"{prefix}.down_proj.weight"] * STREAM_SCALE)

    def _norm(self, weight_d: "torch.Tensor") -> "torch.Tensor":
        """(D,): the scaled weight in parts, zero for the constants, the scale for free channels."""
        norm = self._ones(self._wide.hidden_size) * self._norm_scale
        rest = weight_d.double() * self._norm_scale
        for copy in self._copies(norm):
            copy[:] = rest
            rest = rest - copy
        norm[self._constants] = 0
        return norm

    def _reading(self, weight_nd: "torch.Tensor") -> "torch.Tensor":
        """(n, D): rows that read from all copies; random for free channels."""
        rows = self._noise(len(weight_nd))
        self._write(rows.T, weight_nd.T)
        return rows

    def _write(self, target: "torch.Tensor", weight: "torch.Tensor") -> None:
        """Fill all copies of the narrow channels in ``target`` (D, ...) with ``weight`` (d, ...)."""
        for copy in self._copies(target):
            copy[:] = weight

    def _copies(self, tensor: "torch.Tensor") -> "Sequence[torch.Tensor]":
        """Views (d, ...) of the narrow channels' copies in a tensor (D, ...)."""
        return tensor[: self._constants.start].tensor_split(COPIES)

    def _noise(self, rows: int) -> "torch.Tensor":
        """(rows, D), zero for the constants."""
        import torch

        noise = torch.randn(rows, self._wide.hidden_size, generator=self._random, dtype=torch.bfloat16)
        noise.mul_(self._noise_std)
        noise[:, self._constants] = 0
        return noise
