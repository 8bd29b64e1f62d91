"""Which problems and trajectories become training contexts: offline dynamic sampling and down-sampling.

Max-variance down-sampling follows PODS (arXiv 2504.13818), applied offline to d = max − min pass rate over the turns
of a trajectory (docs/method.md, "Down-sampling"). The other rules are there to be compared with it.
"""

import random
from collections.abc import Sequence
from enum import Enum

import numpy as np

from cobalt.bandit.evaluated import EvaluatedProblem, Trajectory


class Selection(str, Enum):
    """Which of a problem's trajectories are kept, where there are more than wanted: by their spreads d."""

    MAX_VARIANCE = "max_variance"
    """The most different ones, as the paper does."""
    MIN_VARIANCE = "min_variance"
    """The most alike."""
    RANDOM = "random"
    """Any, without looking at d."""


def solved_at_once(problem: EvaluatedProblem) -> bool:
    """Offline dynamic sampling drops a problem iff every first-turn program passes all tests."""
    return all(trajectory.solved_at_once for trajectory in problem.trajectories)


def max_variance_subset(spreads_N: Sequence[float], size: int) -> list[int]:
    """Indices of the ``size`` entries "(m−k) lowest + k highest", k = 0..m−1, with the largest population variance.

    Entries are ranked by a stable sort, so equal values keep their order; of equal variances the smallest k wins. All
    indices are returned, in order, if there are at most ``size``.

    >>> max_variance_subset([0.5, 0.1, 0.9, 0.4], size=2)
    [1, 2]
    """
    if len(spreads_N) <= size:
        return list(range(len(spreads_N)))
    ranked = np.argsort(spreads_N, kind="stable")
    values = np.asarray(spreads_N, dtype=float)
    candidates = [np.concatenate([ranked[: size - k], ranked[len(ranked) - k :]]) for k in range(size)]
    variances = [np.var(values[candidate]) for candidate in candidates]
    return candidates[int(np.argmax(variances))].tolist()


def min_variance_subset(spreads_N: Sequence[float], size: int) -> list[int]:
    """Indices of the ``size`` entries with the smallest population variance.

    They are neighbours in the order of ``max_variance_subset``; of equal variances the lowest entries win. All indices
    are returned, in order, if there are at most ``size``.

    >>> min_variance_subset([0.5, 0.1, 0.9, 0.4], size=2)
    [3, 0]
    """
    if len(spreads_N) <= size:
        return list(range(len(spreads_N)))
    ranked = np.argsort(spreads_N, kind="stable")
    values = np.asarray(spreads_N, dtype=float)
    candidates = [ranked[start : start + size] for start in range(len(ranked) - size + 1)]
    return candidates[int(np.argmin([np.var(values[candidate]) for candidate in candidates]))].tolist()


def random_subset(number: int, size: int, seed: str) -> list[int]:
    """``size`` of the indices below ``number``, in order; all of them if there are at most ``size``."""
    return sorted(random.Random(seed).sample(range(number), min(size, number)))


def select_for_training(
    trajectories: Sequence[Trajectory],
    max_trajectories: int,
    selection: Selection = Selection.MAX_VARIANCE,
    seed: str = "",
) -> list[Trajectory]:
    """Trajectories that reach a solution and improved on the way, down-sampled to ``max_trajectories``.

    ``seed`` is that of ``Selection.RANDOM``.
    """
    improved = [t for t in trajectories if t.spread > 0 and max(t.pass_rates_T) == 1]
    spreads_N = [t.spread for t in improved]
    if selection is Selection.RANDOM:
        chosen = random_subset(len(improved), max_trajectories, seed)
    elif selection is Selection.MIN_VARIANCE:
        chosen = min_variance_subset(spreads_N, max_trajectories)
    else:
        chosen = max_variance_subset(spreads_N, max_trajectories)
    return [improved[i] for i in chosen]


def select_for_validation(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The single trajectory with the lowest d > 0, if there is one; the first in the file among equals."""
    changed = [t for t in trajectories if t.spread > 0]
    return [min(changed, key=lambda t: t.spread)] if changed else []
