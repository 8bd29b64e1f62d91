"""``cobalt merge``: a veRL checkpoint as a Hugging Face model with a model card.

The weights are merged by veRL's own ``verl.model_merger``. Of a run with LoRA it gives the model that training started
from, with the adapter beside it. Here the adapter is added to it. The card tells start, licence and data, from the
manifest that training left beside its checkpoints.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, Positive, hub_upload
from cobalt.errors import InputError, SetupError
from cobalt.preproc.outputs import UNKNOWN_LICENCE
from cobalt.records import training_run
from cobalt.records.manifest import read_manifest, refuse_existing, whole_folder
from cobalt.tables import markdown_table

CARD_FILE = "README.md"
ADAPTER_FOLDER = "lora_adapter"
"""Where veRL's merger puts an adapter, in the model's folder."""
METHODS = {
    "cobalt train": ("GRPO, arXiv 2602.03806", ["reinforcement-learning", "grpo"]),
    "cobalt rft": ("rejection-sampling fine-tuning", ["rft"]),
    "cobalt dpo": ("DPO, arXiv 2305.18290", ["dpo"]),
}
"""By the manifest's command: what the card says, and its tags."""
SETTINGS_SUFFIXES = {".json", ".jinja", ".txt", ".model"}
SHAPE_FILES = {"config.json", "generation_config.json"}
"""The other files of settings are the tokenizer's."""


@dataclass(frozen=True, kw_only=True)
class MergeConfig(CommandConfig):
    """Merge a checkpoint of a training run into a Hugging Face model with a model card."""

    checkpoint_dir: Path
    """The run's output folder (``trainer.default_local_dir``)."""
    output_dir: Path
    """The model's folder; must not exist yet."""
    step: Positive | None = None
    """Which checkpoint; default: the latest."""
    base_model: str | None = None
    """The card's `base_model`; default: the hub name that training started from, or what the start's own card says."""
    license: str | None = None
    """The card's licence; default: that on the start's card, or `unknown`."""
    push_to_hub: str | None = None
    """Also upload the model and its card to this model repository."""


def merge(config: MergeConfig) -> None:
    """See ``MergeConfig``. The output folder appears complete or not at all."""
    refuse_existing(config.output_dir)
    if not config.checkpoint_dir.is_dir():
        raise InputError.at(config.checkpoint_dir, None, "no such folder")
    tracker = config.checkpoint_dir / training_run.TRACKER_NAME
    saved = training_run.saved_checkpoints(config.checkpoint_dir)
    # there is none without a checkpoint; a training that was killed while it saved may leave it empty
    latest = tracker.read_text(errors="replace").strip() if tracker.is_file() else ""
    if not (steps := training_run.saved_steps(config.checkpoint_dir)):
        raise InputError.at(config.checkpoint_dir, None, "the run has saved no checkpoint")
    if config.step is None and not latest.isdecimal():
        raise InputError.at(tracker, None, f"names no checkpoint; choose one with --step: {saved}")
    step = config.step or int(latest)
    if step not in steps:
        raise InputError(f"--step {step}: no such checkpoint; {saved}")
    checkpoint = training_run.weights_of(steps[step])
    manifest = manifest_of(config.checkpoint_dir)
    with whole_folder(config.output_dir) as partial:
        if checkpoint.name.startswith(training_run.OF_HUGGING_FACE):
            save_model(checkpoint, partial)
        else:
            merge_shards(checkpoint, partial)
        start = start_of(manifest)
        if (partial / ADAPTER_FOLDER).is_dir():
            add_adapter(partial, start["lora_alpha"])
        keep_settings(start, partial)
        card = model_card(manifest, step, config.base_model, config.license)
        (partial / CARD_FILE).write_text(card, encoding="utf-8")
    if config.push_to_hub is not None:
        with hub_upload(config.push_to_hub, f" (the model is in {config.output_dir})") as api:
            api.upload_folder(repo_id=config.push_to_hub, folder_path=config.output_dir)
    print(f"{config.output_dir}: model of step {step}")


def merge_shards(checkpoint: Path, folder: Path) -> None:
    """Write the model of a checkpoint of veRL. Raises ``SetupError``."""
    # -P: a file of the user's folder never takes the place of a module
    merger = [sys.executable, "-P", "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    folders = ["--local_dir", str(checkpoint), "--target_dir", str(folder)]
    done = subprocess.run(merger + folders, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:  # else its output is warnings of other packages
        print(done.stdout, file=sys.stderr)
        raise SetupError(f"verl.model_merger failed on {checkpoint}; its message is above")


def save_model(checkpoint: Path, folder: Path) -> None:
    """Write the model of a checkpoint of Hugging Face's trainer, in bf16 as veRL's merger."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)


def manifest_of(folder: Path) -> dict[str, Any]:
    """What a training left in ``folder``. Raises ``InputError`` where it lacks what a card tells."""
    path = training_run.training_manifest(folder)
    if not path.is_file():
        raise InputError.at(path, None, "no such file: the card takes start and data from it")
    manifest = read_manifest(path)
    try:
        _ = Path(start_of(manifest)["path"]), manifest["inputs"].items(), manifest["git_commit"]
    except (AttributeError, KeyError, TypeError):
        raise InputError.at(path, None, training_run.NO_MANIFEST) from None
    return manifest


def start_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the model that a training started from."""
    config = manifest["config"]
    return config.get("actor_rollout_ref", config)["model"]


def keep_settings(start: Mapping[str, Any], folder: Path) -> None:
    """Give the model in ``folder`` the settings and tokenizer files that training read, where they are here.

    transformers 5 writes settings that version 4 misreads. What training has changed stays as it was written. A source
    is a folder or in the hub's cache. ``start``: as of ``start_of``.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    is_changed = set(start.get("override_config") or {}) - {"attn_implementation"}
    shape = None if is_changed else start.get("hf_config_path") or start["path"]
    tokenizer = None if start.get("custom_chat_template") else start.get("tokenizer_path") or start["path"]
    for file in folder.iterdir():
        source = shape if file.name in SHAPE_FILES else tokenizer
        if source and file.suffix in SETTINGS_SUFFIXES and not file.name.endswith(".index.json"):
            own = str(Path(source, file.name))
            with suppress(HFValidationError):  # a folder that is not here
                own = own if Path(source).is_dir() else try_to_load_from_cache(source, file.name)
            if isinstance(own, str) and Path(own).is_file():
                shutil.copyfile(own, file)


def add_adapter(folder: Path, alpha: int) -> None:
    """Replace the model in ``folder`` by its sum with the adapter, which goes. Summed in fp32, saved in bf16.

    ``alpha``: the run's ``lora_alpha``. veRL 0.5.0 leaves 0 in the adapter's own settings.
    """
    import torch
    from peft import LoraConfig, PeftModel
    from transformers import AutoModelForCausalLM

    adapter = str(folder / ADAPTER_FOLDER)
    settings: Any = LoraConfig.from_pretrained(adapter)
    settings.lora_alpha = settings.lora_alpha or alpha
    model: Any = AutoModelForCausalLM.from_pretrained(folder).float()
    model = PeftModel.from_pretrained(model, adapter, config=settings).merge_and_unload()
    shutil.rmtree(adapter)
    for weights in folder.glob("model*.safetensors*"):
        weights.unlink()
    model.to(torch.bfloat16).save_pretrained(folder)


def model_card(
    manifest: Mapping[str, Any], step: int, base_model: str | None = None, licence: str | None = None
) -> str:
    """The card's Markdown; ``base_model`` and ``licence`` are taken from the start's own card where they are None."""
    from huggingface_hub import ModelCard, ModelCardData

    start_path = start_of(manifest)["path"]
    command = manifest.get("command", "cobalt train")
    method, tags = METHODS.get(command, METHODS["cobalt train"])
    start = Path(start_path)
    is_folder = start.is_absolute() or start.exists()  # the card names it, and not where it lies
    try:
        card = ModelCard.load(str(start / CARD_FILE) if start.is_dir() else start_path).data.to_dict()
    except (OSError, ValueError):
        card = {}
    data = ModelCardData(
        base_model=base_model or card.get("base_model") or (start.name if is_folder else start_path),
        license=licence or card.get("license") or UNKNOWN_LICENCE,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["code", *tags, "cobalt"],
    )
    files = [(Path(path).name, digest) for path, digest in manifest["inputs"].items()]
    return f"""---
{data.to_yaml()}
---

# {start.name}, trained with Cobalt

{step} steps of `{command}` ({method}) from `{start.name}`, whose licence and limits apply, at commit
{manifest["git_commit"]}.

{markdown_table(("training data", "SHA-256"), files)}
"""
