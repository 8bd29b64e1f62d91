"""What a training folder holds beside veRL's checkpoints, and how its metrics are read."""

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records.jsonl import cut_torn_line, is_taken, read_jsonl
from cobalt.records.manifest import manifest_path

METRICS_FILE = "metrics.jsonl"
"""Every metric of every step, one JSON object per call of veRL's logger."""
MANIFEST_NAME = "training"
"""The manifest is ``training.manifest.json``."""
START_MODEL = "actor_rollout_ref.model.path"
"""The setting, in the manifest's content, that names the model that the training starts from."""
TRACKER_NAME = "latest_checkpointed_iteration.txt"
"""veRL's own: the step of the last complete checkpoint."""
LOCK_NAME = "training.lock"
"""Locked while a training writes in the folder; holds ``PID on HOST`` of the last one that did."""
EDGE_STEPS = 10
"""A training is summed up by means over at most this many of its first and of its last steps."""


def training_manifest(folder: str | Path) -> Path:
    return manifest_path(Path(folder) / MANIFEST_NAME)


@contextmanager
def hold_folder(folder: Path, descriptor: int | None = None) -> Iterator[None]:
    """Keep other trainings out of ``folder``, which is made. Raises ``InputError`` if one is writing there.

    ``descriptor``: of the lock's file if the caller, a recipe, has locked it already. A torn last line of metrics is
    cut off.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if descriptor is None:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    with os.fdopen(descriptor, "r+") as file:
        file.seek(0)
        if is_taken(file):
            holder = file.read().strip()
            raise InputError.at(folder, None, f"process {holder} is training in this folder; wait for it, or stop it")
        cut_torn_line(folder / METRICS_FILE)
        file.truncate()
        file.write(f"{os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def append_metrics(folder: str | Path, step: int, metrics: Mapping[str, Any]) -> None:
    """Add one call of veRL's logger to the metrics of a training folder."""
    path = Path(folder) / METRICS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **{name: float(value) for name, value in metrics.items()}}) + "\n")


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Metrics by step, in order, ``step`` among them. Of a step that was repeated after a resume, the later values.

    Raises ``InputError`` for a missing file and for lines that are no records.
    """
    by_step: dict[int, dict[str, float]] = {}
    for row in read_jsonl(path, ("step",), unique=None, may_be_empty=True):
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, (int, float))}
        by_step.setdefault(row["step"], {}).update(numbers)
    return [by_step[step] for step in sorted(by_step)]


def edge_means(values: Sequence[float]) -> tuple[float, float]:
    """Means over the first and over the last ``edge_steps`` of the values, of which there is at least one."""
    count = edge_steps(len(values))
    return sum(values[:count]) / count, sum(values[-count:]) / count


def edge_steps(steps: int) -> int:
    """How many of so many steps each edge holds: at most half of them, so that the edges share none."""
    return max(1, min(EDGE_STEPS, steps // 2))
