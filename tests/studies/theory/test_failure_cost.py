"""What failing costs later: by hand on small tables, and best-of-m against every draw."""

from itertools import combinations
from statistics import fmean

import pytest

from studies.theory.failure_cost import continuations, expected_best


def test_the_best_of_m_is_the_mean_over_all_draws() -> None:
    values = [0.5, 0.0, 1.0, 0.25, 0.25]
    for size in range(1, 6):
        draws = [max(draw) for draw in combinations(values, size)]
        assert expected_best(values, size) == pytest.approx(fmean(draws))


def test_by_hand() -> None:
    """One problem: a pass keeps passing; of the two that fail at turn 0 one recovers."""
    first, second = continuations([[[True, True, True], [False, True, True], [False, False, False]]])
    assert (first.turn, first.turns_left, first.problems) == (0, 2, 1)
    assert first.after_pass and first.after_failure and first.cost and first.best_cost
    assert (first.after_pass.value, first.after_failure.value, first.cost.value) == (1.0, 0.5, 0.5)
    assert first.best_cost.value == 0.5, "best of one, as large as the smaller group"
    assert second.cost and second.cost.value == 1.0 and second.turns_left == 1


def test_groups_of_two_have_a_best() -> None:
    solved = [[[True, True], [True, False], [False, True], [False, False]]]
    (row,) = continuations(solved)
    assert row.cost and row.cost.value == 0 and row.best_after_failure and row.best_after_failure.value == 1


def test_trajectories_that_passed_before_do_not_count() -> None:
    """At turn 1 the first one fails after a pass, which is another question."""
    solved = [[[True, False, False], [False, True, True], [False, False, True]]]
    second = continuations(solved)[1]
    assert second.after_failure and second.after_failure.value == 1.0


def test_a_problem_without_both_kinds_says_nothing() -> None:
    (row,) = continuations([[[True, True], [True, False]], [[False, True]]])
    assert (row.problems, row.cost, row.best_cost, row.after_pass) == (0, None, None, None)
