"""The cost of a training run, and the budget that ends it.

From ``metrics.jsonl`` of a training folder, with ``training.manifest.json`` beside it. A resumed run logs some steps
again: the last record of a step counts.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records.manifest import read_manifest
from cobalt.records.training_run import METRICS_FILE, NO_MANIFEST, read_metrics, training_manifest
from cobalt.training.settings import gpus_of

STEP_TIME = "timing_s/step"
"""Seconds of one step as veRL measures it: with its checkpoint, without the validation after it."""
SAVE_TIME = "timing_s/save_checkpoint"
"""The part of a step's seconds that is neither rollout nor reward nor update."""
GPUS = "cost/gpus"
"""GPUs of a step: those of a resumed training may be others."""
JUDGING = "timing_s/judging"
"""Seconds in which a step waited for programs, and did nothing else."""
BUDGET_UNITS = ("responses", "gpu_seconds")
"""Units of a budget. Seconds exclude start-up, validation and checkpoints."""
VALIDATION = re.compile(r"val-core/.*/acc/mean@\d+")


@dataclass(frozen=True)
class TrainingLog:
    """Metrics by step, and the settings."""

    steps: dict[int, dict[str, float]]
    config: Mapping[str, Any]

    @property
    def gpus(self) -> int:
        """Processes with a device each; on a CPU run, the one that stands for it."""
        return gpus_of(self.config["trainer"])

    def series(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one metric, where it was logged and finite."""
        pairs = ((step, metrics.get(name)) for step, metrics in sorted(self.steps.items()))
        return [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]

    def total(self, name: str) -> float:
        """Sum of one metric over the steps."""
        return sum(value for _, value in self.series(name))

    @property
    def seconds(self) -> float:
        """Time of all logged steps together, in seconds, without validation and checkpoints."""
        return self.total(STEP_TIME) - self.total(SAVE_TIME)

    def gpus_of(self, step: int) -> float:
        """The GPUs that a step had."""
        return self.steps[step].get(GPUS, self.gpus)

    def gpu_seconds_of(self, name: str) -> float:
        """Sum of a metric of seconds, times the GPUs that each step had."""
        return sum(value * self.gpus_of(step) for step, value in self.series(name))

    @property
    def gpu_seconds(self) -> float:
        """As ``seconds``, times the GPUs that each step had."""
        return self.gpu_seconds_of(STEP_TIME) - self.gpu_seconds_of(SAVE_TIME)

    @property
    def timed_steps(self) -> int:
        """Steps that reported their time."""
        return len(self.series(STEP_TIME))


def read_training_log(path: str | Path) -> TrainingLog:
    """The log of a ``metrics.jsonl``. Raises ``InputError`` for one without steps or without its manifest."""
    path = Path(path)
    if not path.is_file():
        raise InputError.at(path, None, "no such file")
    steps = {int(metrics["step"]): metrics for metrics in read_metrics(path)}
    manifest = training_manifest(path.parent)
    if not manifest.is_file():
        raise InputError.at(manifest, None, "no such file: it says what the run's examples and GPUs are")
    log = TrainingLog(steps, read_manifest(manifest).get("config", {}))
    try:
        _ = log.gpus
    except (KeyError, TypeError):
        raise InputError.at(manifest, None, NO_MANIFEST) from None
    if not log.timed_steps:
        raise InputError.at(path, None, f"no training steps (records with {STEP_TIME}) in this log")
    return log


@dataclass(frozen=True)
class Budget:
    """A limit on the cost of a training, for comparisons at equal cost. The last step ends closest to the limit."""

    metrics: Path
    """Holds what was spent."""
    unit: str
    limit: float

    def steps_left(self) -> float:
        """Steps that the rest is good for, at the mean cost of those before; infinity before the first one."""
        if not self.metrics.exists() or not any(STEP_TIME in record for record in read_metrics(self.metrics)):
            return float("inf")
        log = read_training_log(self.metrics)
        spent = log.total("cost/responses") if self.unit == "responses" else log.gpu_seconds
        return (self.limit - spent) * log.timed_steps / spent


def budget_of(config: Any) -> Budget | None:
    """``cobalt.budget`` of a training configuration. Raises ``InputError`` for one that cannot be read."""
    section = config.get("cobalt", {}).get("budget")
    if section is None:
        return None
    ((unit, limit),) = section.items() if isinstance(section, Mapping) and len(section) == 1 else ((None, None),)
    if unit not in BUDGET_UNITS or not isinstance(limit, int | float) or limit <= 0:
        raise InputError(f"cobalt.budget={section}: {{UNIT: LIMIT}} with one of {', '.join(BUDGET_UNITS)}, above 0")
    return Budget(Path(config.trainer.default_local_dir) / METRICS_FILE, unit, limit)
