"""The figures of ``cobalt minicode3 probe``, from its records alone (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cobalt.records import id_key
from cobalt.records.jsonl import Record
from cobalt.statistics import Estimate, mean_estimate
from cobalt.tables import in_percent, markdown_table, show
from studies.minicode3.changes import values_in

WHOLE, CHANGED = "whole", "changed value"
OWN, OTHER, AGAIN = "own feedback", "another problem's feedback", "no feedback, a second first try"
"""What a record is of, beside the cuts (``cut_to``): the last part of its id."""
FOLLOWS, UNCHANGED, NEITHER, CONTROL = "follow the change", "as if unchanged", "neither", "without the change: right"
VALUES = {"values of the step": 1, "values to the end": None}
"""Probe, and how many of the later values are compared; None: all."""


def cut_to(tokens: int) -> str:
    return f"cut to {tokens}"


def longer_than(tokens: int, arm: str) -> str:
    return f"longer than {tokens}: {arm}"


def outcomes(records: Iterable[Record], cuts: Sequence[int]) -> Iterator[tuple[str, str, Any, bool]]:
    """What is counted: probe, row, the problem's id, and whether it is so."""
    whole: dict[str, bool] = {}
    for record in records:
        problem, sample, arm = record["id"]
        passed: bool = record.get("passed", False)
        if arm == WHOLE:
            whole[id_key([problem, sample])] = passed
            yield "thinking", WHOLE, problem, passed
            for cut in cuts:
                if record["thinking_tokens"] <= cut:  # the cut would leave it whole
                    yield "thinking", cut_to(cut), problem, passed
        elif arm == CHANGED:
            said = values_in(record["response"].removeprefix(record["begun"]), len(record["right"]))
            for probe, end in VALUES.items():
                right, wrong = record["right"][:end], record["wrong"][:end]
                yield probe, FOLLOWS, problem, said[:end] == wrong
                yield probe, UNCHANGED, problem, said[:end] == right
                yield probe, NEITHER, problem, said[:end] not in (right, wrong)
                yield probe, CONTROL, problem, record["own"][:end] == right
        elif arm in (OWN, OTHER, AGAIN):
            yield "repair", arm, problem, passed
        else:
            cut = next(cut for cut in cuts if cut_to(cut) == arm)
            yield "thinking", arm, problem, passed
            yield "thinking", longer_than(cut, WHOLE), problem, whole[id_key([problem, sample])]
            yield "thinking", longer_than(cut, arm), problem, passed


def summary_rows(records: Iterable[Record], cuts: Sequence[int]) -> list[dict[str, Any]]:
    """Per probe and row: a share in [0, 1] with its interval, and its difference to another row, paired by problem."""
    # The rows in their order, with what is subtracted. All thinking is longer than nothing.
    minus: dict[tuple[str, str], str | None] = {("thinking", WHOLE): None}
    minus |= {("thinking", cut_to(cut)): WHOLE for cut in cuts}
    for cut in filter(None, cuts):
        whole, short = longer_than(cut, WHOLE), longer_than(cut, cut_to(cut))
        minus |= {("thinking", whole): None, ("thinking", short): whole}
    minus |= {(probe, row): None for probe in VALUES for row in (FOLLOWS, UNCHANGED, NEITHER, CONTROL)}
    minus |= {("repair", OWN): None, ("repair", OTHER): OWN, ("repair", AGAIN): OWN}

    counts: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(dict)
    for probe, row, problem, is_so in outcomes(records, cuts):
        pair = counts[probe, row].setdefault(id_key(problem), [0, 0])
        pair[:] = pair[0] + is_so, pair[1] + 1

    def rates(probe: str, row: str) -> dict[str, float]:
        return {problem: so / of for problem, (so, of) in counts[probe, row].items()}

    rows = []
    for (probe, row), other in minus.items():
        if not (own := rates(probe, row)):
            continue
        figures = {"probe": probe, "row": row, "share": asdict(mean_estimate([*own.values()]))}
        if other is not None:
            theirs = rates(probe, other)
            differences_P = [rate - theirs[problem] for problem, rate in own.items() if problem in theirs]
            figures |= {"minus": other, "difference": asdict(mean_estimate(differences_P)) if differences_P else None}
        by_problem = counts[probe, row]
        rows.append({**figures, "responses": sum(of for _, of in by_problem.values()), "by_problem": by_problem})
    return rows


def summary_table(rows: Iterable[Mapping[str, Any]]) -> str:
    def percent(estimate: Mapping[str, Any] | None) -> str:
        return show(in_percent(Estimate(**estimate) if estimate else None))

    columns = ["probe", "row", "share, %", "difference, points", "to", "responses", "problems"]
    lines = []
    for row in rows:
        shares = percent(row["share"]), percent(row.get("difference")), row.get("minus", "")
        lines.append([row["probe"], row["row"], *shares, str(row["responses"]), str(len(row["by_problem"]))])
    return markdown_table(columns, lines)
