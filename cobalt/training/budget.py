"""The end of a training that may cost so much and no more: ``cobalt.budget``, for comparisons at equal cost."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records.training_run import METRICS_FILE
from cobalt.training.training_log import TrainingLog, read_training_log

SPENT: dict[str, Callable[[TrainingLog], float]] = {
    "responses": lambda log: log.total("cost/responses"),
    "gpu_seconds": lambda log: log.seconds * log.gpus,
}
"""What may be limited, and how it is read from the metrics; seconds without start-up, validation and checkpoints."""


class Budget:
    """Tells which step is the last: the one whose end is closest to a limit. Reads what was spent from the metrics."""

    def __init__(self, folder: Path, unit: str, limit: float):
        """``folder``: of the training; ``unit``: a key of ``SPENT``."""
        self._metrics, self._unit, self._limit = folder / METRICS_FILE, unit, limit

    def steps_left(self) -> float:
        """Steps that the rest is good for, at the mean cost of those before; infinity before the first one."""
        if not self._metrics.exists():
            return float("inf")
        log = read_training_log(self._metrics)
        spent = SPENT[self._unit](log)
        return (self._limit - spent) * log.timed_steps / spent

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
    if unit not in SPENT or not isinstance(limit, int | float) or limit <= 0:
        raise InputError(f"cobalt.budget={section}: {{UNIT: LIMIT}} with one of {', '.join(SPENT)}, above 0")
    return Budget(Path(config.trainer.default_local_dir), unit, limit)
