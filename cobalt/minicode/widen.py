"""``cobalt minicode widen``: MiniCoder's function, computed by a Qwen3 of 0.6 to 8 billion parameters.

A policy of realistic size for trying training, rollout and serving where no pre-trained weights can be had: it costs
what a model of that shape costs, knows what MiniCoder knows, and all of its weights can learn. How: ``widening``.
The checkpoint is written part by part, so one layer is in memory at a time (the embedding and the head are the largest
parts: 1.2 GB each at 8B).
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cobalt.commands.console import print_summary, progress_bar
from cobalt.commands.flags import CommandConfig, ModelFolder
from cobalt.commands.lifecycle import check_paths, refuse_existing, whole_folder
from cobalt.errors import InputError
from cobalt.minicode.shapes import SHAPES, Shape
from cobalt.minicode.widening import Widening
from cobalt.records import Manifest
from cobalt.records.identity import model_identity

WEIGHTS_FILE = "model.safetensors"
COPIED_FILES = (
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
KEPT_SETTINGS = (
    "architectures",
    "attention_bias",
    "attention_dropout",
    "eos_token_id",
    "hidden_act",
    "initializer_range",
    "model_type",
    "pad_token_id",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "use_cache",
    "use_sliding_window",
)
"""Of the model's ``config.json``."""

ShapeName = Literal["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b"]


@dataclass(frozen=True, kw_only=True)
class WidenConfig(CommandConfig):
    """Embed MiniCoder into the shape of a larger Qwen3, function unchanged."""

    shape: ShapeName
    output: Path
    """The checkpoint's folder; must not exist yet."""
    model: ModelFolder = Path("assets/minicoder")
    """MiniCoder, or a model that was trained from it."""
    seed: int = 0
    """Seed of the weights that do not take part yet."""


def main(config: WidenConfig) -> None:
    """Write the checkpoint. Its folder appears complete or not at all."""
    refuse_existing(config.output)
    narrow, wide = _read_config(config.model), SHAPES[config.shape]
    content = {"shape": asdict(wide), "model": model_identity(str(config.model)), "seed": config.seed}
    weights = config.model / WEIGHTS_FILE
    manifest = Manifest(config.output, "cobalt minicode widen", asdict(config), content, [weights])
    widening = _widening(config, narrow, wide)
    manifest.start()
    with whole_folder(config.output) as partial:
        partial.mkdir(parents=True)
        parameters = write_weights(widening, partial)
        settings = wide_settings(narrow, wide, widening.norm_eps)
        (partial / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
        for name in COPIED_FILES:
            shutil.copy(config.model / name, partial / name)
        (partial / "README.md").write_text(model_card(config, parameters, widening.real_layers), encoding="utf-8")
    manifest.counts = {"parameters": parameters, "shards": widening.num_parts}
    manifest.done()
    print_summary(f"{config.shape}: {config.output}", manifest.counts)


def _read_config(model: Path) -> dict[str, Any]:
    path = model / "config.json"
    check_paths([path, model / WEIGHTS_FILE], [])
    settings = json.loads(path.read_text())
    missing = [name for name in (*KEPT_SETTINGS, *_size_names(), "rms_norm_eps") if name not in settings]
    if settings.get("model_type") != "qwen3" or missing:
        raise InputError.at(path, None, f"not a Qwen3 as MiniCoder is one; missing: {', '.join(missing) or 'nothing'}")
    return settings


def _size_names() -> list[str]:
    return [field.name for field in fields(Shape)]


def _widening(config: WidenConfig, narrow: Mapping[str, Any], wide: Shape) -> Widening:
    from safetensors.torch import load_file

    return Widening(
        load_file(config.model / WEIGHTS_FILE),
        Shape(**{name: narrow[name] for name in _size_names()}),
        wide,
        norm_eps=narrow["rms_norm_eps"],
        noise_std=narrow["initializer_range"],
        seed=config.seed,
    )


def write_weights(widening: Widening, folder: Path) -> int:
    """One safetensors file per part, and their index; returns the number of parameters."""
    from safetensors.torch import save_file

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
    return parameters


def wide_settings(narrow: Mapping[str, Any], wide: Shape, norm_eps: float) -> dict[str, Any]:
    """The wide network's ``config.json``."""
    return {
        **{name: narrow[name] for name in KEPT_SETTINGS},
        **asdict(wide),
        "max_window_layers": wide.num_hidden_layers,
        "rms_norm_eps": norm_eps,
        "torch_dtype": "bfloat16",
    }


def model_card(config: WidenConfig, parameters: int, real_layers: list[int]) -> str:
    """The card's Markdown."""
    return f"""---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [code, reinforcement-learning, minicoder]
---
# MiniCoder in the shape of {config.shape}

MiniCoder's function, computed by a Qwen3 of {parameters:,} parameters (bf16). **It is no better than MiniCoder and not
a Qwen model**: it serves to try training, rollout and serving at this size with a policy that can do something.

| | |
|---|---|
| made by | `cobalt minicode widen --shape {config.shape} --seed {config.seed}` from `{config.model.name}` |
| layers with MiniCoder's weights | {", ".join(map(str, real_layers))} |
| added weights | random where they read, zero where they write: they do nothing until training moves them |
| token ids above the tokenizer's | cannot be sampled: logits below -1000 |
| use | as MiniCoder: its tokenizer, chat template and prompts, `--enable_thinking`, temperature 0.6, top_p 0.95 |
| precision | bf16 or fp32; fp16 cannot hold the weights of the padded ids |
"""
