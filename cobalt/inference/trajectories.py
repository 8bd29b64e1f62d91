"""Input rows and output records of the driver (docs/formats.md).

Shapes: N samples of one problem, T turns, the first included. ``turns_NT[s][t]`` is sample s at turn t.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cobalt.commands.adoption import refuse_other_fields
from cobalt.completion import Message
from cobalt.inference.conversation import Turn, Usage
from cobalt.prompts import PromptSet, Wording
from cobalt.records import ExecutionResult, TestCases, row_hash
from cobalt.records.jsonl import Record
from cobalt.records.responses import raw_responses

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
    if not isinstance(row["instruction"], str):
        raise ValueError("field 'instruction' must be a text")
    check(row["instruction"])
    tests = {}
    for field in (*TESTS_OF_ALL_STAGES, tests_field):
        try:
            tests[field] = TestCases.parse(row[field])
        except ValueError as error:
            raise ValueError(f"field '{field}': {error}") from None
    if len(tests["public_test_cases"]) >= len(tests["test_cases"]):
        raise ValueError("field 'public_test_cases' has as many tests as 'test_cases': none is hidden")
    if not fixed_first_turn:
        return ProblemRow(row, row_hash(row), tests[tests_field], None)
    responses, usage = row["responses"], row.get("usage")
    if not isinstance(responses, list) or not responses or not all(isinstance(text, str) for text in responses):
        raise ValueError("field 'responses' must be a list of texts, at least one")
    if usage is None:
        usage = [{}] * len(responses)
    if not isinstance(usage, list) or len(usage) != len(responses):
        raise ValueError("fields 'usage' and 'responses' differ in length")
    firsts = tuple(zip(responses, usage, strict=True))[:num_completions]
    return ProblemRow(row, row_hash(row), tests[tests_field], firsts)


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
    """``turns_NT`` of an output record; an adopted one may be without ``usage`` and ``raw_responses``."""
    if multi_turn:
        responses_TN, results_TN, usage_TN = raw_responses(record), record["public_exec_results"], record.get("usage")
    else:
        responses_TN, results_TN = [record["responses"]], [record["exec_results"]]
        usage_TN = [record["usage"]] if "usage" in record else None
    columns = (responses_TN, usage_TN or [[{}] * len(texts) for texts in responses_TN], results_TN)
    turns_TN = [
        [Turn(text, usage, ExecutionResult.from_record(result)) for text, usage, result in zip(*row, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    return [list(turns) for turns in zip(*turns_TN, strict=True)]


def refuse_other_record(record: Record, row: Record, samples: int, turns: int, prompts: PromptSet | None) -> None:
    """Raise ``ValueError`` if ``record`` is no output for ``row`` with so many samples and turns.

    ``prompts``: the set that conversations must be of. None: the record is a single-turn one.
    """
    rewritten = frozenset({"responses", "exec_results", "usage", "input_hash"})  # cut to the samples used, or replaced
    refuse_other_fields(record, row, rewritten)
    turns_NT = turns_of_record(record, multi_turn=prompts is not None)
    if [len(turns_T) for turns_T in turns_NT] != [turns] * samples:
        raise ValueError(f"it does not hold {samples} samples of {turns} turns")
    if prompts is None:
        return
    if "responses" in row and [turns_T[0].text for turns_T in turns_NT] != row["responses"][:samples]:
        raise ValueError("its first turn is not that of the single-turn file")
    if len(record["conversations"]) != samples:
        raise ValueError(f"field 'conversations' does not hold {samples} conversations")
    for messages in record["conversations"]:
        Wording(prompts).see(messages)
