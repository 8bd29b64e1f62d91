"""What ``cobalt theory measure`` writes, one record per problem, and how it is read back. Pure but for reading.

A reward is 1 if a program passes all hidden tests, else 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cobalt.errors import InputError
from cobalt.records import read_jsonl
from cobalt.records.jsonl import Record
from studies.theory.contexts import SIDES, Rates

FIELDS = ("id", "own_pass_rates", "reference_pass_rates", "step_pass_rates", "kl", "log_ratio")
"""Pass rates and distances are ``[trajectory][turn]``; ``kl`` and ``log_ratio`` hold a table for each side."""

Table = Sequence[Sequence[float | None]]
Solved = list[list[bool]]


def total_variation(log_ratio: float) -> float:
    """What one response of π adds to the mean that is TV(π, π_ref): max(0, 1 − π_ref/π), in [0, 1].

    >>> total_variation(-3.0), round(total_variation(math.log(2)), 3)
    (0.0, 0.5)
    """
    return -math.expm1(-log_ratio) if log_ratio > 0 else 0.0


@dataclass(frozen=True)
class Measures:
    """One policy against its reference, over P problems and T turns; means over samples within each problem.

    ``own_PT``, ``step_PT``: rewards at each turn of the policy's own play, and of single completions on the reference's
    contexts. ``kl_PT``, ``log_ratio_PT``, ``tv_PT``: by side.
    """

    name: str
    own_PT: np.ndarray
    step_PT: np.ndarray
    kl_PT: Mapping[str, np.ndarray]
    log_ratio_PT: Mapping[str, np.ndarray]
    tv_PT: Mapping[str, np.ndarray]
    own_solved: Sequence[Solved]
    """``[problem][trajectory][turn]``, whether the program passes all hidden tests."""
    reference_solved: Sequence[Solved]
    step_rewards: Sequence[Table]
    """Of the single completions on the contexts of ``reference_solved``; None: an infrastructure failure."""

    @property
    def turns(self) -> int:
        """T."""
        return self.own_PT.shape[1]

    @property
    def problems(self) -> int:
        """P."""
        return self.own_PT.shape[0]


def read_measures(path: Path) -> Measures:
    """Raises ``InputError``. A problem with a turn at which no program could be run is left out."""
    rows = [row for row in read_jsonl(path, FIELDS, parse=_checked) if _is_complete(row)]
    if not rows:
        raise InputError.at(path, None, "no problem has a reward at every turn")

    def means(value: Any) -> np.ndarray:
        return np.array([_means(value(row)) for row in rows])

    def by_side(field: str, of: Any = float) -> dict[str, np.ndarray]:
        return {
            side: means(lambda row, side=side: [[of(value) for value in values] for values in row[field][side]])
            for side in SIDES
        }

    return Measures(
        name=path.stem,
        own_PT=means(lambda row: _solved(row["own_pass_rates"])),
        step_PT=means(lambda row: _rewards(row["step_pass_rates"])),
        kl_PT=by_side("kl"),
        log_ratio_PT=by_side("log_ratio"),
        tv_PT=by_side("log_ratio", total_variation),
        own_solved=[_solved(row["own_pass_rates"]) for row in rows],
        reference_solved=[_solved(row["reference_pass_rates"]) for row in rows],
        step_rewards=[_rewards(row["step_pass_rates"]) for row in rows],
    )


def _checked(row: Record) -> Record:
    try:
        turns = len(row["own_pass_rates"][0])
        for name in ("own_pass_rates", "reference_pass_rates", "step_pass_rates"):
            _check_width(name, row[name], turns)
        for name in ("kl", "log_ratio"):
            for side in SIDES:
                _check_width(f"{name}.{side}", row[name][side], turns)
    except (IndexError, KeyError, TypeError):
        raise ValueError("is no record of 'cobalt theory measure'") from None
    return row


def _check_width(name: str, table: Table, turns: int) -> None:
    if not table or any(len(row) != turns for row in table):
        raise ValueError(f"field '{name}' needs rows of {turns} turns")


def _is_complete(row: Record) -> bool:
    return all(any(rate is not None for rate in rates) for rates in zip(*row["step_pass_rates"], strict=True))


def _solved(rates_NT: Rates) -> Solved:
    return [[rate == 1 for rate in rates_T] for rates_T in rates_NT]


def _rewards(rates_NT: Rates) -> list[list[float | None]]:
    return [[None if rate is None else float(rate == 1) for rate in rates_T] for rates_T in rates_NT]


def _means(table_NT: Table) -> list[float]:
    """Per turn, over the samples that have a value."""
    columns_TN = [[value for value in values if value is not None] for values in zip(*table_NT, strict=True)]
    return [sum(values) / len(values) for values in columns_TN]
