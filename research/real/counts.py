#!/usr/bin/env python3
"""The tables that README.md shows a part of, from what was counted of a model's answers.

python research/real/counts.py
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.records.jsonl import read_json
from cobalt.statistics import ratio_estimate
from cobalt.tables import in_percent, markdown_table, show

FILE = Path(__file__).with_name("counts.json.gz")
"""``ids``: lists of problems. ``runs``: of each, ``columns`` and ``counts`` [problem][turn][column].

Turn 0 has only the first six columns, which do not look at the answer before. ``public``: pass all public tests.
``submitted``: the first such program so far, else the last, is right. From ``passed`` on by the answer before: it
passed or failed the public tests, was right as well; the new one is right (``kept``, ``repaired``) or has the same
program."""

SHARES = {
    "Pass@1": ("right", "answers"),
    "submitted": ("submitted", "answers"),
    "passed, then no program": ("passed_no_program", "passed"),
    "kept": ("kept", "passed_right"),
    "repaired": ("repaired", "failed"),
    "failed, then the same": ("failed_repeated", "failed"),
    "failed, asked anew": ("solved_anew", "unsolved"),
}
"""Column: numerator and denominator. The last one is made of first answers alone: after one that is wrong, how often is
another one right?"""


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
    stored = read_json(FILE)
    print(markdown_table(["model", "wording", "turn", *SHARES, "tokens"], rows(stored["runs"])))


if __name__ == "__main__":
    main()
