"""Resamples of seeds and problems by enumeration, coverage of their intervals, pairing, p-values."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import ttest_ind
from test_statistics import bounds

from cobalt import statistics
from cobalt.statistics import Estimate, mean_estimate
from research.seeds import hierarchical_mean, hierarchical_rate, over_trainings


def test_one_seed_in_each_arm_leaves_the_bootstrap_over_problems() -> None:
    generator = np.random.default_rng(4)
    ours, theirs = generator.random((2, 1, 40))
    paired = hierarchical_mean(ours, theirs)
    assert paired is not None and paired.estimate == mean_estimate(list((ours - theirs)[0]))
    alone = hierarchical_mean(ours)
    assert alone is not None and alone.estimate == mean_estimate(list(ours[0]))


def assert_drawn_from(resamples_M: np.ndarray, every: list) -> None:
    """The values, and how often each occurs."""
    values, shares = np.unique(np.round(resamples_M, 6), return_counts=True)
    distinct, times = np.unique(np.round(every, 6), return_counts=True)
    assert list(values) == pytest.approx(list(distinct))
    assert list(shares / shares.sum()) == pytest.approx(list(times / times.sum()), abs=0.02)


def test_resamples_of_two_seeds_and_two_problems_by_enumeration() -> None:
    """Problems are drawn once for both arms; the seeds of each by themselves."""
    ours, theirs = np.array([[0.0, 7.0], [1.0, 30.0]]), np.array([[100.0, 300.0]])
    every_draw = product(product(range(2), repeat=2), product(range(2), repeat=2))
    expected = sorted(
        np.mean([ours[s, p] - theirs[0, p] for s in seeds for p in problems]) for problems, seeds in every_draw
    )
    found = hierarchical_mean(ours, theirs)
    assert found is not None and found.resamples_M is not None
    assert found.value == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert_drawn_from(found.resamples_M, expected)


def test_resamples_of_a_rate_by_enumeration() -> None:
    """Drawn seeds of a problem are pooled; a problem of which no drawn seed has a unit is left out."""
    counted, units = np.array([[1.0, 0.0], [2.0, 3.0]]), np.array([[4.0, 0.0], [4.0, 4.0]])
    found = hierarchical_rate((counted, units))
    assert found is not None and found.resamples_M is not None and found.value == (3 / 8 + 3 / 4) / 2
    expected = []
    for seeds, problems in product(product(range(2), repeat=2), product(range(2), repeat=2)):
        pooled = [
            sum(counted[s, p] for s in seeds) / whole for p in problems if (whole := sum(units[s, p] for s in seeds))
        ]
        expected.append(np.mean(pooled) if pooled else np.nan)
    known_M = found.resamples_M[~np.isnan(found.resamples_M)]
    assert_drawn_from(known_M, [value for value in expected if not np.isnan(value)])


def test_a_problem_counts_where_a_seed_of_each_arm_has_it() -> None:
    nan = np.nan
    ours = np.array([[1.0, nan, 5.0, nan], [3.0, nan, nan, 8.0]])
    found = hierarchical_mean(ours, np.array([[0.0, 9.0, 1.0, nan]]))
    assert found is not None and found.value == (2 + 4) / 2
    assert hierarchical_mean(np.full((2, 3), nan)) is None
    single = hierarchical_mean(np.array([[4.0], [6.0]]))
    assert single is not None and (single.value, single.estimate.low, single.p_value) == (5.0, None, None)


def test_intervals_over_seeds_and_problems_cover_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where trainings differ, intervals over problems alone do not."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    generator = np.random.default_rng(5)
    held, held_by_problems, trials = 0, 0, 200
    for trial in range(trials):
        difficulty_P, luck_S = generator.beta(0.8, 0.8, 100), generator.normal(0, 0.05, 5)
        rates_SP = generator.normal(difficulty_P + luck_S[:, None], 0.1)
        resampled = hierarchical_mean(rates_SP, seed=trial)
        low, high = bounds(resampled and resampled.estimate)
        held += low <= 0.5 <= high
        low, high = bounds(mean_estimate(rates_SP.mean(axis=0), seed=trial))
        held_by_problems += low <= 0.5 <= high
    assert 0.91 <= held / trials <= 0.99
    assert held_by_problems < held - trials / 50


@pytest.mark.parametrize(
    ("trials", "spread"),
    [(100, 0.065), *(pytest.param(600, spread, marks=pytest.mark.slow) for spread in (0.025, 0.04, 0.065))],
)
def test_intervals_of_three_trainings_cover_the_truth(
    monkeypatch: pytest.MonkeyPatch, trials: int, spread: float
) -> None:
    """Two equal arms whose trainings differ as measured; those of the bootstrap do not (docs/method.md)."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    generator, held, held_by_bootstrap = np.random.default_rng(9), 0, 0
    for trial in range(trials):
        difficulty_P = generator.beta(0.8, 0.8, 200)
        found = hierarchical_mean(*(rates_of_three(generator, difficulty_P, spread) for _ in range(2)), seed=trial)
        low, high = bounds(found and found.estimate)
        held += low <= 0 <= high
        low, high = statistics.interval_of_resamples(found.resamples_M)
        held_by_bootstrap += low <= 0 <= high
    print(f"spread {spread}: {held / trials:.3f}, bootstrap {held_by_bootstrap / trials:.3f}")
    assert held / trials >= 0.95 > held_by_bootstrap / trials


def rates_of_three(generator: np.random.Generator, difficulty_P: np.ndarray, between_seeds: float) -> np.ndarray:
    """Of three trainings with their luck, eight samples a problem."""
    luck_S1 = generator.normal(0, between_seeds, (3, 1))
    rates_SP = np.clip(difficulty_P + luck_S1 + generator.normal(0, 0.08, (3, len(difficulty_P))), 0, 1)
    return generator.binomial(8, rates_SP) / 8


def test_few_trainings_have_the_interval_over_them_joined_with_that_over_problems() -> None:
    """By hand: the trainings' means are 1, 2, 3 and 0, 2, so Welch's, and 3 trainings alone, Student's."""
    ours_SP, theirs_SP = np.array([[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]), np.array([[0.0, 0.0], [2.0, 2.0]])
    expected = ttest_ind([1, 2, 3], [0, 2], equal_var=False).confidence_interval()
    found = hierarchical_mean(ours_SP, theirs_SP)
    assert found and bounds(found.over_trainings) == pytest.approx((expected.low, expected.high))
    assert bounds(found.over_problems) == (0, 2)
    half = ((expected.high - 1) ** 2 + 1) ** 0.5
    assert bounds(found.estimate) == pytest.approx((1 - half, 1 + half))
    assert found.welch_p_value == pytest.approx(ttest_ind([1, 2, 3], [0, 2], equal_var=False).pvalue)
    assert bounds(over_trainings([1, 2, 3])[0]) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), rel=1e-3)
    assert over_trainings([1], [2]) == (None, None)
    assert over_trainings([2, 2], [3, 3]) == (Estimate(-1, -1, -1), None)
    fixed, welch = over_trainings([1, 2, 3], [2])
    assert welch is None
    assert fixed and fixed.value == 0 and bounds(fixed)[1] == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_five_trainings_have_the_interval_of_the_bootstrap() -> None:
    found = hierarchical_mean(np.random.default_rng(2).random((5, 30)))
    assert found and found.resamples_M is not None
    assert bounds(found.estimate) == statistics.interval_of_resamples(found.resamples_M)


def p_value_of(*arms: np.ndarray, seed: int = 0) -> float:
    found = hierarchical_mean(*arms, seed=seed)
    assert found is not None and found.p_value is not None
    return found.p_value


def test_p_values_agree_with_the_interval_and_are_never_zero() -> None:
    noise_SP = np.random.default_rng(6).normal(0, 1, (5, 50))
    for shift in np.linspace(-0.6, 0.6, 13):
        found = hierarchical_mean(noise_SP + shift)
        low, high = bounds(found and found.estimate)
        assert (p_value_of(noise_SP + shift) < 0.05) == (not low <= 0 <= high)
    assert p_value_of(np.ones((1, 9))) == 2 / (statistics.RESAMPLES + 1)
    assert p_value_of(noise_SP, noise_SP[[0]] * 0 + noise_SP.mean(axis=0)) == pytest.approx(1, abs=0.05)
    assert p_value_of(np.zeros((2, 9))) == 1


def test_no_difference_gives_few_small_p_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    generator = np.random.default_rng(7)
    assert np.mean([p_value_of(*generator.normal(0, 1, (2, 3, 40))) < 0.05 for _ in range(200)]) <= 0.09
