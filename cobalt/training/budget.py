"""The end of a training that may cost so much and no more: ``cobalt.budget``, for comparisons at equal cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records.training_run import METRICS_FILE
from cobalt.training.training_log import read_training_log

UNITS = ("responses", "gpu_seconds")
"""What may be limited. Seconds are those without start-up, validation and checkpoints."""


@dataclass(frozen=True)
class Budget:
    """Tells which step is the last: the one that ends closest to ``limit``. ``metrics`` holds what was spent."""

    metrics: Path
    unit: str
    limit: float

    def steps_left(self) -> float:
        """Steps that the rest is good for, at the mean cost of those before; infinity before the first one."""
        if not self.metrics.exists():
            return float("inf")
        log = read_training_log(self.metrics)
        spent = log.total("cost/responses") if self.unit == "responses" else log.seconds * log.gpus
        return (self.limit - spent) * log.timed_steps / spent

    @property
    def is_spent(self) -> bool:
        """Whether one more step would end farther from the limit."""
        return self.steps_left() < 0.5

    @property
    def allows_one(self) -> bool:
        """Whether the next step is the last."""
        return self.steps_left() < 1.5


def budget_of(config: Any) -> Budget | None:
    """The budget in a training configuration. Raises ``InputError`` for one that cannot be read."""
    section = config.get("cobalt", {}).get("budget")
    if section is None:
        return None
    ((unit, limit),) = section.items() if isinstance(section, Mapping) and len(section) == 1 else ((None, None),)
    if unit not in UNITS or not isinstance(limit, int | float) or limit <= 0:
        raise InputError(f"cobalt.budget={section}: {{UNIT: LIMIT}} with one of {', '.join(UNITS)}, above 0")
    return Budget(Path(config.trainer.default_local_dir) / METRICS_FILE, unit, limit)
