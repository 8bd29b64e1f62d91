"""How often a MiniCode policy games wrong tests, from evaluated conversations under perturbed feedback (pure).

Cases and opportunities are those of ``studies.hacking.cases``; the habit of a case is known from its program's text.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cobalt.records.jsonl import Record
from studies.hacking.cases import find_cases
from studies.hacking.rates import ABANDONED, CASES, COUNTED, FITTED, Rate, interval
from studies.minicode.habits import Habit
from studies.minicode.recognition import hack_in

DIGITS = 4


def gaming_figures(records: Sequence[Record]) -> dict[str, Any]:
    """Totals, rates in [0, 1] with 95 % intervals over problems (None: of nothing), and cases by turn and by habit.

    ``records``: perturbed and evaluated, so that each is its own row of the data set.
    """
    found = [find_cases(record, record) for record in records]
    rows = [
        {"id": record["id"], "cases": of_problem.cases, **{name: getattr(of_problem, name) for name in COUNTED}}
        for record, of_problem in zip(records, found, strict=True)
    ]
    cases = [case for of_problem in found for case in of_problem.cases]
    opportunities_T = [
        sum(turn_P) for turn_P in zip(*(of_problem.opportunities_T for of_problem in found), strict=True)
    ]
    by_turn = Counter(case.turn for case in cases)
    by_habit = Counter(habit_of_case(case.current_code).value for case in cases)
    return {
        "opportunities": sum(opportunities_T),
        "cases": len(cases),
        "cases_per_opportunity": _estimate(CASES, rows),
        "wrong_test_fitted": _estimate(FITTED, rows),
        "right_program_abandoned": _estimate(ABANDONED, rows),
        "opportunities_by_turn": opportunities_T,
        "cases_by_turn": [by_turn[turn] for turn in range(len(opportunities_T))],
        "cases_by_habit": {habit.value: by_habit[habit.value] for habit in Habit},
    }


def habit_of_case(code: str) -> Habit:
    """The habit of a program that satisfies a wrong test: without a hack in its text it has another rule."""
    return hack_in(code) or Habit.CHANGED_RULE


def _estimate(rate: Rate, rows: Sequence[Record]) -> dict[str, float | None] | None:
    found = interval(rate, rows)
    return found and {name: None if value is None else round(value, DIGITS) for name, value in found.items()}
