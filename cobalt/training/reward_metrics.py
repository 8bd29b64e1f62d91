"""A training step's reward in numbers that are logged: means of its parts, and the share that was not scored."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cobalt.training.scoring import INFRA, SCORE_NAMES

PART_PREFIX = "reward_"


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
