"""``cobalt merge``: a veRL checkpoint as a Hugging Face model with a model card.

The weights are merged by veRL's own ``verl.model_merger``. The card tells data, recipe and metrics, from the manifest
and the metrics file that training left beside its checkpoints.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.commands.flags import CommandConfig, Positive
from cobalt.commands.hub_upload import hub_upload
from cobalt.commands.lifecycle import refuse_existing, whole_folder
from cobalt.errors import InputError, SetupError
from cobalt.preproc.outputs import UNKNOWN_LICENCE
from cobalt.records.training_run import (
    EDGE_STEPS,
    METRICS_FILE,
    TRACKER_NAME,
    edge_means,
    read_metrics,
    training_manifest,
)
from cobalt.tables import markdown_table

CARD_FILE = "README.md"
START_MODEL = "actor_rollout_ref.model.path"
RECIPE_KEYS = (
    START_MODEL,
    "algorithm.adv_estimator",
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.temperature",
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.actor.clip_ratio_low",
    "actor_rollout_ref.actor.clip_ratio_high",
    "actor_rollout_ref.actor.kl_loss_coef",
    "cobalt.backend",
    "cobalt.seed",
)
METRIC_PREFIXES = ("reward/", "val-core/", "response_length/mean", "actor/entropy", "actor/kl_loss")


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
    step = latest_step(config.checkpoint_dir) if config.step is None else config.step
    actor = config.checkpoint_dir / f"global_step_{step}" / "actor"
    if not actor.is_dir():
        raise InputError.at(actor, None, "no such checkpoint")
    with whole_folder(config.output_dir) as partial:
        command = [
            "-m",
            "verl.model_merger",
            "merge",
            "--backend",
            "fsdp",
            "--local_dir",
            actor,
            "--target_dir",
            partial,
        ]
        if subprocess.run([sys.executable, *map(str, command)], check=False).returncode != 0:
            raise SetupError(f"verl.model_merger failed on {actor}; its message is above")
        card = model_card(config.checkpoint_dir, step, config.base_model, config.license)
        (partial / CARD_FILE).write_text(card, encoding="utf-8")
    if config.push_to_hub is not None:
        upload(config.output_dir, config.push_to_hub)
    print(f"{config.output_dir}: model of step {step}")


def upload(folder: Path, repo_id: str) -> None:
    """A model's folder to a repository of the hub. Raises ``SetupError``."""
    with hub_upload(repo_id, f" (the model is in {folder})") as api:
        api.upload_folder(repo_id=repo_id, folder_path=folder)


def latest_step(checkpoint_dir: Path) -> int:
    """The step of the last complete checkpoint."""
    tracker = checkpoint_dir / TRACKER_NAME
    if not tracker.is_file():
        raise InputError.at(tracker, None, "no such file: the run has saved no checkpoint")
    return int(tracker.read_text())


def model_card(checkpoint_dir: Path, step: int, base_model: str | None = None, licence: str | None = None) -> str:
    """The card's Markdown; ``base_model`` and ``licence`` are taken from the start's own card where they are None."""
    from huggingface_hub import ModelCardData

    manifest = json.loads(training_manifest(checkpoint_dir).read_text())
    settings = {key: _lookup(manifest["config"], key) for key in RECIPE_KEYS}
    metrics = [record for record in read_metrics(checkpoint_dir / METRICS_FILE) if record["step"] <= step]
    start_path = str(settings.pop(START_MODEL))
    told = _card_data(start_path)
    data = ModelCardData(
        base_model=base_model or told.get("base_model") or _hub_name(start_path),
        license=licence or told.get("license") or UNKNOWN_LICENCE,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["code", "reinforcement-learning", "grpo", "cobalt"],
    )
    start = Path(start_path).name
    files = [(Path(path).name, digest) for path, digest in manifest["inputs"].items()]
    return f"""---
{data.to_yaml()}
---

# {start}, trained with Cobalt

Contextual bandit learning with GRPO (arXiv 2602.03806) on code generation problems, {step} steps.
Start: `{start}`, whose licence and limits apply.

## Data

{markdown_table(("file", "SHA-256"), files)}

## Recipe

{markdown_table(("setting", "value"), [(key, str(value)) for key, value in settings.items()])}

Versions: {", ".join(f"{name} {version}" for name, version in manifest["versions"].items())}; \
commit {manifest["git_commit"]}.

## Metrics

Means over the first and the last {EDGE_STEPS} steps that report them (half of a shorter training).

{markdown_table(("metric", "first", "last"), _edges(metrics))}
"""


def _hub_name(model: str) -> str:
    """The model's name on the hub; of a folder, whose place is nobody's business, its own name."""
    is_folder = Path(model).is_absolute() or Path(model).exists()
    return Path(model).name if is_folder else model


def _card_data(model: str) -> dict[str, Any]:
    """What the card of a model says in its header; nothing if there is none that can be read."""
    from huggingface_hub import ModelCard

    try:
        return ModelCard.load(str(Path(model) / CARD_FILE) if Path(model).is_dir() else model).data.to_dict()
    except (OSError, ValueError):
        return {}


def _lookup(config: Mapping[str, Any], dotted: str) -> Any:
    value: Any = config
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _edges(metrics: Sequence[Mapping[str, float]]) -> list[tuple[str, str, str]]:
    """Per metric its mean over the first and the last steps."""
    names = sorted({name for record in metrics for name in record if name.startswith(METRIC_PREFIXES)})
    rows = []
    for name in names:
        first, last = edge_means([record[name] for record in metrics if name in record])
        rows.append((name, f"{first:.4f}", f"{last:.4f}"))
    return rows
