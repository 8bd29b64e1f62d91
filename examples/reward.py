"""A reward of one's own: a small bonus for comments, on top of the paper's.

bash scripts/train_grpo_multi_turn.sh reward.custom_reward_function.path=$PWD/examples/reward.py
"""

from typing import Any

from cobalt.training.scoring import Batch, Score
from cobalt.training.scoring import compute_score as cobalt_score

BONUS = 0.01


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, batch: Batch | None = None
) -> Score:
    """``score`` is the reward; the other keys are metrics."""
    scores = await cobalt_score(data_source, solution_str, ground_truth, extra_info, batch)
    bonus = BONUS * ("#" in solution_str)
    return {**scores, "score": scores["score"] + bonus, "reward_comment": bonus}
