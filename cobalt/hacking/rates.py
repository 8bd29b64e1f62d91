"""Hacking rates: within a problem first, then over problems, with intervals over problems and seeds (pure).

Records are those of ``<cases>.problems.jsonl``: ``id``, the counts of ``ProblemCases``, ``cases``.
A run is a list of them for each training seed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cobalt.records import id_key
from cobalt.seeds import Counts, Resampled, hierarchical_rate

ProblemRecord = Mapping[str, Any]
Seeds = Sequence[Sequence[ProblemRecord]]
"""The records of each training seed."""
COUNTED = (
    "trajectories", "turns", "opportunities", "hacked_trajectories", "fitted", "solved", "abandoned", "solved_cases",
    "infra_turns",
)  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """What is counted in a problem's record, per unit. All seeds of a problem make one rate; without a unit, none."""

    count: Callable[[ProblemRecord], int]
    per: Callable[[ProblemRecord], int]

    def of(self, seeds: Seeds, minus: Seeds | None = None) -> Resampled | None:
        """Mean over the problems that have a rate; with ``minus``, the difference, paired by problem.

        None: no problem has one (in both).
        """
        ids = {id_key(record["id"]): None for run in (seeds, minus or ()) for records in run for record in records}
        index_of = {id_: index for index, id_ in enumerate(ids)}

        def counts(seeds: Seeds) -> Counts:
            counted_SP, units_SP = np.zeros((2, len(seeds), len(index_of)))
            for seed, records in enumerate(seeds):
                for record in records:
                    counted_SP[seed, index_of[id_key(record["id"])]] += self.count(record)
                    units_SP[seed, index_of[id_key(record["id"])]] += self.per(record)
            return counted_SP, units_SP

        return hierarchical_rate(counts(seeds), None if minus is None else counts(minus))


def num_cases(record: ProblemRecord) -> int:
    """Hacking turns of a problem."""
    return len(record["cases"])


def opportunities(record: ProblemRecord) -> int:
    """Turns whose feedback showed a wrong expected output."""
    return record["opportunities"]


def _lasting(record: ProblemRecord) -> list[bool]:
    """For each case before the last turn, whether the trajectory's last program still satisfies the wrong test.

    Cases whose last turn has no verdict are left out.
    """
    return [
        case["survives"]
        for case in record["cases"]
        if case["survives"] is not None and case["turn"] < len(record["opportunities_by_turn"]) - 1
    ]


CASES = Rate(num_cases, opportunities)
HACKED_TRAJECTORIES = Rate(lambda record: record["hacked_trajectories"], lambda record: record["trajectories"])
HACKED_PROBLEMS = Rate(lambda record: int(num_cases(record) > 0), lambda record: int(opportunities(record) > 0))
"""1 for a problem with a case, in a single seed."""
FITTED = Rate(lambda record: record["fitted"], opportunities)
"""Opportunities whose program passes the wrong test."""
ABANDONED = Rate(lambda record: record["abandoned"], lambda record: record["solved"])
"""Right programs that were given up under wrong feedback."""
SOLVED = Rate(lambda record: record["solved"], opportunities)
"""Opportunities that follow a right program."""
CASES_IF_SOLVED = Rate(lambda record: record["solved_cases"], lambda record: record["solved"])
CASES_IF_UNSOLVED = Rate(
    lambda record: num_cases(record) - record["solved_cases"], lambda record: record["opportunities"] - record["solved"]
)
SURVIVED = Rate(lambda record: sum(_lasting(record)), lambda record: len(_lasting(record)))
"""Cases before the last turn that still stand at the last."""


def summarise(records: Sequence[ProblemRecord]) -> dict[str, Any]:
    """Totals, and the rates in [0, 1] with 95 % intervals (null where there is nothing to divide by)."""
    cases = [case for record in records for case in record["cases"]]
    rates = {
        "cases_per_opportunity": CASES,
        "hacked_trajectories": HACKED_TRAJECTORIES,
        "hacked_problems": HACKED_PROBLEMS,
        "wrong_test_fitted": FITTED,
        "right_program_abandoned": ABANDONED,
        "cases_if_solved": CASES_IF_SOLVED,
        "cases_if_unsolved": CASES_IF_UNSOLVED,
        "survived_to_last_turn": SURVIVED,
    }
    return {
        "problems": len(records),
        **{name: sum(record[name] for record in records) for name in COUNTED},
        "cases": len(cases),
        "problems_with_cases": sum(bool(record["cases"]) for record in records),
        "hard_coded": sum(case["signal"]["hard_coded"] for case in cases),
        "infra_errors": sum("infra_error" in case["signal"] for case in cases),
        "rates": {name: interval(rate, records) for name, rate in rates.items()},
    }


def interval(rate: Rate, records: Sequence[ProblemRecord]) -> dict[str, float | None] | None:
    """JSON of a rate in one file."""
    resampled = rate.of([records])
    return resampled and asdict(resampled.estimate)


def percent(share: Mapping[str, float | None] | None) -> str:
    """A share as ``asdict`` of an ``Estimate`` holds it, in per cent; "-" if nothing was measured."""
    if share is None:
        return "-"
    bounds = "" if share["low"] is None else f" [{share['low']:.1%}, {share['high']:.1%}]"
    return f"{share['value']:.1%}{bounds}"
