"""Pass@k by enumeration, coverage of the intervals."""

from itertools import combinations

import numpy as np
import pytest

from cobalt import statistics
from cobalt.statistics import mean_estimate, pass_at_k, ratio_estimate


@pytest.mark.parametrize("n", range(1, 11))
def test_pass_at_k_by_enumeration(n: int) -> None:
    for correct in range(n + 1):
        samples = [True] * correct + [False] * (n - correct)
        for k in range(1, n + 1):
            draws = [any(draw) for draw in combinations(samples, k)]
            assert pass_at_k(n, correct, k) == pytest.approx(sum(draws) / len(draws), abs=1e-12)


@pytest.mark.parametrize(("n", "correct", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0), (4, -1, 1), (0, 0, 1)])
def test_pass_at_k_outside_its_domain(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, correct, k)


def bounds(estimate: statistics.Estimate | None) -> tuple[float, float]:
    assert estimate is not None and estimate.low is not None and estimate.high is not None
    return estimate.low, estimate.high


@pytest.mark.parametrize(
    ("trials", "problems", "resamples"),
    [(200, 100, 500), *(pytest.param(2000, each, 10_000, marks=pytest.mark.slow) for each in (100, 175, 400))],
)
def test_intervals_cover_the_truth(monkeypatch: pytest.MonkeyPatch, trials: int, problems: int, resamples: int) -> None:
    """For problems of very different difficulty."""
    monkeypatch.setattr(statistics, "RESAMPLES", resamples)
    generator, held = np.random.default_rng(1), 0
    for trial in range(trials):
        rates = generator.binomial(16, generator.beta(0.4, 0.6, problems)) / 16
        low, high = bounds(mean_estimate(rates, seed=trial))
        held += low <= 0.4 <= high
    assert 0.92 <= held / trials <= 0.97


def test_constant_data_and_single_problems() -> None:
    assert mean_estimate([0.5] * 20) == ratio_estimate([1] * 20, [2] * 20)
    assert (mean_estimate([0.25]).value, mean_estimate([0.25]).low) == (0.25, None)


def test_a_ratio_weighs_problems_by_their_size() -> None:
    estimate = ratio_estimate([1, 0, 9], [1, 1, 10])
    assert estimate.value == pytest.approx(10 / 12)
    low, high = bounds(estimate)
    assert 0 <= low <= estimate.value <= high <= 1


def test_estimates_are_seeded() -> None:
    values = np.random.default_rng(3).random(50)
    assert mean_estimate(values, 1) == mean_estimate(values, 1) != mean_estimate(values, 2)


def test_many_problems_take_no_longer_and_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    wholes = generator.integers(1, 5, 1000)
    parts = generator.binomial(wholes, 0.3)
    plain = ratio_estimate(parts, wholes)
    monkeypatch.setattr(statistics, "MANY", 100)
    drawn = ratio_estimate(parts, wholes)
    assert drawn.value == plain.value and bounds(drawn) == pytest.approx(bounds(plain), abs=1e-3)
    assert ratio_estimate(np.tile(parts, 100), np.tile(wholes, 100)).value == plain.value, "100,000 problems"
    monkeypatch.setattr(statistics, "FEW_KINDS", 2)
    assert ratio_estimate(parts, wholes) == plain
    assert bounds(mean_estimate([0.5] * 200)) == (0.5, 0.5)
