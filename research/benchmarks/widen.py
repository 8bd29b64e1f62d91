"""MiniCoder's function, computed by a Qwen3 of 0.6 to 8 billion parameters.

    python -m research.benchmarks.widen --shape qwen3-8b --output models/minicoder-8b

A policy of realistic size for trying training, rollout and serving where no pre-trained weights can be had: it costs
what a model of that shape costs, knows what MiniCoder knows, and all of its weights can learn. The checkpoint is
written part by part, so one layer is in memory at a time (the embedding and the head are the largest parts: 1.2 GB
each at 8B).

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
gradients hardly move them, 15 steps of 1e-4 towards noise do (research/results/minicoder.md). It also makes up for the
width, which gives one step of AdamW the more effect on the stream the more channels are read.
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from pydantic.dataclasses import dataclass
from safetensors.torch import load_file, save_file

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import check_paths, refuse_existing, whole_folder
from cobalt.training.cost_model import SHAPES, Shape

WEIGHTS_FILE = "model.safetensors"
COPIED_FILES = (
    "chat_template.jinja", "generation_config.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json",
)  # fmt: skip
KEPT_SETTINGS = (
    "architectures", "attention_bias", "attention_dropout", "eos_token_id", "hidden_act", "initializer_range",
    "model_type", "pad_token_id", "rope_scaling", "rope_theta", "sliding_window", "use_cache", "use_sliding_window",
)  # fmt: skip
"""Of the model's ``config.json``."""
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

ShapeName = Literal["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b"]


def heads_in_wide(narrow: Shape, wide: Shape) -> tuple[list[int], list[int]]:
    """Where each query head of the narrow network is in the wide one, and the key-value head that it then reads.

    A key-value head whose group of query heads is larger than the wide network's is there more than once.
    """
    group, wide_group = (shape.num_attention_heads // shape.num_key_value_heads for shape in (narrow, wide))
    copies = math.ceil(group / wide_group)
    query_heads, key_value_heads = [], []
    for head in range(narrow.num_attention_heads):
        number, member = divmod(head, group)
        key_value_heads.append(number * copies + member // wide_group)
        query_heads.append(key_value_heads[-1] * wide_group + member % wide_group)
    return query_heads, key_value_heads


class Widening:
    """The wide network's tensors, bf16, on the CPU, under their names in a checkpoint."""

    def __init__(self, weights: Mapping[str, torch.Tensor], settings: Mapping[str, Any], wide: Shape, seed: int):
        """``weights`` and ``settings`` of the narrow network. Raises ``InputError`` if there is no room for it."""
        narrow = Shape(**{field.name: settings[field.name] for field in fields(Shape)})
        copied = COPIES * narrow.hidden_size
        self._weights, self._narrow, self._wide = weights, narrow, wide
        self._noise_std = settings["initializer_range"]
        self._query_heads, self._key_value_heads = heads_in_wide(narrow, wide)
        least = {
            "hidden_size": copied + len(CONSTANT_SIGNS),
            "intermediate_size": narrow.intermediate_size,
            "num_hidden_layers": narrow.num_hidden_layers,
            "num_key_value_heads": max(self._key_value_heads) + 1,
            "vocab_size": narrow.vocab_size,
        }
        for name, size in least.items():
            if getattr(wide, name) < size:
                raise InputError(f"{name}: the model needs at least {size}, the shape has {getattr(wide, name)}")
        if wide.head_dim % narrow.head_dim:
            raise InputError(f"head_dim: the shape's {wide.head_dim} is no multiple of the model's {narrow.head_dim}")
        if not narrow.tie_word_embeddings:
            raise InputError("tie_word_embeddings: only models with tied embeddings can be widened")
        self._spread = wide.head_dim // narrow.head_dim
        self._constants = slice(copied, copied + len(CONSTANT_SIGNS))
        self._norm_scale = math.sqrt(copied / wide.hidden_size)
        squares = STREAM_SCALE**2 * copied * settings["rms_norm_eps"]
        self._constant = torch.tensor(squares * (1 - EPS_SHARE) / len(CONSTANT_SIGNS)).sqrt().bfloat16()
        self.norm_eps = (squares - len(CONSTANT_SIGNS) * self._constant.item() ** 2) / wide.hidden_size
        """The wide network's RMSNorm eps."""
        self._random = torch.Generator().manual_seed(seed)
        self._zeros, self._ones = (partial(make, dtype=torch.bfloat16) for make in (torch.zeros, torch.ones))
        self.real_layers = [
            number * wide.num_hidden_layers // narrow.num_hidden_layers for number in range(narrow.num_hidden_layers)
        ]
        """Places of the narrow network's layers, evenly spread."""
        self.num_parts = wide.num_hidden_layers + 2
        """How many ``parts`` there are."""

    def parts(self) -> Iterator[dict[str, torch.Tensor]]:
        """The embedding, each layer, the last norm with the head (if untied). A part is made when it is asked for."""
        wide, tokens = self._wide, self._narrow.vocab_size
        embedding = self._zeros(wide.vocab_size, wide.hidden_size)
        self._write(embedding[:tokens].T, self._weights["model.embed_tokens.weight"].T * STREAM_SCALE)
        embedding[:, self._constants] = self._constant
        # the output rows of padded ids
        padding = PADDING_WEIGHT * embedding.new_tensor(CONSTANT_SIGNS)
        if wide.tie_word_embeddings:
            embedding[tokens:, self._constants] = padding
        yield {"model.embed_tokens.weight": embedding}
        del embedding
        for place in range(wide.num_hidden_layers):
            yield {f"model.layers.{place}.{name}": tensor for name, tensor in self._layer(place).items()}
        norm = self._norm(self._weights["model.norm.weight"])
        if wide.tie_word_embeddings:
            norm /= STREAM_SCALE  # the head reads with what the embedding writes
        norm[self._constants] = norm.new_tensor(CONSTANT_SIGNS)
        if wide.tie_word_embeddings:
            yield {"model.norm.weight": norm}
        else:
            head = self._zeros(wide.vocab_size, wide.hidden_size)
            head[:tokens] = self._reading(self._weights["model.embed_tokens.weight"])
            head[tokens:, self._constants] = padding
            yield {"model.norm.weight": norm, "lm_head.weight": head}

    def _layer(self, place: int) -> dict[str, torch.Tensor]:
        narrow, wide, long = self._narrow, self._wide, self._wide.head_dim
        queries, keys, values = (
            self._noise(heads * long).view(-1, long, wide.hidden_size)
            for heads in (wide.num_attention_heads, wide.num_key_value_heads, wide.num_key_value_heads)
        )
        gate, up = self._noise(wide.intermediate_size), self._noise(wide.intermediate_size)
        attended = self._zeros(wide.hidden_size, wide.num_attention_heads, long)
        down = self._zeros(wide.hidden_size, wide.intermediate_size)
        norms = {name: self._ones(narrow.hidden_size) for name in ("input", "post_attention")}
        head_norms = {name: self._ones(narrow.head_dim) for name in ("q", "k")}
        if place in self.real_layers:
            prefix = f"model.layers.{self.real_layers.index(place)}."
            own = {name.removeprefix(prefix): w for name, w in self._weights.items() if name.startswith(prefix)}
            # narrow heads into wide ones: (heads, head size, D) each, ``attended`` (D, heads, head size)
            q, k, v = (
                own[f"self_attn.{name}_proj.weight"].view(-1, narrow.head_dim, narrow.hidden_size) for name in "qkv"
            )
            outputs = own["self_attn.o_proj.weight"].view(narrow.hidden_size, -1, narrow.head_dim)
            for head, (query, key_value) in enumerate(zip(self._query_heads, self._key_value_heads, strict=True)):
                source = head * narrow.num_key_value_heads // narrow.num_attention_heads
                between = q.new_zeros(long, narrow.hidden_size)
                between[:: self._spread] = q[head] * HEAD_SCALE
                repeated = k[source].repeat_interleave(self._spread, dim=0) * HEAD_SCALE
                queries[query], keys[key_value] = self._reading(between), self._reading(repeated)
                values[key_value, :: self._spread] = self._reading(v[source])
                self._write(attended[:, query, :: self._spread], outputs[:, head] * STREAM_SCALE)
            # narrow units into the first wide ones
            units = narrow.intermediate_size
            gate[:units] = self._reading(own["mlp.gate_proj.weight"])
            up[:units] = self._reading(own["mlp.up_proj.weight"])
            self._write(down[:, :units], own["mlp.down_proj.weight"] * STREAM_SCALE)
            norms = {name: own[f"{name}_layernorm.weight"] for name in norms}
            head_norms = {name: own[f"self_attn.{name}_norm.weight"] for name in head_norms}
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

    def _norm(self, weight_d: torch.Tensor) -> torch.Tensor:
        """(D,): the scaled weight in parts, zero for the constants, the scale for free channels."""
        norm = self._ones(self._wide.hidden_size) * self._norm_scale
        rest = weight_d.double() * self._norm_scale
        for copy in norm[: self._constants.start].tensor_split(COPIES):
            copy[:] = rest
            rest = rest - copy
        norm[self._constants] = 0
        return norm

    def _reading(self, weight_nd: torch.Tensor) -> torch.Tensor:
        """(n, D): rows that read from all copies; random for free channels."""
        rows = self._noise(len(weight_nd))
        self._write(rows.T, weight_nd.T)
        return rows

    def _write(self, target: torch.Tensor, weight: torch.Tensor) -> None:
        """Fill all copies of the narrow channels in ``target`` (D, ...) with ``weight`` (d, ...)."""
        for copy in target[: self._constants.start].tensor_split(COPIES):
            copy[:] = weight

    def _noise(self, rows: int) -> torch.Tensor:
        """(rows, D), zero for the constants."""
        noise = torch.randn(rows, self._wide.hidden_size, generator=self._random, dtype=torch.bfloat16)
        noise.mul_(self._noise_std)
        noise[:, self._constants] = 0
        return noise


@dataclass(frozen=True, kw_only=True)
class WidenConfig(CommandConfig):
    """Embed MiniCoder into the shape of a larger Qwen3, function unchanged."""

    shape: ShapeName
    output: Path
    """The checkpoint's folder; must not exist yet."""
    model: Annotated[Path, tyro.conf.arg(aliases=["--model_name"])] = Path("assets/minicoder")
    """MiniCoder, or a model that was trained from it."""
    seed: int = 0
    """Seed of the weights that do not take part yet."""


def main(config: WidenConfig) -> None:
    """Write the checkpoint. Its folder appears complete or not at all."""
    refuse_existing(config.output)
    path, weights, wide = config.model / "config.json", config.model / WEIGHTS_FILE, SHAPES[config.shape]
    check_paths([path, weights], [])
    narrow, needed = json.loads(path.read_text()), [*KEPT_SETTINGS, *(field.name for field in fields(Shape))]
    missing = [name for name in (*needed, "rms_norm_eps") if name not in narrow]
    if narrow.get("model_type") != "qwen3" or missing:
        raise InputError.at(path, None, f"not a Qwen3 as MiniCoder is one; missing: {', '.join(missing) or 'nothing'}")
    content = {"shape": asdict(wide), "model": model_identity(str(config.model)), "seed": config.seed}
    manifest = Manifest(config.output, "research/benchmarks/widen.py", asdict(config), content, [weights])
    widening = Widening(load_file(weights), narrow, wide, config.seed)
    manifest.start()
    with whole_folder(config.output) as folder:
        folder.mkdir(parents=True)
        # one safetensors file per part, and their index
        places: dict[str, str] = {}
        parameters = size = 0
        with progress_bar(total=widening.num_parts, desc="widening", unit=" parts") as bar:
            for number, tensors in enumerate(widening.parts(), start=1):
                name = f"model-{number:05d}-of-{widening.num_parts:05d}.safetensors"
                save_file(tensors, folder / name, metadata={"format": "pt"})
                places |= dict.fromkeys(tensors, name)
                parameters += sum(tensor.numel() for tensor in tensors.values())
                size += sum(tensor.nbytes for tensor in tensors.values())
                bar.update()
        index = {"metadata": {"total_size": size}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
        settings = wide_settings(narrow, wide, widening.norm_eps)
        (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
        for name in COPIED_FILES:
            shutil.copy(config.model / name, folder / name)
        (folder / "README.md").write_text(model_card(config, parameters, widening.real_layers), encoding="utf-8")
    manifest.counts = {"parameters": parameters, "shards": widening.num_parts}
    manifest.done()
    print_summary(f"{config.shape}: {config.output}", manifest.counts)


def wide_settings(narrow: Mapping[str, Any], wide: Shape, norm_eps: float) -> dict[str, Any]:
    return {
        **{name: narrow[name] for name in KEPT_SETTINGS},
        **asdict(wide),
        "max_window_layers": wide.num_hidden_layers,
        "rms_norm_eps": norm_eps,
        "torch_dtype": "bfloat16",
    }


def model_card(config: WidenConfig, parameters: int, real_layers: list[int]) -> str:
    return f"""# MiniCoder in the shape of {config.shape}

MiniCoder's function, computed by a Qwen3 of {parameters:,} parameters (bf16; fp16 cannot hold them). **It is no better
than MiniCoder and not a Qwen model.** It is used as MiniCoder is, with its tokenizer, chat template and prompts.

Made by `research/benchmarks/widen.py --shape {config.shape} --seed {config.seed}` from `{config.model.name}`, whose
weights are in the layers {", ".join(map(str, real_layers))}. Licence: Apache 2.0.
"""


if __name__ == "__main__":
    run(WidenConfig, main)
