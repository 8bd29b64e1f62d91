"""A training step in numbers that are logged: means of the reward's parts, the share not scored, and costs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cobalt.training.scoring import INFRA, SCORE_NAMES

PART_PREFIX = "reward_"
COST_PREFIX = "cost_"
"""Of columns that sum up to a cost of the step."""


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


def shared_costs(phase: str, costs: Mapping[str, float], rows: int) -> dict[str, list[float]]:
    """Costs of a batch as columns whose sums they are: veRL carries numbers from phase to phase by row only."""
    return {f"{COST_PREFIX}{phase}_{name}": [value / rows] * rows for name, value in costs.items()}


def cost_metrics(batch: Any) -> dict[str, float]:
    """``cost/<name>``: what a step took beside seconds: sums of the ``cost_`` columns, and tokens.

    ``batch`` is veRL's: ``attention_mask`` (B, prompt + response), ``response_mask`` (B, response).
    """
    columns = batch.non_tensor_batch.items()
    mask, width = batch.batch["attention_mask"], batch.batch["response_mask"].shape[1]
    return {
        **{f"cost/{name[len(COST_PREFIX) :]}": float(np.sum(v)) for name, v in columns if name.startswith(COST_PREFIX)},
        "cost/responses": int((batch.batch["response_mask"].sum(-1) > 0).sum()),
        "cost/prompt_tokens": int(mask[:, :-width].sum()),
        "cost/response_tokens": int(mask[:, -width:].sum()),
    }
