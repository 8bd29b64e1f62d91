"""Runs the hidden tests on the programs of multi-turn trajectories.

A turn's program is the one in the text that ``conversations`` holds (the released rule); equal programs of a problem
run once. For perturbed runs the clean public tests run as well, on the raw responses, as the perturbed ones did.
"""

import asyncio
from collections.abc import Mapping

from cobalt.cli.adoption import refuse_other_fields
from cobalt.evaluation.scores import conversation_programs
from cobalt.extraction import extract_code
from cobalt.records import TestCases
from cobalt.records.jsonl import Record
from cobalt.records.responses import raw_responses
from cobalt.serving.programs import DistinctPrograms, ExecutionCounter

Rates = list[list[float | None]]
Programs = Mapping[tuple[int, int], str | None]
"""The programs to judge, by their place in a table of rates; None: the response holds no program."""


def usable_trajectory(record: Record) -> Record:
    """The multi-turn record itself; ``ValueError`` if its parts do not fit together."""
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
    return record


def refuse_other_evaluation(result: Record, record: Record) -> None:
    """Raise ``ValueError`` if ``result`` is no evaluation of this multi-turn record."""
    refuse_other_fields(result, record, frozenset({"input_hash"}))
    tables = [("all_pass_rates", len(record["conversations"]), len(record["public_pass_rates"]))]
    if is_perturbed(record):
        tables.append(("clean_public_pass_rates", tables[0][2], tables[0][1]))
    for name, rows, columns in tables:
        if [len(rates) for rates in result[name]] != [columns] * rows:
            raise ValueError(f"field '{name}' is not {rows} x {columns}")
        if not all(rate is None or 0 <= rate <= 1 for rates in result[name] for rate in rates):
            raise ValueError(f"field '{name}' needs numbers in [0, 1] or null")


def is_perturbed(record: Record) -> bool:
    """True if the feedback came from the perturbed public tests."""
    return record.get("feedback_tests") == "perturbed"


async def evaluate_record(record: Record, earlier: Record | None, execution: ExecutionCounter) -> Record:
    """The record with ``all_pass_rates`` (n x turns); null: not taken, or an infrastructure failure.

    ``earlier``: its output of a run before; only what is null there runs again.
    """
    distinct = DistinctPrograms(execution)
    turns, samples = len(record["public_pass_rates"]), len(record["conversations"])
    known_NT: Rates = earlier["all_pass_rates"] if earlier else [[None] * turns for _ in range(samples)]
    hidden = TestCases.parse(record["hidden_test_cases"])
    result = {**record, "all_pass_rates": await _measured(_shown_programs(record), hidden, known_NT, distinct)}
    if is_perturbed(record):
        known_TN: Rates = earlier["clean_public_pass_rates"] if earlier else [[None] * samples for _ in range(turns)]
        public = TestCases.parse(record["public_test_cases"])
        result["clean_public_pass_rates"] = await _measured(_raw_programs(record), public, known_TN, distinct)
    return result


def _shown_programs(record: Record) -> Programs:
    """Of the texts in ``conversations``, by (sample, turn)."""
    return {
        (sample, turn): program
        for sample, messages in enumerate(record["conversations"])
        for turn, program in enumerate(conversation_programs(messages))
    }


def _raw_programs(record: Record) -> Programs:
    """Of the raw responses, by (turn, sample), for the turns that were taken."""
    return {
        (turn, sample): extract_code(response)
        for turn, (responses, rates) in enumerate(zip(raw_responses(record), record["public_pass_rates"], strict=True))
        for sample, (response, rate) in enumerate(zip(responses, rates, strict=True))
        if rate is not None
    }


async def _measured(programs: Programs, tests: TestCases, known: Rates, distinct: DistinctPrograms) -> Rates:
    """``known``, with the pass rates of the ``programs`` whose rate is null there."""
    wanted = {place: program for place, program in programs.items() if known[place[0]][place[1]] is None}
    results = await asyncio.gather(*(distinct.run(program, tests) for program in wanted.values()))
    rates = [list(row) for row in known]
    for (row, column), result in zip(wanted, results, strict=True):
        rates[row][column] = result.pass_rate
    return rates


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
