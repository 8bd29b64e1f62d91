"""Pass@k, and bootstrap intervals over problems. Pure.

Samples of one problem share its difficulty, so they are averaged first and problems are resampled (percentile method:
BCa is undefined on constant data). Shapes: P problems, M resamples.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

RESAMPLES = 10_000
RESAMPLES_AT_ONCE = 1000
DRAWS_AT_ONCE = 10_000_000
"""With many problems fewer resamples at once: this bounds memory."""
MANY, FEW_KINDS = 5_000, 1000
"""Of more problems, of so many kinds at most, equal ones are drawn together: the distribution is the same."""
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; ``low`` and ``high`` are None with fewer than two problems."""

    value: float
    low: float | None
    high: float | None


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that k of n samples, drawn without replacement, hold a correct one (Chen et al. 2021, eq. 1).

    >>> pass_at_k(n=4, correct=1, k=2)
    0.5
    """
    if not (0 <= correct <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {correct} correct among {n} samples is not defined")
    return 1 - comb(n - correct, k) / comb(n, k)


def mean_estimate(values_P: Sequence[float], seed: int = 0) -> Estimate:
    """Mean over problems. For a paired comparison give it the differences."""
    return ratio_estimate(values_P, [1.0] * len(values_P), seed)


def ratio_estimate(numerators_P: Sequence[float], denominators_P: Sequence[float], seed: int = 0) -> Estimate:
    """Sum of numerators over sum of denominators, which must not be zero; problems are resampled."""
    numerators, denominators = np.asarray(numerators_P, float), np.asarray(denominators_P, float)
    value = float(numerators.sum() / denominators.sum())
    if len(numerators) < 2:
        return Estimate(value, None, None)

    def ratio(numerator: np.ndarray, denominator: np.ndarray, axis: int = -1) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return numerator.sum(axis) / denominator.sum(axis)

    if (count := len(numerators)) > MANY:
        kinds_2J, times_J = np.unique(np.stack((numerators, denominators)), axis=1, return_counts=True)
        if len(times_J) <= FEW_KINDS:
            drawn_MJ = np.random.default_rng(seed).multinomial(count, times_J / count, RESAMPLES)
            return Estimate(value, *interval_of_resamples(ratio(*(drawn_MJ * kind_J for kind_J in kinds_2J))))
    return Estimate(value, *interval_of_resamples(resample((numerators, denominators), ratio, seed, paired=True)))


def resample(
    data: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], seed: int, paired: bool = False
) -> np.ndarray:
    """The statistic of ``RESAMPLES`` resamples; NaN where it is not defined."""
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # undefined ones are left out of intervals
        result = bootstrap(
            data,
            statistic,
            paired=paired,
            vectorized=True,
            n_resamples=RESAMPLES,
            batch=max(1, min(RESAMPLES_AT_ONCE, DRAWS_AT_ONCE // len(data[0]))),
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    return result.bootstrap_distribution


def interval_of_resamples(resamples_M: np.ndarray) -> tuple[float, float]:
    """What holds the middle ``LEVEL`` of them."""
    low, high = np.nanpercentile(resamples_M, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)
