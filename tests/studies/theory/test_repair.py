"""Repair on common contexts: which ones count, and what is compared, by hand."""

import json
from pathlib import Path

import pytest

from studies.theory.bound import Compared, Measures, Repair, read_measures, repairs
from studies.theory.trajectories import SIDES

Rates = list[list[float | None]]


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


def values(row: Repair) -> tuple[float, float, float]:
    found = row.rewards
    assert found.first and found.second and found.difference
    return found.second.value, found.first.value, found.difference.value


def test_contexts_after_a_pass_do_not_count(tmp_path: Path) -> None:
    reference: Rates = [[0.5, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]
    step: Rates = [[1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 1, 1]]
    first, second = repairs(measured(tmp_path / "policy.jsonl", (reference, step)))
    assert (first.turn, first.problems, first.contexts) == (1, 1, 3), "the third begins with a pass"
    assert values(first) == pytest.approx((1 / 3, 2 / 3, 1 / 3))
    assert (second.turn, second.contexts) == (2, 2), "nor does the second from here on"
    assert values(second) == pytest.approx((1 / 2, 1 / 2, 0))


def test_problems_count_alike_whatever_they_hold(tmp_path: Path) -> None:
    many: tuple[Rates, Rates] = ([[0, 0]] * 3, [[0, 1]] * 3)
    one: tuple[Rates, Rates] = ([[0, 1], [1, 1]], [[0, 0], [0, 1]])
    (row,) = repairs(measured(tmp_path / "policy.jsonl", many, one))
    assert (row.problems, row.contexts) == (2, 4)
    assert values(row) == (0.5, 0.5, 0.0)


def test_a_program_that_could_not_be_run_leaves_its_context_out_for_both(tmp_path: Path) -> None:
    (row,) = repairs(measured(tmp_path / "policy.jsonl", ([[0, 1], [0, 0]], [[0, None], [0, 1]])))
    assert row.contexts == 1 and values(row) == (0.0, 1.0, 1.0)


def test_a_reference_that_never_fails_leaves_nothing_to_compare(tmp_path: Path) -> None:
    (row,) = repairs(measured(tmp_path / "policy.jsonl", ([[1, 1]], [[1, 1]])))
    assert row == Repair(1, 0, 0, Compared())
