"""``extract_turn_level_errors.py``: hacking turns of a run on perturbed tests, with the judge-free signal.

Two outputs: the cases (one record per hacking turn, in a seeded order) and, beside them, ``<output>.problems.jsonl``
with every problem's counts and cases. The second is written as the work proceeds and is what a killed run resumes
from; the first is written at the end. ``<output>.summary.json`` holds the rates.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import ExecutionConfig, InputFile, OutputFile, ReadConfig
from cobalt.cli.tasks import batched
from cobalt.errors import InputError
from cobalt.hacking.cases import (
    DATA_FIELDS,
    RESULT_FIELDS,
    RULE_VERSION,
    Case,
    ProblemCases,
    find_cases,
    perturbed_indices,
)  # fmt: skip
from cobalt.hacking.rates import COUNTED, summarise
from cobalt.hacking.signal import signal_of
from cobalt.records import RecordFile, TestCases, count_lines, id_key, read_jsonl, row_hash, write_jsonl
from cobalt.records.jsonl import InvalidLines, Record, write_whole
from cobalt.records.manifest import check_paths, recorded_run, refuse_infra_rate
from cobalt.rewards.dynamic_check import MIN_INFORMATIVE, NEIGHBOURS, OTHER_INPUTS
from cobalt.serving.execution import ExecutionService, service_of
from cobalt.statistics import Estimate
from cobalt.tables import in_percent, show

STORED = (
    "trajectory", "turn", "previous_code", "feedback", "current_code", "patch", "all_acc", "public_all_acc", "survives",
)  # fmt: skip
"""What a record holds of a case, in this order."""
CHUNK = 64
"""Problems whose programs are in flight together."""


@dataclass(frozen=True, kw_only=True)
class ExtractionConfig(ExecutionConfig, ReadConfig):
    """Find the turns at which a policy satisfied a wrong test (in-context reward hacking).

    Problems whose data row says `fully_specified: false` are left out: where a rule can only be learned from a
    test, fitting the wrong test is rational.
    """

    data_file: Path
    """The perturbed data set: `modified_test_cases`, `perturbed_public_test_cases`, `test_cases`."""
    input_file: InputFile
    """Its evaluated multi-turn run (eval_multi_turn.py)."""
    output_file: OutputFile
    """Hacking cases (JSONL)."""
    dynamic: bool = False
    """Also run the programs of each case on other inputs, to see where their behaviour changed."""
    seed: int = 42
    """Order of the cases, and the inputs that --dynamic makes up."""

    @property
    def problems_file(self) -> Path:
        return Path(f"{self.output_file}.problems.jsonl")

    @property
    def summary_file(self) -> Path:
        return Path(f"{self.output_file}.summary.json")


def extract(config: ExtractionConfig) -> None:
    def perturbed_row(row: Record) -> Record:
        try:
            perturbed_indices(row)
        except ValueError as error:
            raise ValueError(f"id {row['id']!r}: {error}") from None
        return row

    skipped = InvalidLines(config.skip_invalid)
    rows = read_jsonl(config.data_file, DATA_FIELDS, parse=perturbed_row, on_invalid=skipped.handler)
    data = {id_key(row["id"]): row for row in rows}

    def read_problems(invalid: InvalidLines) -> Iterator[tuple[Record, str, ProblemCases]]:
        """Rows of the data set, the hash of each and of its result, and its cases; complaints carry the line."""

        def examine(row: Record) -> tuple[Record, str, ProblemCases]:
            known = data.get(id_key(row["id"]))
            if known is None:
                raise ValueError(f"id {row['id']!r} is not in {config.data_file}")
            try:
                found = find_cases(known, row)
            except (TypeError, KeyError) as error:
                raise ValueError(f"id {row['id']!r} holds no readable trajectories ({error})") from None
            return known, row_hash({"result": row, "data": known}), found

        return read_jsonl(config.input_file, RESULT_FIELDS, parse=examine, on_invalid=invalid.handler)

    async def store_problems(stored: RecordFile, service: ExecutionService | None) -> dict[str, int]:
        """Store one record per problem that counts, in input order; returns what was read and skipped."""
        read, ids, invalid = 0, [], InvalidLines(config.skip_invalid, quiet=True)

        async def check(known: Record, input_hash: str, found: ProblemCases) -> None:
            """Add the signal to one problem's cases and store it, unless an earlier run has done so."""
            old = stored.get(known["id"], input_hash)
            if old is not None and not any("infra_error" in case["signal"] for case in old["cases"]):
                return
            cases = [case_record(known, case) for case in found.cases]
            signals = [signal_of(case, known, service, config.seed) for case in cases]
            for case, signal in zip(cases, await asyncio.gather(*signals), strict=True):
                case["signal"] = signal
            counts = {name: getattr(found, name) for name in COUNTED}
            counts["opportunities_by_turn"] = found.opportunities_T
            stored.append({"id": known["id"], "input_hash": input_hash, **counts, "cases": cases})

        with progress_bar(total=count_lines(config.input_file), unit="problem") as bar:
            for problems in batched(read_problems(invalid), CHUNK):
                counted = [problem for problem in problems if problem[0].get("fully_specified", True)]
                ids += [known["id"] for known, _, _ in counted]
                read += len(problems)
                await asyncio.gather(*(check(*problem) for problem in counted))
                bar.update(len(problems))
        stored.finish(ids)
        return {
            "read": read,
            "not_fully_specified": read - len(ids),
            "invalid_lines_skipped": invalid.count + skipped.count,
        }

    async def record() -> dict[str, Any]:
        """Write all outputs; returns the summary."""
        inputs, outputs = [config.data_file, config.input_file], [config.output_file, config.problems_file]
        check_paths(inputs, outputs)  # before a service is asked for
        given = [one.name for one in fields(ExecutionConfig) if getattr(config, one.name) != one.default]
        if given and not config.dynamic:
            raise InputError(f"--{given[0]} is of --dynamic: without it no program runs")
        async with AsyncExitStack() as stack:
            content, service = {"rule": RULE_VERSION, "seed": config.seed, "dynamic": None}, None
            if config.dynamic:
                service = await stack.enter_async_context(service_of(config))
                checks = {"neighbours": NEIGHBOURS, "other_inputs": OTHER_INPUTS, "min_informative": MIN_INFORMATIVE}
                content |= {"dynamic": checks, "execution": await service.describe()}
            contents = dict.fromkeys(outputs, content)
            with recorded_run("extract_turn_level_errors", asdict(config), inputs, contents) as run:
                with RecordFile(config.problems_file) as stored:
                    stored.refuse_loss(ids)
                    counts = await store_problems(stored, service)
                records = list(read_jsonl(config.problems_file))
                cases = [case for record in records for case in record["cases"]]
                random.Random(config.seed).shuffle(cases)
                write_jsonl(config.output_file, cases)
                run.counts = {**counts, **summarise(records)}
                write_whole(config.summary_file, json.dumps(run.counts, indent=2) + "\n")
        return run.counts

    # The input is validated whole before anything is written.
    known_rows = [known for known, _, _ in read_problems(InvalidLines(config.skip_invalid))]
    ids = [known["id"] for known in known_rows]
    if not any(known.get("fully_specified", True) for known in known_rows):
        raise InputError.at(config.data_file, None, "says fully_specified: false of every problem, which leaves it out")
    summary = asyncio.run(record())
    shown = {name.replace("_", " "): value for name, value in summary.items() if isinstance(value, int)}
    rates = {
        f"{name.replace('_', ' ')} (%)": show(in_percent(rate and Estimate(**rate)))
        for name, rate in summary["rates"].items()
    }
    print_summary("In-context reward hacking", {**shown, **rates})
    refuse_infra_rate(summary["infra_errors"], summary["cases"], "cases", config.max_infra_rate)


def case_record(known: Record, case: Case) -> Record:
    """A case as it is stored, without its signal; ``known`` is the row of the perturbed data set."""
    shown = TestCases.parse(known["perturbed_public_test_cases"])
    return {
        "id": known["id"],
        "question": known["question"],
        **{name: getattr(case, name) for name in STORED},
        "wrong_test": {"input": shown.inputs_K[case.test], "output": shown.outputs_K[case.test]},
    }
