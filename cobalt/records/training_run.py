"""What a training folder holds beside veRL's checkpoints, and how its metrics are read."""

from collections.abc import Sequence
from pathlib import Path

from cobalt.records.jsonl import read_jsonl
from cobalt.records.manifest import manifest_path

METRICS_FILE = "metrics.jsonl"
"""Every metric of every step, one JSON object per call of veRL's logger."""
MANIFEST_NAME = "training"
"""The manifest is ``training.manifest.json``."""
TRACKER_NAME = "latest_checkpointed_iteration.txt"
"""veRL's own: the step of the last complete checkpoint."""
EDGE_STEPS = 10
"""Training is told by means over at most this many of its first and of its last steps."""


def training_manifest(folder: str | Path) -> Path:
    """Where the manifest of a training folder lives."""
    return manifest_path(Path(folder) / MANIFEST_NAME)


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Metrics by step, in order, ``step`` among them; of a step that was repeated after a resume, the later values.

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
