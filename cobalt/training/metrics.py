"""What veRL 0.5.0 leaves out of its metrics: the reward's parts, a file of them; and the stop when scoring fails."""

import functools
import json
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cobalt.errors import SetupError
from cobalt.training.scoring import INFRA, SCORE_NAMES

METRICS_FILE = "metrics.jsonl"
"""In ``trainer.default_local_dir``."""
PART_PREFIX = "reward_"
WINDOW_STEPS = 4
"""Steps over which the share of infra failures is taken; steps before the first count as free of them."""


def reward_metrics(named_scores: Mapping[str, Any]) -> dict[str, float]:
    """``reward/<name>``: means over the scored samples of a step; ``reward/infra``: the share that was not scored.

    The names are our own, and any other number that a reward function calls ``reward_<name>``.
    """
    if INFRA not in named_scores:
        return {}
    infra_B = np.asarray(named_scores[INFRA], dtype=float)
    scored_B = infra_B == 0
    metrics = {f"reward/{INFRA}": float(infra_B.mean())}
    for name, values in named_scores.items():
        values_B = np.asarray(values)
        is_score = name in SCORE_NAMES or name.startswith(PART_PREFIX)
        if is_score and np.issubdtype(values_B.dtype, np.number) and scored_B.any():
            metrics[f"reward/{name.removeprefix(PART_PREFIX)}"] = float(values_B[scored_B].mean())
    return metrics


def with_reward_metrics(compute_data_metrics: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Wrap veRL's ``compute_data_metrics`` so that the parts reach the log of every step."""

    @functools.wraps(compute_data_metrics)
    def wrapper(batch: Any, use_critic: bool = True) -> dict[str, Any]:
        metrics = compute_data_metrics(batch=batch, use_critic=use_critic)
        return {**metrics, **reward_metrics(batch.non_tensor_batch)}

    return wrapper


def with_metrics_file(tracking: type, path: str | Path) -> type:
    """Subclass of veRL's ``Tracking`` that also appends what it logs to ``path``, one JSON object per call."""

    class TrackingToFile(tracking):
        def log(self, data: Mapping[str, Any], step: int, backend: Any = None) -> None:
            super().log(data=data, step=step, backend=backend)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, **{name: float(value) for name, value in data.items()}}) + "\n")

    return TrackingToFile


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Metrics by step, in order; of a step that was repeated after a resume, the later values."""
    by_step: dict[int, dict[str, float]] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        by_step[record["step"]] = {**by_step.get(record["step"], {}), **record}
    return [by_step[step] for step in sorted(by_step)]


class InfraGuard:
    """Ends training when too many samples could not be scored. veRL calls it as the data set's ``on_batch_end``."""

    def __init__(self, max_infra_rate: float):
        """``max_infra_rate``: share in [0, 1] of samples over the last ``WINDOW_STEPS`` steps that may fail."""
        self.max_infra_rate = max_infra_rate
        self._shares: deque[float] = deque([0.0] * WINDOW_STEPS, maxlen=WINDOW_STEPS)

    def __call__(self, batch: Any) -> None:
        """After each step's metrics are logged; a batch without ``infra`` is one whose scoring failed as a whole.

        Raises ``SetupError`` when the limit is exceeded.
        """
        self._shares.append(reward_metrics(batch.non_tensor_batch).get(f"reward/{INFRA}", 1.0))
        share = sum(self._shares) / WINDOW_STEPS
        if share > self.max_infra_rate:
            raise SetupError(
                f"stopped: {share:.0%} of the samples of the last {WINDOW_STEPS} steps could not be run "
                f"(reward_model.reward_kwargs.max_infra_rate={self.max_infra_rate}); "
                "restore the execution service and start again: training resumes from the last checkpoint"
            )
