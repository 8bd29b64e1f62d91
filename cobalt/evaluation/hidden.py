"""Runs the hidden tests on the programs of multi-turn trajectories.

A turn's program is the one in the text that ``conversations`` holds (the released rule); equal programs of a problem
run once. For perturbed runs the clean public tests run as well, on the raw responses, as the perturbed ones did.
"""

from collections.abc import Sequence

from cobalt.evaluation.scores import conversation_programs
from cobalt.extraction import extract_code
from cobalt.inference.programs import ExecutionCounter
from cobalt.records import TestCases
from cobalt.records.jsonl import Record

Rates = list[list[float | None]]


def check_trajectory(record: Record) -> None:
    """Raise ``ValueError`` if a multi-turn record's parts do not fit together."""
    TestCases.parse(record["hidden_test_cases"])
    turns, samples = len(record["public_pass_rates"]), len(record["conversations"])
    if not samples:
        raise ValueError("field 'conversations' is empty")
    if any(len(rates) != samples for rates in record["public_pass_rates"]):
        raise ValueError("fields 'conversations' and 'public_pass_rates' differ in the number of samples")
    for messages in record["conversations"]:
        if len(conversation_programs(messages)) > turns:
            raise ValueError("a conversation has more programs than 'public_pass_rates' has turns")
    if is_perturbed(record):
        TestCases.parse(record["public_test_cases"])


def is_perturbed(record: Record) -> bool:
    """True if the feedback came from the perturbed public tests."""
    return record.get("feedback_tests") == "perturbed"


async def evaluate_record(record: Record, earlier: Record | None, execution: ExecutionCounter) -> Record:
    """The record with ``all_pass_rates`` (n x turns); null: not taken, or an infrastructure failure.

    ``earlier``: its output of a run before; only what is null there runs again.
    """
    turns = len(record["public_pass_rates"])
    programs_NT = [_filled_up(conversation_programs(messages), turns) for messages in record["conversations"]]
    hidden = TestCases.parse(record["hidden_test_cases"])
    known_NT = earlier["all_pass_rates"] if earlier else _nothing(programs_NT)
    result = {**record, "all_pass_rates": await _pass_rates(programs_NT, hidden, known_NT, execution)}
    if is_perturbed(record):
        raw_TN = [[(extract_code(text),) for text in responses] for responses in record["raw_responses"]]
        taken_TN = [
            [program if rate is not None else None for program, rate in zip(programs, rates, strict=True)]
            for programs, rates in zip(raw_TN, record["public_pass_rates"], strict=True)
        ]
        public = TestCases.parse(record["public_test_cases"])
        known_TN = earlier["clean_public_pass_rates"] if earlier else _nothing(taken_TN)
        result["clean_public_pass_rates"] = await _pass_rates(taken_TN, public, known_TN, execution)
    return result


Program = tuple[str | None] | None
"""A program in a tuple of its own; None: the turn was not taken."""


def _filled_up(programs: Sequence[str | None], turns: int) -> list[Program]:
    return [(program,) for program in programs] + [None] * (turns - len(programs))


def _nothing(like: Sequence[Sequence[object]]) -> Rates:
    return [[None] * len(row) for row in like]


async def _pass_rates(
    programs: Sequence[Sequence[Program]], tests: TestCases, known: Rates, execution: ExecutionCounter
) -> Rates:
    """Pass rates in the shape of ``programs``; distinct programs run once, known rates stay."""
    wanted = {
        program[0]
        for row, rates in zip(programs, known, strict=True)
        for program, rate in zip(row, rates, strict=True)
        if program is not None and rate is None
    }
    distinct = sorted(wanted, key=lambda code: (code is None, code))
    results = await execution.run_many([(code, tests) for code in distinct])
    rate_of = {code: result.pass_rate for code, result in zip(distinct, results, strict=True)}
    return [
        [
            rate if rate is not None or program is None else rate_of[program[0]]
            for program, rate in zip(row, rates, strict=True)
        ]
        for row, rates in zip(programs, known, strict=True)
    ]


def is_retryable(record: Record) -> bool:
    """True if an infrastructure failure of the *evaluation* left a null; a turn never taken stays null."""
    taken = [len(conversation_programs(messages)) for messages in record["conversations"]]
    nulls = [None in rates[:count] for rates, count in zip(record["all_pass_rates"], taken, strict=True)]
    clean = record.get("clean_public_pass_rates", record["public_pass_rates"])
    return any(nulls) or any(
        rate is None and shown is not None
        for rates, shown_rates in zip(clean, record["public_pass_rates"], strict=True)
        for rate, shown in zip(rates, shown_rates, strict=True)
    )
