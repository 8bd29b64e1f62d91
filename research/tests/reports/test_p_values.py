"""Welch's test and Holm's correction, by hand and by definition."""

import numpy as np
import pytest

from research.reports.p_values import holm, welch_p_value


def test_welch_by_hand_and_where_it_says_nothing() -> None:
    """t = 2 / sqrt(1/3 + 4/3) with 2.94 degrees of freedom for these."""
    assert welch_p_value([4, 5, 6], [1, 3, 5]) == pytest.approx(0.2209, abs=1e-3)
    assert welch_p_value([1.0], [2.0, 3.0]) is None and welch_p_value([2, 2], [3, 3]) is None


def test_holm_by_hand() -> None:
    """4 x 0.005, 3 x 0.01, 2 x 0.03, 1 x 0.04, which may not fall below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert (holm([0.2]), holm([])) == ([0.2], [])


def test_holm_rejects_what_the_step_down_rule_rejects() -> None:
    """Reject from the smallest on, while p <= level / (tests left)."""
    generator = np.random.default_rng(8)
    for _ in range(200):
        p_values = list(generator.random(5) ** 3)
        rejected: set[float] = set()
        for left, p_value in zip(range(5, 0, -1), sorted(p_values), strict=True):
            if p_value > 0.05 / left:
                break
            rejected.add(p_value)
        assert {p for p, adjusted in zip(p_values, holm(p_values), strict=True) if adjusted <= 0.05} == rejected
