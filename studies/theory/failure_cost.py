"""What a failed program costs in the turns that follow it. Pure.

Of a problem's trajectories in which nothing has passed before turn k, those whose program of turn k passed are compared
with those whose program failed, by their mean reward over the turns after k. Problems that have both count. At turn 0
both kinds come from one context; later their histories differ, though all of them hold k failures.

*Best continuation*: the best of m trajectories instead of their mean, m the size of the smaller group, so that none is
the better for being larger. One-step recoverability, which is about the optimal policy, is another thing
(docs/theory.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from cobalt.statistics import Estimate, mean_estimate
from studies.theory.measures import Solved


@dataclass(frozen=True)
class Continuation:
    """After turn k = ``turn``, with ``turns_left`` turns to go; estimates are rewards per turn, None: no problem."""

    turn: int
    turns_left: int
    problems: int
    after_pass: Estimate | None
    after_failure: Estimate | None
    cost: Estimate | None
    """The first minus the second, paired by problem."""
    best_after_pass: Estimate | None
    best_after_failure: Estimate | None
    best_cost: Estimate | None


def continuations(solved: Sequence[Solved]) -> list[Continuation]:
    """One row for each turn but the last; ``solved[problem][trajectory][turn]``."""
    return [_after(solved, turn) for turn in range(len(solved[0][0]) - 1)]


def _after(solved: Sequence[Solved], turn: int) -> Continuation:
    pairs = [pair for pair in (_groups(problem, turn) for problem in solved) if all(pair)]
    sizes_P = [min(map(len, pair)) for pair in pairs]
    means = np.array([[np.mean(group) for group in pair] for pair in pairs]).reshape(-1, 2)
    bests = np.array(
        [[expected_best(group, size) for group in pair] for pair, size in zip(pairs, sizes_P, strict=True)]
    ).reshape(-1, 2)
    turns_left = len(solved[0][0]) - 1 - turn
    return Continuation(turn, turns_left, len(pairs), *_estimates(means), *_estimates(bests))


def _groups(solved_NT: Solved, turn: int) -> tuple[list[float], list[float]]:
    """Mean rewards after ``turn`` of the trajectories that passed there first, and of those that still failed."""
    unsolved = [solved_T for solved_T in solved_NT if not any(solved_T[:turn])]
    after = [float(np.mean(solved_T[turn + 1 :])) for solved_T in unsolved]
    passed, failed = (
        [value for value, solved_T in zip(after, unsolved, strict=True) if solved_T[turn] == wanted]
        for wanted in (True, False)
    )
    return passed, failed


def _estimates(values: np.ndarray) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """Of ``values`` (P, 2): after a pass, after a failure, and the difference."""
    if not len(values):
        return None, None, None
    passed_P, failed_P = values.T
    first, second, cost = (mean_estimate(column_P.tolist()) for column_P in (passed_P, failed_P, passed_P - failed_P))
    return first, second, cost


def expected_best(values: Sequence[float], size: int) -> float:
    """Mean of the largest of ``size`` values that are drawn without replacement.

    >>> expected_best([0.0, 0.0, 1.0], 2)  # two of the three pairs hold the 1
    0.6666666666666666
    """
    return sum(
        value * comb(smaller, size - 1) for smaller, value in enumerate(sorted(values)) if smaller >= size - 1
    ) / comb(len(values), size)
