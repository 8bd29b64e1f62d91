"""Rewards of responses that the infrastructure failed to score: neutral, so that they teach the policy nothing.

GRPO normalises rewards within a group of responses to one prompt. A failed sample gets the mean of its group's valid
ones, which makes its advantage 0. That shrinks the group's standard deviation and so inflates the other advantages,
so a group with fewer than half of its samples valid is neutralised whole.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence

MIN_VALID_SHARE = 0.5


def neutralise_groups(scores_B: Sequence[float | None], groups_B: Sequence[Hashable]) -> list[float]:
    """Training: ``scores_B`` with each None replaced by its group's mean, and 0 for groups that are mostly None."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups_B):
        members[group].append(index)
    rewards_B = [0.0] * len(scores_B)
    for indices in members.values():
        valid = [score for index in indices if (score := scores_B[index]) is not None]
        if len(valid) < MIN_VALID_SHARE * len(indices):
            continue
        mean = sum(valid) / len(valid)
        for index in indices:
            score = scores_B[index]
            rewards_B[index] = mean if score is None else score
    return rewards_B


def fill_with_mean(scores_B: Sequence[float | None]) -> list[float]:
    """Validation and logs: each None becomes the mean of the others, which leaves their mean as it is (none: NaN)."""
    valid = [score for score in scores_B if score is not None]
    mean = sum(valid) / len(valid) if valid else float("nan")
    return [mean if score is None else score for score in scores_B]
