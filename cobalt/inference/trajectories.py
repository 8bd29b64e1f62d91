"""Input rows and output records of the drivers (docs/formats.md).

Shapes: N samples of one problem, T turns, the first included; ``turns_NT[s][t]`` is sample s at turn t.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cobalt.completion import Message
from cobalt.inference.conversation import Response, Turn, turn_of
from cobalt.records import TestCases, row_hash
from cobalt.records.jsonl import Record
from cobalt.records.rows import Problem, SingleTurn

TESTS_OF_ALL_STAGES = ("test_cases", "public_test_cases", "hidden_test_cases")
"""Tests that this or a later stage needs: a row without them is refused before anything is generated for it."""


@dataclass(frozen=True)
class ProblemRow:
    """One input row, read."""

    row: Record
    input_hash: str
    tests: TestCases
    """The tests whose feedback is recorded: all of them (single turn) or those shown to the policy."""
    first_responses_N: tuple[Response | None, ...] | None
    """Turn 0 from a single-turn file (None: that run's engine failed), or None if turn 0 is to be generated."""

    @property
    def id(self) -> Any:
        return self.row["id"]


def read_problem(
    row: Record, tests_field: str, fixed_first_turn: bool, num_completions: int, check: Callable[[str], None]
) -> ProblemRow:
    """Read a row; at most ``num_completions`` first responses are kept. Raises ``ValueError`` saying what is wrong.

    ``check`` raises it about the instruction.
    """
    problem = (SingleTurn if fixed_first_turn else Problem).read(row)
    check(problem.instruction)
    first = None
    if isinstance(problem, SingleTurn):
        usage = problem.usage or [{}] * len(problem.responses)
        pairs = list(zip(problem.responses, usage, strict=True))[:num_completions]
        first = tuple(None if used is None else Response(text, used) for text, used in pairs)
    return ProblemRow(row, row_hash(row), getattr(problem, tests_field), first)


def single_turn_record(problem: ProblemRow, turns_NT: Sequence[Sequence[Turn]]) -> Record:
    """The output record of a single-turn run (T = 1)."""
    firsts = [turns[0] for turns in turns_NT]
    return {
        **problem.row,
        "responses": [turn.text for turn in firsts],
        "exec_results": [turn.result.to_record() for turn in firsts],
        "usage": [turn.usage for turn in firsts],
        "input_hash": problem.input_hash,
    }


def multi_turn_record(
    problem: ProblemRow,
    turns_NT: Sequence[Sequence[Turn]],
    conversations: Sequence[list[Message]],
    labels: dict[str, str],
) -> Record:
    """The output record of a multi-turn run; what it was given as turn 0 is cut to the samples used."""
    turns_TN = list(zip(*turns_NT, strict=True))
    cut = {name: problem.row[name][: len(turns_NT)] for name in ("responses", "exec_results") if name in problem.row}
    return {
        **problem.row,
        **cut,
        "conversations": list(conversations),
        "raw_responses": [[turn.text for turn in turns] for turns in turns_TN],
        "public_pass_rates": [[turn.result.pass_rate for turn in turns] for turns in turns_TN],
        "public_exec_results": [[turn.result.to_record() for turn in turns] for turns in turns_TN],
        "usage": [[turn.usage for turn in turns] for turns in turns_TN],
        **labels,
        "input_hash": problem.input_hash,
    }


def turns_of_record(record: Record, multi_turn: bool) -> list[list[Turn]]:
    """``turns_NT`` of an output record."""
    names = ("raw_responses", "usage", "public_exec_results") if multi_turn else ("responses", "usage", "exec_results")
    columns = [record[name] if multi_turn else [record[name]] for name in names]
    turns_TN = [
        [turn_of(text, usage, result) for text, usage, result in zip(*row, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    return [list(turns) for turns in zip(*turns_TN, strict=True)]
