"""What evaluation keeps of each problem: which samples solve it at which turn, and which programs they repeat.

``solved_NT[s][t]``: sample s passes all hidden tests at turn t. Samples with an infrastructure failure are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from cobalt.extraction import extract_code
from cobalt.records import read_jsonl
from cobalt.records.jsonl import Record

FIELDS = ("id", "conversations", "all_pass_rates")


@dataclass(frozen=True)
class ProblemScores:
    """One problem. ``repeats_NT[s][t]``: the program of turn t is that of turn t − 1 (False at turn 0)."""

    id: Any
    difficulty: str
    platform: str
    solved_NT: tuple[tuple[bool, ...], ...]
    repeats_NT: tuple[tuple[bool, ...], ...]
    excluded: int
    """Samples left out after an infrastructure failure."""

    @property
    def turns(self) -> int:
        """Turns, the first included; 0 if no sample is left."""
        return len(self.solved_NT[0]) if self.solved_NT else 0

    def solved_at(self, turn: int) -> list[bool]:
        """Per sample."""
        return [solved[turn] for solved in self.solved_NT]


def conversation_programs(messages: Sequence[dict[str, str]]) -> list[str | None]:
    """The program in each response of a conversation, as its text stands there."""
    return [extract_code(message["content"]) for message in messages if message["role"] == "assistant"]


def problem_scores(record: Record) -> ProblemScores:
    """Scores of an evaluated record."""
    solved, repeats = [], []
    for messages, pass_rates in zip(record["conversations"], record["all_pass_rates"], strict=True):
        if None in pass_rates:
            continue
        programs = conversation_programs(messages)
        solved.append(tuple(rate == 1 for rate in pass_rates))
        repeats.append((False, *(_repeats(before, now) for before, now in pairwise(programs))))
    return ProblemScores(
        record["id"],
        str(record.get("difficulty") or "unknown"),
        str(record.get("platform") or "unknown"),
        tuple(solved),
        tuple(repeats),
        len(record["all_pass_rates"]) - len(solved),
    )


def _repeats(before: str | None, now: str | None) -> bool:
    return now is not None and now == before


def read_scores(path: Path, parse: Callable[[Record], ProblemScores] = problem_scores) -> list[ProblemScores]:
    """Scores of an evaluated file; ``parse`` may be a stricter reader of a record, raising ``ValueError``."""
    return list(read_jsonl(path, FIELDS, parse=parse))
