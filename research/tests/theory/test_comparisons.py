"""Comparisons by hand on small tables: what failing costs later, repair on common contexts."""

import json
from pathlib import Path

import pytest

from research.theory.bound import (
    SIDES,
    Compared,
    Measures,
    Repair,
    continuations,
    read_measures,
    repairs,
)  # fmt: skip

Rates = list[list[float | None]]


def values(found: Compared) -> tuple[float, float, float]:
    assert found.first and found.second and found.difference
    return found.first.value, found.second.value, found.difference.value


def test_what_failing_costs() -> None:
    """A pass keeps passing; of the two that fail at turn 0 one recovers."""
    first, second = continuations([[[True, True, True], [False, True, True], [False, False, False]]])
    assert (first.turn, first.turns_left, first.problems) == (0, 2, 1)
    assert values(first.mean) == (1.0, 0.5, 0.5)
    assert values(first.best)[2] == 0.5, "best of one, as large as the smaller group"
    assert values(second.mean)[2] == 1.0 and second.turns_left == 1
    (groups_of_two,) = continuations([[[True, True], [True, False], [False, True], [False, False]]])
    assert values(groups_of_two.mean)[2] == 0 and values(groups_of_two.best)[1] == 1
    # Trajectories that passed before do not count: at turn 1 the first one fails after a pass.
    second = continuations([[[True, False, False], [False, True, True], [False, False, True]]])[1]
    assert values(second.mean)[1] == 1.0
    # A problem without both kinds says nothing.
    (row,) = continuations([[[True, True], [True, False]], [[False, True]]])
    assert (row.problems, row.mean, row.best) == (0, Compared(), Compared())


def measured(path: Path, *problems: tuple[Rates, Rates]) -> Measures:
    """Of pairs: the reference's pass rates, and those of a policy in the same contexts."""
    rows = [
        {
            "id": number,
            "own_pass_rates": reference,
            "reference_pass_rates": reference,
            "step_pass_rates": step,
            **{name: {side: [[0.0] * len(r) for r in reference] for side in SIDES} for name in ("kl", "log_ratio")},
        }
        for number, (reference, step) in enumerate(problems)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_measures(path)


def test_contexts_after_a_pass_do_not_count(tmp_path: Path) -> None:
    reference: Rates = [[0.5, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]
    step: Rates = [[1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 1, 1]]
    first, second = repairs(measured(tmp_path / "policy.jsonl", (reference, step)))
    assert (first.turn, first.problems, first.contexts) == (1, 1, 3), "the third begins with a pass"
    assert values(first.rewards) == pytest.approx((2 / 3, 1 / 3, 1 / 3))
    assert (second.turn, second.contexts) == (2, 2), "nor does the second from here on"
    assert values(second.rewards) == pytest.approx((1 / 2, 1 / 2, 0))


def test_problems_count_alike_and_a_program_that_could_not_be_run_leaves_its_context_out(tmp_path: Path) -> None:
    path = tmp_path / "policy.jsonl"
    many: tuple[Rates, Rates] = ([[0, 0]] * 3, [[0, 1]] * 3)
    one: tuple[Rates, Rates] = ([[0, 1], [1, 1]], [[0, 0], [0, 1]])
    (row,) = repairs(measured(path, many, one))
    assert (row.problems, row.contexts) == (2, 4)
    assert values(row.rewards) == (0.5, 0.5, 0.0)
    (row,) = repairs(measured(path, ([[0, 1], [0, 0]], [[0, None], [0, 1]])))
    assert row.contexts == 1 and values(row.rewards) == (1.0, 0.0, 1.0)
    (never_failed,) = repairs(measured(path, ([[1, 1]], [[1, 1]])))
    assert never_failed == Repair(1, 0, 0, Compared())
