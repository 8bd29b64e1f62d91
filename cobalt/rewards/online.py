"""Advantages of the online multi-turn baselines: GRPO-MT and VeRPO-MT. Pure; formulas and sources: docs/training.md.

VeRPO-MT is ours. What differs in the third version of VeRPO's paper (arXiv 2601.03525v3) is there to choose:
``density_weights``, a baseline over all turns without division, an outcome that decays.

Shapes: N trajectories of one problem (a group), T turns, K tests, M programs. Turn t of trajectory n counts where
``mask_NT[n, t]`` is true; a trajectory without any such turn is left out, as one that the infrastructure failed.
"""

from collections.abc import Callable

import numpy as np

EPSILON = 1e-6
"""Added to standard deviations, as veRL's GRPO does."""
GAMMA = 0.5
"""Discount per turn, of VeRPO's returns and of GRPO's summed score."""
SMOOTHING = 1.0
"""Failures that each test is credited with, so that no weight vanishes."""
OUTCOME_WEIGHT = 1.0
"""Weight of the trajectory's outcome beside the turn's dense return."""
DIFFICULTY = 2.0
"""How fast ``density_weights`` fall with a test's pass rate: reported of the paper."""
NARROWEST = 1e-3
"""Least bandwidth of the density of pass rates."""


def normalised(values_N: np.ndarray) -> np.ndarray:
    """Values (N,) less their mean, over their sample standard deviation; zeros where all are equal.

    GRPO-MT: of one score for each trajectory of a group, for every token of all of its turns.

    >>> normalised(np.array([0.0, 1.0, 2.0])).round(3).tolist()
    [-1.0, 0.0, 1.0]
    >>> normalised(np.array([0.3, 0.3, 0.3])).tolist()
    [0.0, 0.0, 0.0]
    """
    values_N = np.asarray(values_N, float)
    if values_N.size == 0 or (values_N == values_N[0]).all():
        return np.zeros_like(values_N)
    return (values_N - values_N.mean()) / (values_N.std(ddof=1) + EPSILON)


def against_others(values_N: np.ndarray) -> np.ndarray:
    """Each value minus the mean of the others (of none: 0), undivided: an unbiased baseline.

    >>> against_others(np.array([0.0, 1.0, 2.0])).tolist()
    [-1.5, 0.0, 1.5]
    """
    values_N = np.asarray(values_N, float)
    return values_N - (values_N.sum() - values_N) / max(1, len(values_N) - 1)


def against_all(values_N: np.ndarray) -> np.ndarray:
    """Each value minus the mean of all, undivided.

    >>> against_all(np.array([0.0, 1.0, 2.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    values_N = np.asarray(values_N, float)
    return values_N - values_N.mean()


def discounted_sum(rewards_T: np.ndarray, gamma: float = GAMMA) -> float:
    """Σ γ^t r_t over the turns of one trajectory.

    >>> discounted_sum(np.array([1.0, 1.0, 1.0]), gamma=0.5)
    1.75
    """
    rewards_T = np.asarray(rewards_T, float)
    return float(rewards_T @ gamma ** np.arange(len(rewards_T)))


def weights_of_tests(passed_NK: np.ndarray, smoothing: float = SMOOTHING) -> np.ndarray:
    """Difficulty weights (K,) of tests, summing to 1: the fewer of the N programs pass a test, the more it weighs.

    >>> weights_of_tests(np.array([[True, False], [True, True]])).round(3).tolist()
    [0.333, 0.667]
    """
    passed_NK = np.asarray(passed_NK, bool)
    failures_K = (~passed_NK).sum(0) + smoothing
    return failures_K / failures_K.sum()


def density_weights(passed_NK: np.ndarray) -> np.ndarray:
    """Weights (K,) of tests that fall with the pass rate, over the density of tests that pass about as often.

    So many easy tests weigh no more than a few hard ones. The bandwidth is half the deviation of the rates.

    >>> density_weights(np.array([[True, True, False], [True, True, False]])).round(3).tolist()
    [0.068, 0.068, 1.0]
    """
    passed_NK = np.asarray(passed_NK, bool)
    rates_K = passed_NK.sum(0) / max(1, len(passed_NK))
    width = max(rates_K.std() / 2, NARROWEST)
    densities_K = np.exp(-((rates_K[:, None] - rates_K) ** 2) / (2 * width**2)).sum(1)
    return np.exp(-DIFFICULTY * rates_K) / densities_K


def verpo_mt_advantages(
    passed_NTK: np.ndarray,
    mask_NT: np.ndarray,
    gamma: float = GAMMA,
    outcome_weight: float = OUTCOME_WEIGHT,
    compare: Callable[[np.ndarray], np.ndarray] = normalised,
    weigh: Callable[[np.ndarray], np.ndarray] = weights_of_tests,
    over_all_turns: bool = False,
    outcome_decay: float = 1.0,
) -> np.ndarray:
    """Advantages (N, T) of turns; 0 where ``mask_NT`` is false.

    A turn's reward is the weight of the tests that its program passes. Its return discounts the rewards from there on
    and is compared over the group's programs of that turn, or ``over_all_turns``. The outcome, whether the trajectory's
    last program passes all tests, times ``outcome_decay`` for each turn, is compared over the group's trajectories.
    ``normalised`` is biased where the policy decides when a conversation ends: each turn is divided by a deviation of
    those that came so far. ``against_others`` is not.

    >>> passed_NTK = np.array([[[True, True]], [[True, False]]])
    >>> verpo_mt_advantages(passed_NTK, np.ones((2, 1), bool)).round(3).tolist()
    [[1.414], [-1.414]]
    """
    mask_NT = np.asarray(mask_NT, bool)
    passed_NTK = np.asarray(passed_NTK, bool) & mask_NT[:, :, None]
    rewards_NT = passed_NTK @ weigh(passed_NTK[mask_NT])
    returns_NT, return_N = np.zeros(mask_NT.shape), np.zeros(len(mask_NT))
    turns = range(mask_NT.shape[1])
    for turn in reversed(turns):
        return_N = returns_NT[:, turn] = rewards_NT[:, turn] + gamma * return_N
    advantages_NT = np.zeros(mask_NT.shape)
    for compared in [turns] if over_all_turns else [[turn] for turn in turns]:
        compared_NT = mask_NT & np.isin(turns, compared)
        advantages_NT[compared_NT] = compare(returns_NT[compared_NT])
    played_N = mask_NT.any(1)
    last_N = mask_NT.shape[1] - 1 - mask_NT[:, ::-1].argmax(1)
    solved_NT = np.asarray(passed_NTK.all(2))
    outcome_N = solved_NT[np.arange(len(last_N)), last_N] * outcome_decay ** mask_NT.sum(1)
    advantages_NT[played_N] += outcome_weight * compare(outcome_N[played_N])[:, None]
    return np.where(mask_NT, advantages_NT, 0.0)
