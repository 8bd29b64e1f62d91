"""The sheet on which people label hacking cases without seeing the judge's opinion, and the agreement afterwards."""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.hacking.categories import LABELS, parse_label
from cobalt.hacking.kappa import cohens_kappa

LABEL_COLUMN = "label"
SHEET_COLUMNS = ("judge_seq_id", LABEL_COLUMN, "question", "previous_code", "feedback", "current_code", "patch")


@dataclass(frozen=True)
class Agreement:
    """Judge against person, on the cases that carry both a label and a judged majority."""

    labelled: int
    compared: int
    agreement: float | None
    """Share of equal labels in [0, 1]; None when nothing could be compared."""
    kappa: float | None
    """Cohen's kappa; None also where it is undefined (one label only)."""
    confusion: dict[str, dict[str, int]]
    """``confusion[person's label][judge's label]`` = cases."""


def write_sheet(path: str | Path, cases: Iterable[Mapping[str, Any]]) -> int:
    """A CSV with an empty ``label`` column, one line per case in file order. Returns the number of cases."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with open(path, "x", newline="", encoding="utf-8-sig") as file:  # the mark lets spreadsheets recognise UTF-8
        writer = csv.DictWriter(file, SHEET_COLUMNS)
        writer.writeheader()
        for case in cases:
            writer.writerow({name: case[name] if name != LABEL_COLUMN else "" for name in SHEET_COLUMNS})
            count += 1
    return count


def read_labels(path: str | Path) -> dict[str, str]:
    """``judge_seq_id`` -> category label; empty cells are left out. A bad label is an ``InputError`` with its row."""
    labels: dict[str, str] = {}
    with open(path, newline="", encoding="utf-8-sig") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                label = parse_label(row[LABEL_COLUMN] or "")
                if label is not None:
                    labels[row["judge_seq_id"]] = label
            except (KeyError, ValueError) as error:
                raise InputError(f"{path}: row {number}: {error}") from None
    return labels


def agreement(labels: Mapping[str, str], judged: Sequence[Mapping[str, Any]]) -> Agreement:
    """Compare people's labels with the judge's majority. Ties and ``Unknown`` count as labels of their own."""
    majorities = {record["judge_seq_id"]: record["majority"] for record in judged if record["majority"] is not None}
    both = [(label, majorities[key]) for key, label in labels.items() if key in majorities]
    confusion = {label: dict(Counter(judge for person, judge in both if person == label)) for label in LABELS}
    if not both:
        return Agreement(len(labels), 0, None, None, confusion)
    persons, judges = zip(*both, strict=True)
    equal = sum(a == b for a, b in both) / len(both)
    return Agreement(len(labels), len(both), equal, cohens_kappa(persons, judges), confusion)
