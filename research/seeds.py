"""Statistics over problems and trainings (seeds): means, rates and their differences. Pure.

Shapes: P problems, S seeds, M resamples.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

import numpy as np

from cobalt.statistics import LEVEL, Estimate, interval_of_resamples, mean_estimate, resample

FEW_TRAININGS = 5
"""With fewer in an arm the bootstrap's intervals are too short where trainings differ (docs/method.md)."""
DIGITS = 9
"""Kept of a resample that is compared with 0: the rest is rounding noise."""

Counts = tuple[np.ndarray, np.ndarray]
"""What was counted and its units, both [S, P]; a rate is the first over the second."""


@dataclass(frozen=True)
class Resampled:
    """A mean, and the means of its bootstrap resamples: None with fewer than two problems."""

    value: float
    resamples_M: np.ndarray | None
    over_trainings: Estimate | None = None
    """With Student's interval over trainings, Welch's of a difference; None if every arm has one."""
    welch_p_value: float | None = None
    """Of Welch's t-test: do *trainings* differ, whatever the problems? None where an arm has one, or none differ."""
    over_problems: Estimate | None = None
    """With the interval over problems, trainings as they are. Only where an arm has few."""

    @property
    def estimate(self) -> Estimate:
        """The value with its interval: of the resamples, or with few trainings of trainings and problems, joined.

        Joined: the root of the sum of squares on each side (Zou and Donner 2008), so it holds both of them.
        """
        if self.resamples_M is None:
            return Estimate(self.value, None, None)
        parts = [part for part in (self.over_trainings, self.over_problems) if part is not None]
        if len(parts) < 2:
            return Estimate(self.value, *interval_of_resamples(self.resamples_M))
        known = [(part.value, part.low, part.high) for part in parts if part.low is not None and part.high is not None]
        below = hypot(*(value - low for value, low, _ in known))
        above = hypot(*(high - value for value, _, high in known))
        return Estimate(self.value, self.value - below, self.value + above)

    @property
    def p_value(self) -> float | None:
        """Two-sided, for a mean of 0: twice the share of resamples that lie on the smaller side of 0, or at 0.

        The data count as one more resample (Davison and Hinkley 1997, section 4.2), so that it is never 0.
        """
        if self.resamples_M is None:
            return None
        known_M = np.round(self.resamples_M[~np.isnan(self.resamples_M)], DIGITS)
        below, above = int(np.sum(known_M <= 0)), int(np.sum(known_M >= 0))
        return min(1.0, 2 * (min(below, above) + 1) / (len(known_M) + 1))


def hierarchical_mean(values_SP: np.ndarray, minus_SP: np.ndarray | None = None, seed: int = 0) -> Resampled | None:
    """Mean over problems of the mean over training seeds; with ``minus_SP``, its difference to that of another arm.

    NaN: no value. It is ``hierarchical_rate`` where each value is one unit: with one seed in each arm,
    ``mean_estimate`` of the differences.
    """

    def one_unit_each(values_SP: np.ndarray) -> Counts:
        known_SP = ~np.isnan(values_SP)
        return np.where(known_SP, values_SP, 0.0), known_SP

    return hierarchical_rate(one_unit_each(values_SP), None if minus_SP is None else one_unit_each(minus_SP), seed)


def hierarchical_rate(counts: Counts, minus: Counts | None = None, seed: int = 0) -> Resampled | None:
    """Mean over problems of the rate that all seeds of a problem have together; with ``minus``, the difference.

    A problem counts if it has a unit (in both arms); None: no problem does. All seeds of all arms have met the same
    problems. So a resample draws problems once for all of them, and beside them the seeds of each arm: the pigeonhole
    bootstrap (Owen 2007, doi 10.1214/07-AOAS122), slightly conservative where seeds differ in which problems they
    solve. Arms are paired on problems, not on seeds. An arm with one seed keeps it. With fewer than ``FEW_TRAININGS``
    the interval is another (``Resampled.estimate``).
    """
    arms = [counts] if minus is None else [counts, minus]
    measured_P = np.all([units_SP.any(axis=0) for _, units_SP in arms], axis=0)
    arms = [(counted_SP[:, measured_P], units_SP[:, measured_P]) for counted_SP, units_SP in arms]
    if not measured_P.any():
        return None

    def mean(problems_MP: np.ndarray, *seeds_MS: np.ndarray, axis: int = -1) -> np.ndarray:
        drawn, rates_MP = iter(seeds_MS), []
        for counted_SP, units_SP in arms:
            if len(units_SP) > 1:  # else the only seed counts once, in every resample
                times_MS = np.sum(next(drawn)[:, :, None] == np.arange(len(units_SP)), axis=1)
                counted_SP, units_SP = times_MS @ counted_SP, times_MS @ units_SP
            rates_MP.append(_divide(counted_SP, units_SP))
        difference_MP = rates_MP[0] if minus is None else rates_MP[0] - rates_MP[1]
        return nanmean(np.take_along_axis(difference_MP, problems_MP, axis), axis)

    problems = np.arange(measured_P.sum())
    indices = [problems, *(np.arange(len(units_SP)) for _, units_SP in arms if len(units_SP) > 1)]
    value = float(mean(*(index[None] for index in indices))[0])
    if len(problems) < 2:
        return Resampled(value, None)
    resamples_M = resample(indices, mean, seed)
    over, welch = over_trainings(*(nanmean(_divide(*arm), 1) for arm in arms))
    if all(len(units_SP) == 1 or len(units_SP) >= FEW_TRAININGS for _, units_SP in arms):
        return Resampled(value, resamples_M, over, welch)
    rates_P, *minus_P = (_divide(counted_SP.sum(axis=0), units_SP.sum(axis=0)) for counted_SP, units_SP in arms)
    return Resampled(value, resamples_M, over, welch, mean_estimate((rates_P - sum(minus_P)).tolist(), seed))


def over_trainings(
    ours_S: Sequence[float] | np.ndarray, minus_S: Sequence[float] | np.ndarray = (0,)
) -> tuple[Estimate | None, float | None]:
    """Mean, or difference of means, with Student's interval over trainings, and the p-value of Welch's t-test.

    With Welch's degrees of freedom. An arm with a single value is taken as it is. No interval: both have one; no
    p-value: one has, or none differ.
    """
    from scipy.stats import ttest_1samp, ttest_ind

    arms = [values_S[~np.isnan(values_S)] for values_S in (np.asarray(ours_S, float), np.asarray(minus_S, float))]
    few, many = sorted(len(values_S) for values_S in arms)
    if many < 2:
        return None, None
    value = float(np.mean(arms[0]) - np.mean(arms[1]))
    if all(np.ptp(values_S) == 0 for values_S in arms):
        return Estimate(value, value, value), None
    with warnings.catch_warnings(action="ignore"):  # of an arm whose trainings are equal
        found: Any = ttest_ind(*arms, equal_var=False) if few > 1 else ttest_1samp(arms[0] - arms[1], 0)
    low, high = map(float, found.confidence_interval(LEVEL))
    return Estimate(value, low, high), float(found.pvalue) if few > 1 else None


def nanmean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean over the numbers along ``axis``; NaN where there is none."""
    return _divide(np.nansum(values, axis=axis), np.sum(~np.isnan(values), axis=axis))


def _divide(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.divide(sums, counts, out=np.full(np.shape(counts), np.nan), where=counts > 0)
