#!/usr/bin/env python3
"""What feedback is worth before any training: Pass@1 of the next program minus that of another first one, by context.

python research/real/feedback_gap.py                        prints the table of feedback_gap.json.gz
python research/real/feedback_gap.py --collect NAME=FILE ... first counts these evaluated trajectories

A context ends with the feedback on a program. The next program was written with program and feedback in view; the
other one is the first program of each other trajectory of the same problem, written without. Both count as right if
they pass all tests. Differences are paired by problem.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.bandit.evaluated import (
    EVALUATED_FIELDS,
    MESSAGES_PER_TURN,
    OPENING_MESSAGES,
    parse_problem,
)
from cobalt.cli.entry import exit_codes
from cobalt.errors import InputError
from cobalt.prompts import ALL_PASSED_START, EXPECTED_LABEL, INPUT_LABEL, feedback_of_message
from cobalt.records.jsonl import read_json, read_jsonl
from cobalt.statistics import ratio_estimate
from cobalt.tables import in_percent, markdown_table, show

FILE = Path(__file__).with_name("feedback_gap.json.gz")
"""By name of a set, of each problem: how many other trajectories one has, and for each of ``SAID`` the contexts, the
right next programs, and the right first programs of other trajectories, summed over contexts."""
PASSED, WRONG, CRASHED, TIMED_OUT, NO_PROGRAM = SAID = "passed", "wrong answer", "crashed", "timed out", "no program"
"""What the public tests said of a context's last program."""
ROWS = {"all": SAID, "failed": SAID[1:], **{said: (said,) for said in SAID}}
"""Row of the table, and what it joins."""


def kind_of(message: str) -> str:
    """What a feedback message says of the program before it."""
    feedback = feedback_of_message(message) or ""
    if feedback.startswith(ALL_PASSED_START):
        return PASSED
    if not feedback.startswith(INPUT_LABEL):
        return NO_PROGRAM
    if "\nTimeoutError: Program timed out after " in feedback:
        return TIMED_OUT
    return WRONG if f"\n{EXPECTED_LABEL}" in feedback else CRASHED


def counted(path: Path) -> list[list[Any]]:
    """The counts of a file of evaluated trajectories. Problems with a single trajectory are left out."""
    found = []
    for row in read_jsonl(path, EVALUATED_FIELDS):
        trajectories = parse_problem(row).trajectories
        if len(trajectories) < 2:
            continue
        firsts = sum(trajectory.pass_rates_T[0] == 1 for trajectory in trajectories)
        sums = {said: [0, 0, 0] for said in SAID}
        for trajectory in trajectories:
            feedback_T = trajectory.conversation[OPENING_MESSAGES + 1 :: MESSAGES_PER_TURN]
            others = firsts - (trajectory.pass_rates_T[0] == 1)
            for message, rate in zip(feedback_T, trajectory.pass_rates_T[1:], strict=False):
                total = sums[kind_of(message["content"])]
                total[:] = total[0] + 1, total[1] + (rate == 1), total[2] + others
        found.append([len(trajectories) - 1, *sums.values()])
    return found


def rows(sets: dict[str, list[list[Any]]]) -> Iterator[list[str]]:
    """A row for each set and kind of context, with intervals over problems."""
    for name, problems in sets.items():
        for label, kinds in ROWS.items():
            places = [SAID.index(kind) for kind in kinds]
            sums_P = [
                [sum(of_kind[place][column] for place in places) for column in range(3)] for _, *of_kind in problems
            ]
            found = [
                (count, after, first / others)
                for (count, after, first), (others, *_) in zip(sums_P, problems, strict=True)
                if count
            ]
            if found:
                count_P, next_P, first_P = zip(*found, strict=True)
                more_P = [after - first for after, first in zip(next_P, first_P, strict=True)]
                shares = [show(in_percent(ratio_estimate(of_P, count_P))) for of_P in (next_P, first_P, more_P)]
                yield [name, label, f"{sum(count_P):,}", f"{len(found):,}", *shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", nargs="+", metavar="NAME=FILE", default=[])
    given = [text.partition("=") for text in parser.parse_args().collect]
    if missing := [path for _, _, path in given if not Path(path).is_file()]:
        raise InputError(f"--collect {missing[0]}: no such file; give NAME=FILE")
    if given:
        sets = {name: counted(Path(path)) for name, _, path in given}
        FILE.write_bytes(gzip.compress(json.dumps(sets, separators=(",", ":")).encode(), mtime=0))
    header = ["set", "context", "contexts", "problems", "next program", "another first", "difference"]
    print(markdown_table(header, rows(read_json(FILE))))


if __name__ == "__main__":
    with exit_codes():
        main()
