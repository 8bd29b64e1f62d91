"""Input rows and output records of the driver (docs/formats.md).

Shapes: N samples of one problem, T turns, the first included. ``turns_NT[s][t]`` is sample s at turn t.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cobalt.completion import Message
from cobalt.inference.conversation import Turn, Usage
from cobalt.records import ResultRecord, TestCases, row_hash
from cobalt.records.jsonl import Record
from cobalt.records.rows import Problem, SingleTurn

TESTS_OF_ALL_STAGES = ("test_cases", "public_test_cases", "hidden_test_cases")
"""Tests that this or a later stage needs. A row without them is refused before anything is generated for it."""


@dataclass(frozen=True)
class ProblemRow:
    """One input row."""

    row: Record
    input_hash: str
    tests: TestCases
    """The tests whose feedback is recorded: all of them (single turn), or those shown to the policy."""
    first_responses_N: tuple[tuple[str, Usage], ...] | None
    """Texts and usage of turn 0 from a single-turn file. None: turn 0 is to be generated."""

    @property
    def id(self) -> Any:
        return self.row["id"]


def read_problem(
    row: Record, tests_field: str, fixed_first_turn: bool, num_completions: int, check: Callable[[str], None]
) -> ProblemRow:
    """Read a row and keep at most ``num_completions`` first responses. Raises ``ValueError`` saying what is wrong.

    ``check`` raises it about the instruction.
    """
    problem = (SingleTurn if fixed_first_turn else Problem).read(row)
    check(problem.instruction)
    firsts = None
    if isinstance(problem, SingleTurn):
        usage = problem.usage or [{}] * len(problem.responses)
        firsts = tuple(zip(problem.responses, usage, strict=True))[:num_completions]
    return ProblemRow(row, row_hash(row), getattr(problem, tests_field), firsts)


def single_turn_record(problem: ProblemRow, turns_NT: Sequence[Sequence[Turn]]) -> Record:
    """The output record of a single-turn run (T = 1)."""
    return {
        **problem.row,
        "responses": [turn.text for (turn,) in turns_NT],
        "exec_results": [turn.result.to_record() for (turn,) in turns_NT],
        "usage": [turn.usage for (turn,) in turns_NT],
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
        [Turn(text, usage, ResultRecord.from_record(result)) for text, usage, result in zip(*row, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    return [list(turns) for turns in zip(*turns_TN, strict=True)]
