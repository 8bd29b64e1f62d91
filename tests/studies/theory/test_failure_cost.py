"""What failing costs later: by hand on small tables, and best-of-m against every draw."""

from itertools import combinations
from statistics import fmean

import pytest

from studies.theory.bound import Compared, continuations, expected_best


def test_the_best_of_m_is_the_mean_over_all_draws() -> None:
    values = [0.5, 0.0, 1.0, 0.25, 0.25]
    for size in range(1, 6):
        draws = [max(draw) for draw in combinations(values, size)]
        assert expected_best(values, size) == pytest.approx(fmean(draws))


def test_by_hand() -> None:
    """One problem: a pass keeps passing; of the two that fail at turn 0 one recovers."""
    first, second = continuations([[[True, True, True], [False, True, True], [False, False, False]]])
    assert (first.turn, first.turns_left, first.problems) == (0, 2, 1)
    assert first.mean.first and first.mean.second and first.mean.difference and first.best.difference
    assert (first.mean.first.value, first.mean.second.value, first.mean.difference.value) == (1.0, 0.5, 0.5)
    assert first.best.difference.value == 0.5, "best of one, as large as the smaller group"
    assert second.mean.difference and second.mean.difference.value == 1.0 and second.turns_left == 1


def test_groups_of_two_have_a_best() -> None:
    solved = [[[True, True], [True, False], [False, True], [False, False]]]
    (row,) = continuations(solved)
    assert row.mean.difference and row.mean.difference.value == 0 and row.best.second and row.best.second.value == 1


def test_trajectories_that_passed_before_do_not_count() -> None:
    """At turn 1 the first one fails after a pass, which is another question."""
    solved = [[[True, False, False], [False, True, True], [False, False, True]]]
    second = continuations(solved)[1]
    assert second.mean.second and second.mean.second.value == 1.0


def test_a_problem_without_both_kinds_says_nothing() -> None:
    (row,) = continuations([[[True, True], [True, False]], [[False, True]]])
    assert (row.problems, row.mean, row.best) == (0, Compared(), Compared())
