"""What a training folder holds beside veRL's checkpoints, and how its metrics are read."""

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records.jsonl import cut_torn_line, dump_line, is_taken, naming, read_jsonl, write_jsonl
from cobalt.records.manifest import manifest_path

METRICS_FILE = "metrics.jsonl"
"""Every metric of every step, one JSON object per call of veRL's logger."""
OF_HUGGING_FACE = "checkpoint-"
"""What the names of the checkpoints of Hugging Face's trainer begin with."""
LOST_FILE = "metrics.lost.jsonl"
"""Metrics of steps that a crash undid: they came after the checkpoint that training went on from."""
MANIFEST_NAME = "training"
"""The manifest is ``training.manifest.json``."""
START_MODEL = "actor_rollout_ref.model.path"
"""The setting, in the manifest's content, that names the model that the training starts from."""
TRACKER_NAME = "latest_checkpointed_iteration.txt"
"""veRL's own: the step of the last complete checkpoint."""
NO_MANIFEST = "not the manifest of a training"
LOCK_NAME = "training.lock"
"""Locked while a training writes in the folder; holds ``PID on HOST`` of the last one that did."""
EDGE_STEPS = 10
"""A training is summed up by means over at most this many of its first and of its last steps."""


def training_manifest(folder: str | Path) -> Path:
    return manifest_path(Path(folder) / MANIFEST_NAME)


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep other trainings out of ``folder``, which is made. Raises ``InputError`` if one is writing there.

    A torn last line of metrics is cut off.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666), "r+") as file:
        file.seek(0)
        if is_taken(file):
            holder = file.read().strip()
            raise InputError.at(folder, None, f"process {holder} is training in this folder; wait for it, or stop it")
        cut_torn_line(folder / METRICS_FILE)
        file.truncate()
        file.write(f"{os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def resumed_step(trainer: Mapping[str, Any]) -> int:
    """The step of the checkpoint that a training goes on from; 0 if it begins anew.

    ``trainer``: that section of the configuration. Raises ``InputError`` for a checkpoint that cannot be named.
    """
    if trainer["resume_mode"] == "disable":
        return 0
    if trainer["resume_mode"] == "resume_path":
        path = trainer["resume_from_path"]
        if not (match := re.search(r"global_step_(\d+)/*$", str(path))):
            raise InputError(f"trainer.resume_from_path={path}: no such checkpoint; it is a folder named global_step_N")
        return int(match[1])
    tracker = Path(trainer["default_local_dir"], TRACKER_NAME)
    if not tracker.is_file():
        return 0
    if not (step := tracker.read_text().strip()).isdecimal():
        raise InputError.at(tracker, None, "names no checkpoint; write the number of one into it, or remove it")
    return int(step) if int(step) in saved_steps(tracker.parent) else 0  # as veRL, which then begins anew


def saved_steps(folder: str | Path) -> dict[int, Path]:
    """The checkpoints of a training folder by step, in order: of veRL, and of Hugging Face's trainer."""
    named = (
        (re.fullmatch(rf"(?:global_step_|{OF_HUGGING_FACE})(\d+)", path.name), path) for path in Path(folder).glob("*")
    )
    return dict(sorted((int(name[1]), path) for name, path in named if name))


def weights_of(checkpoint: Path) -> Path:
    """Where the weights of a checkpoint are: veRL's reinforcement learning has them in a folder of its own."""
    return actor if (actor := checkpoint / "actor").is_dir() else checkpoint


def saved_checkpoints(folder: str | Path) -> str:
    """``saved_steps`` for a message about one that is not there."""
    steps = ", ".join(map(str, saved_steps(folder)))
    return f"{folder} has those of steps {steps}" if steps else f"{folder} has none"


def set_lost_steps_aside(folder: Path, step: int) -> None:
    """Move the metrics of later steps than ``step`` to ``LOST_FILE``: the policy has not taken them."""
    path = folder / METRICS_FILE
    if not path.exists():
        return
    rows = list(read_jsonl(path, ("step",), unique=None, may_be_empty=True))
    if lost := [row for row in rows if row["step"] > step]:
        cut_torn_line(folder / LOST_FILE)
        with open(folder / LOST_FILE, "ab") as file:
            file.writelines(map(dump_line, lost))
        write_jsonl(path, [row for row in rows if row["step"] <= step])
        first, last = lost[0]["step"], lost[-1]["step"]
        metrics = f"their metrics are in {folder / LOST_FILE}"
        print(f"cobalt: steps {first} to {last} came after the checkpoint; {metrics}", flush=True)


def append_metrics(folder: str | Path, step: int, metrics: Mapping[str, Any]) -> None:
    """Add one call of veRL's logger to the metrics of a training folder."""
    path = Path(folder) / METRICS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), open(path, "a", encoding="utf-8") as file:
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
