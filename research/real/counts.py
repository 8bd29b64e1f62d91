#!/usr/bin/env python3
"""What is counted of a model's answers, the file that holds it, and the tables that README.md shows a part of.

python research/real/counts.py                            counts.json as tables
python research/real/counts.py --useful 1.5b              ids of problems that it solves 1 to 7 times of 8
python research/real/counts.py --join DIR/*.counts.json   adds what wordings.py wrote, parts of one run joined
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.extraction import extract_code
from cobalt.records.jsonl import write_whole
from cobalt.statistics import ratio_estimate
from cobalt.tables import in_percent, markdown_table, show

FILE = Path(__file__).with_name("counts.json")
COUNTS: tuple[str, ...] = (
    "answers", "right", "public", "submitted", "no_program", "tokens", "passed", "passed_no_program", "passed_right",
    "kept", "failed", "repaired", "repeated", "failed_repeated")  # fmt: skip
"""Of one problem and turn. ``public``: pass all public tests. ``submitted``: the first such program so far, else the
last, is right. From ``passed`` on by the answer before: it passed or failed the public tests, was right as well; the
new one is right (``kept``, ``repaired``) or has the same program."""

SHARES = {
    "Pass@1": ("right", "answers"),
    "submitted": ("submitted", "answers"),
    "passed, then no program": ("passed_no_program", "passed"),
    "kept": ("kept", "passed_right"),
    "repaired": ("repaired", "failed"),
    "failed, then the same": ("failed_repeated", "failed"),
    "failed, asked anew": ("solved_anew", "unsolved"),
}
"""Column: numerator and denominator, in the words of ``COUNTS``. The last one is made of first answers alone: after one
that is wrong, how often is another one right?"""
OF_FIRST_ANSWERS = 6
"""So many of ``COUNTS`` do not look at the answer before."""


@dataclass(frozen=True)
class Answer:
    """A model's answer and the shares of hidden and public tests that its program passes; None: not known."""

    text: str
    tokens: int
    hidden: float | None = None
    public: float | None = None

    @property
    def program(self) -> str | None:
        return extract_code(self.text)


def counts_of(talks: Iterable[Sequence[Answer]], turns: int) -> list[list[int]]:
    """[turn][one of ``COUNTS``] of one problem."""
    rows_T = [dict.fromkeys(COUNTS, 0) for _ in range(turns)]
    for answers in talks:
        submitted = answers[0] if answers else None
        for turn, answer in enumerate(answers):
            passes, right, program = answer.public == 1, answer.hidden == 1, answer.program
            submitted = submitted if submitted is not None and submitted.public == 1 else answer
            facts = {"answers": True, "right": right, "public": passes, "submitted": submitted.hidden == 1,
                     "no_program": program is None, "tokens": answer.tokens}  # fmt: skip
            if turn:
                before = answers[turn - 1]
                passed, was_right = before.public == 1, before.public == before.hidden == 1
                same = program is not None and program == before.program
                facts |= {"passed": passed, "passed_no_program": passed and program is None, "passed_right": was_right,
                          "kept": was_right and right, "failed": not passed, "repaired": not passed and right,
                          "repeated": same, "failed_repeated": same and not passed}  # fmt: skip
            for name, value in facts.items():
                rows_T[turn][name] += int(value)
    return [list(row.values()) for row in rows_T]


def joined(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One run for each model and stage: parts of it put together."""
    found: dict[Any, dict[str, Any]] = {}
    for run in runs:
        known = found.setdefault((run["model"], run["stage"]["name"]), run)
        if known is not run:
            for name in ("counts", "ids", "infra_errors"):
                known[name] += run[name]
            known["seconds"] = max(known["seconds"], run["seconds"])
    return list(found.values())


def with_ids_once(runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What is stored: each list of ids once; of first answers only what does not look at the answer before."""
    lists: list[list[Any]] = []
    for run in runs:
        order = sorted(range(len(run["ids"])), key=lambda i: str(run["ids"][i]))
        ids = [run["ids"][i] for i in order]
        if ids not in lists:
            lists.append(ids)
        run["counts"] = [[run["counts"][i][0][:OF_FIRST_ANSWERS], *run["counts"][i][1:]] for i in order]
        run["ids"] = lists.index(ids)
    return {"ids": lists, "runs": list(runs)}


def useful(run: dict[str, Any], ids: Sequence[Any]) -> list[Any]:
    """Problems that some first answers solve and some do not."""
    of = [dict(zip(run["columns"], by_turn[0], strict=False)) for by_turn in run["counts"]]
    return [id_ for id_, counts in zip(ids, of, strict=True) if 0 < counts["right"] < counts["answers"]]


def rows(runs: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    """A row for each turn; intervals by problem."""
    for run in runs:
        for turn in range(run["stage"]["turns"]):
            columns = zip(*(by_turn[turn] for by_turn in run["counts"]), strict=True)
            of: dict[str, Sequence[float]] = dict(zip(run["columns"], columns, strict=False))
            if turn == 0:
                solved_P = list(zip(of["right"], of["answers"], strict=True))
                of["unsolved"] = [n - right for right, n in solved_P]
                of["solved_anew"] = [(n - right) * right / max(1, n - 1) for right, n in solved_P]
            pairs = [(of.get(above, ()), of.get(below, ())) for above, below in SHARES.values()]
            cells = [show(in_percent(ratio_estimate(above, below))) if sum(below) else "" for above, below in pairs]
            tokens = f"{sum(of['tokens']) / max(1, sum(of['answers'])):.0f}"
            yield [run["model"], run["stage"]["name"], str(turn), *cells, tokens]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", nargs="+", type=Path, default=[])
    parser.add_argument("--useful", metavar="SIZE")
    parser.add_argument("--counts", type=Path, default=FILE)
    args = parser.parse_args()
    stored = json.loads(args.counts.read_text()) if args.counts.exists() else {"ids": [], "runs": []}
    if args.useful:
        (run,) = (r for r in stored["runs"] if r["stage"]["name"] == "train" and r["model"].endswith(args.useful))
        return print(json.dumps(useful(run, stored["ids"][run["ids"]])))
    if args.join:
        known = [{**run, "ids": list(stored["ids"][run["ids"]])} for run in stored["runs"]]
        stored = with_ids_once(known + joined(json.loads(file.read_text()) for file in args.join))
        write_whole(args.counts, json.dumps(stored, separators=(",", ":")) + "\n")
    print(markdown_table(["model", "wording", "turn", *SHARES, "tokens"], rows(stored["runs"])))


if __name__ == "__main__":
    main()
