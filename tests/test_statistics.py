"""Pass@k by enumeration, coverage of the intervals, pairing."""

from itertools import combinations

import numpy as np
import pytest

from cobalt.statistics import mean_estimate, pass_at_k, ratio_estimate


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_by_enumeration(n: int) -> None:
    for correct in range(n + 1):
        samples = [True] * correct + [False] * (n - correct)
        for k in range(1, n + 1):
            draws = [any(draw) for draw in combinations(samples, k)]
            assert pass_at_k(n, correct, k) == pytest.approx(sum(draws) / len(draws), abs=1e-12)


def test_pass_at_k_is_unbiased() -> None:
    """Its expectation over n samples of a problem with success probability p is 1 - (1 - p)^k."""
    generator = np.random.default_rng(0)
    correct = generator.binomial(16, 0.2, 20_000)
    estimate = np.mean([pass_at_k(16, int(c), 4) for c in correct])
    assert estimate == pytest.approx(1 - 0.8**4, abs=0.005)


@pytest.mark.parametrize(("n", "correct", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0), (4, -1, 1), (0, 0, 1)])
def test_pass_at_k_outside_its_domain(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, correct, k)


def coverage(trials: int, problems: int, samples: int) -> float:
    """Share of intervals that hold the true mean, for problems of very different difficulty."""
    generator = np.random.default_rng(1)
    held = 0
    for trial in range(trials):
        difficulty = generator.beta(0.4, 0.6, problems)
        rates = generator.binomial(samples, difficulty) / samples
        estimate = mean_estimate(rates, seed=trial)
        assert estimate.low is not None and estimate.high is not None
        held += estimate.low <= 0.4 <= estimate.high
    return held / trials


def test_intervals_cover_the_truth() -> None:
    assert 0.92 <= coverage(trials=200, problems=100, samples=16) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("problems", [100, 175, 400])
def test_intervals_cover_the_truth_in_2000_trials(problems: int) -> None:
    assert 0.92 <= coverage(trials=2000, problems=problems, samples=16) <= 0.97


def test_paired_differences_are_tighter() -> None:
    generator = np.random.default_rng(2)
    base = generator.beta(0.4, 0.6, 150)
    ours = np.clip(base + 0.05, 0, 1)
    paired = mean_estimate(ours - base)
    assert paired.low is not None and paired.high is not None
    assert 0 < paired.low < paired.value < paired.high < 0.055
    unpaired = mean_estimate(ours)
    assert unpaired.low is not None and unpaired.high is not None
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 10


def test_constant_data_and_single_problems() -> None:
    assert mean_estimate([0.5] * 20) == ratio_estimate([1] * 20, [2] * 20)
    assert (mean_estimate([0.25]).value, mean_estimate([0.25]).low) == (0.25, None)


def test_a_ratio_weighs_problems_by_their_size() -> None:
    estimate = ratio_estimate([1, 0, 9], [1, 1, 10])
    assert estimate.value == pytest.approx(10 / 12)
    assert estimate.low is not None and estimate.high is not None
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_estimates_are_seeded() -> None:
    values = np.random.default_rng(3).random(50)
    assert mean_estimate(values, 1) == mean_estimate(values, 1) != mean_estimate(values, 2)
