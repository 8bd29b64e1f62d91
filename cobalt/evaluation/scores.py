"""What evaluation keeps of each problem: how many samples solve it at each turn, and how many repeat their program.

Samples with an infrastructure failure are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cobalt.extraction import extract_code
from cobalt.records.jsonl import Record

FIELDS = ("id", "conversations", "all_pass_rates")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class ProblemScores:
    """One problem. Each tuple holds numbers of samples by turn; all are empty if no sample is left."""

    id: Any
    samples: int
    excluded: int
    """Samples left out after an infrastructure failure; not among ``samples``."""
    solved_T: tuple[int, ...]
    """Pass all hidden tests."""
    repaired_T: tuple[int, ...]
    """Of those, unsolved at the turn before (0 at turn 0)."""
    repeats_T: tuple[int, ...]
    """Have the program of the turn before (0 at turn 0)."""
    failed_repeats_T: tuple[int, ...]
    """Of those, unsolved at the turn before."""
    difficulty: str = UNKNOWN
    platform: str = UNKNOWN

    @property
    def turns(self) -> int:
        """Turns, the first included; 0 if no sample is left."""
        return len(self.solved_T)

    def unsolved_before(self, turn: int) -> int:
        """Samples that did not solve the problem at the turn before this one."""
        return self.samples - self.solved_T[turn - 1]


def conversation_programs(messages: Sequence[dict[str, str]]) -> list[str | None]:
    """The program in each response of a conversation, as its text stands there."""
    return [extract_code(message["content"]) for message in messages if message["role"] == "assistant"]


def problem_scores(record: Record) -> ProblemScores:
    """Scores of an evaluated record."""
    solved_NT, repeats_NT = [], []
    for messages, pass_rates in zip(record["conversations"], record["all_pass_rates"], strict=True):
        if None in pass_rates:
            continue
        solved_NT.append([rate == 1 for rate in pass_rates])
        programs = conversation_programs(messages)
        repeats_T = [False, *(now is not None and now == before for before, now in pairwise(programs))]
        repeats_NT.append([*repeats_T, *[False] * (len(pass_rates) - len(repeats_T))])
    failed_before_NT = [[False, *(not solved for solved in solved_T[:-1])] for solved_T in solved_NT]
    return ProblemScores(
        record["id"],
        len(solved_NT),
        len(record["all_pass_rates"]) - len(solved_NT),
        tuple(_sums(solved_NT)),
        tuple(_sums(solved_NT, failed_before_NT)),
        tuple(_sums(repeats_NT)),
        tuple(_sums(repeats_NT, failed_before_NT)),
        str(record.get("difficulty") or UNKNOWN),
        str(record.get("platform") or UNKNOWN),
    )


def _sums(*tables_NT: Sequence[Sequence[bool]]) -> Iterator[int]:
    """By turn, the samples that are true in each table."""
    for columns in zip(*(zip(*table_NT, strict=True) for table_NT in tables_NT), strict=True):
        yield sum(map(all, zip(*columns, strict=True)))
