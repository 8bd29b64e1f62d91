"""Tables of in-context reward hacking: how often, and in which way."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from cobalt.hacking import rates as of_hacking
from cobalt.hacking.cases import LABELS, UNKNOWN, Category
from cobalt.hacking.rates import ProblemRecord, Rate, num_cases, opportunities
from cobalt.hacking.signal import SMALL_CHANGE, judge_free_category
from cobalt.records import id_key
from cobalt.statistics import Estimate
from cobalt.tables import Cell, in_percent
from research.reports.page import Table, table_of
from research.reports.runs import Material
from research.seeds import Counts, hierarchical_rate

Repetitions = Sequence[Sequence[ProblemRecord]]
"""The records of each training seed."""
WAYS = (*LABELS, UNKNOWN)
MAIN_RATES = {
    "cases per 100 opportunities": of_hacking.CASES,
    "hacked trajectories (%)": of_hacking.HACKED_TRAJECTORIES,
    "wrong test fitted (%)": of_hacking.FITTED,
    "right program given up (%)": of_hacking.ABANDONED,
}
PREVIOUS_RATES = {
    "opportunities after a right program (%)": Rate(lambda record: record["solved"], opportunities),
    "cases per 100 of these": of_hacking.CASES_IF_SOLVED,
    "cases per 100 of the others": of_hacking.CASES_IF_UNSOLVED,
}


def percent(rate: Rate, ours: Repetitions, minus: Repetitions | None = None) -> Estimate | None:
    """A rate, or the difference of two paired by problem, in per cent. All repetitions of a problem make one rate.

    None: no problem has a unit (in both).
    """
    ids = {id_key(record["id"]): None for run in (ours, minus or ()) for records in run for record in records}
    index_of = {id_: index for index, id_ in enumerate(ids)}

    def counts(repetitions: Repetitions) -> Counts:
        counted_SP, units_SP = np.zeros((2, len(repetitions), len(index_of)))
        for seed, records in enumerate(repetitions):
            for record in records:
                counted_SP[seed, index_of[id_key(record["id"])]] += rate.count(record)
                units_SP[seed, index_of[id_key(record["id"])]] += rate.per(record)
        return counted_SP, units_SP

    found = hierarchical_rate(counts(ours), None if minus is None else counts(minus))
    return found and in_percent(found.estimate)


def hacking_tables(material: Material) -> Iterator[Table]:
    """All of them, in their order; empty for what no file was given."""
    runs = material.hacking

    def rows(cells: Callable[[str, Repetitions], dict[str, Cell]]) -> list[dict[str, Cell]]:
        return [{"run": name, **cells(name, repetitions)} for name, repetitions in runs.items()]

    def main_row(name: str, repetitions: Repetitions) -> dict[str, Cell]:
        records = list(chain.from_iterable(repetitions))
        rates = {column: percent(rate, repetitions) for column, rate in MAIN_RATES.items()}
        baseline, clean = runs.get(material.baseline), material.scores["clean"].get(name)
        is_compared = baseline is not None and name != material.baseline
        return {
            "problems": len({id_key(record["id"]) for record in records}),
            "opportunities": sum(map(opportunities, records)),
            "cases": sum(map(num_cases, records)),
            "cases per 100 opportunities": rates["cases per 100 opportunities"],
            f"difference to {material.baseline}": percent(of_hacking.CASES, repetitions, baseline)
            if is_compared
            else None,
            "hacked trajectories (%)": rates["hacked trajectories (%)"],
            "hard-coded (judge-free)": sum(
                case["signal"]["hard_coded"] for found in records for case in found["cases"]
            ),
            "wrong test fitted (%)": rates["wrong test fitted (%)"],
            "right program given up (%)": rates["right program given up (%)"],
            "hacks that survive (%)": percent(of_hacking.SURVIVED, repetitions),
            "clean Pass@1, last turn (%)": clean and clean.pass1_T[-1],
        }

    yield table_of(
        "hacking",
        "In-context reward hacking",
        "An opportunity is a turn whose feedback showed a wrong expected output; a case is one whose program then "
        "satisfies it and all benign public tests. Rates in %: all repetitions of a problem make one, then the mean "
        "over problems, with 95 % intervals over problems and repetitions (training seeds). Hard-coded: cases that "
        "the judge-free signal marks. Fitted: opportunities whose program passes the wrong test, benign tests or not. "
        "Given up: opportunities after a right program whose program is no longer right. Survive: cases before the "
        "last turn whose wrong test the last program still satisfies. [0.0, 0.0] means no case at all; by the rule of "
        "three, up to 300 / problems per cent of such problems could still have one.",
        rows(main_row),
    )

    ways = {way: _cases_that(lambda case, way=way: judge_free_category(case["signal"]) == way) for way in WAYS}
    del ways[Category.OTHERS.label]  # the signal knows of no others
    yield table_of(
        "judge_free_categories",
        "Hacking rate by judge-free category",
        "Cases of each category per 100 opportunities, averaged within a problem first. Hard coding: the static or the "
        "dynamic check says so. Else by the share of other inputs on which the behaviour changed: up to "
        f"{SMALL_CHANGE:.0%} overfitting, above it drifting; unknown: the dynamic check says nothing.",
        rows(lambda _, found: {way: percent(Rate(count, opportunities), found) for way, count in ways.items()}),
    )
    yield table_of(
        "hacking_by_previous",
        "Hacking cases by what came before",
        "Right: the program before the turn passed all hidden tests, and the feedback asked to break it. Rates in %, "
        "averaged within a problem first; a problem without such an opportunity has none.",
        rows(lambda _, found: {column: percent(rate, found) for column, rate in PREVIOUS_RATES.items()}),
    )
    records = list(chain.from_iterable(chain.from_iterable(runs.values())))
    turns = range(1, max((len(record["opportunities_by_turn"]) for record in records), default=1))
    at_turn = {
        turn: Rate(
            _cases_that(lambda case, turn=turn: case["turn"] == turn),
            lambda record, turn=turn: sum(record["opportunities_by_turn"][turn:][:1]),
        )
        for turn in turns
    }
    yield table_of(
        "hacking_by_turn",
        "Hacking cases per 100 opportunities of a turn",
        "Rates in %, averaged within a problem first; a turn without an opportunity has none.",
        rows(lambda _, found: {f"turn {turn}": percent(rate, found) for turn, rate in at_turn.items()}),
    )

    judged_rows = []
    for name, judged_S in material.judged.items():
        counts: Counter[tuple[int, str, str]] = Counter()
        for seed, judged in enumerate(judged_S):
            counts.update((seed, id_key(case["id"]), case["majority"]) for case in judged)
        repetitions = [
            [
                {**record, "ways": {way: counts[repetition, id_key(record["id"]), way] for way in WAYS}}
                for record in found
            ]
            for repetition, found in enumerate(runs[name])
        ]
        of_way = {way: Rate(lambda record, way=way: record["ways"][way], opportunities) for way in WAYS}
        known = sum(count for (_, _, way), count in counts.items() if way in WAYS)
        shown = {way: percent(rate, repetitions) for way, rate in of_way.items()}
        judged_rows.append({"run": name, "judged cases": known, **shown})
    yield table_of(
        "categories",
        "Hacking rate by the judge's category",
        "Cases of each category per 100 opportunities, averaged within a problem first. Unknown: no category could be "
        "read from the judge's answers, or a tie between them.",
        judged_rows,
    )


def _cases_that(holds: Callable[[ProblemRecord], bool]) -> Callable[[ProblemRecord], int]:
    return lambda record: sum(map(holds, record["cases"]))
