"""``eval_multi_turn.py``: hidden tests on trajectories, then the report.

Writes the records with ``all_pass_rates`` to the output, and ``<output>.report.{md,json,png}`` and
``<output>.counts.json`` beside it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.adoption import AdoptConfig, adopt_records
from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import ExecutionConfig, InputFile, OutputFile, ReadConfig
from cobalt.cli.invalid_lines import InvalidLines
from cobalt.cli.lifecycle import check_paths, recorded_run, refuse_infra_rate
from cobalt.cli.tasks import for_each
from cobalt.errors import InputError
from cobalt.evaluation.counts import counts_path, read_evaluation, write_counts
from cobalt.evaluation.hidden import evaluate_record, is_retryable, refuse_other_evaluation, usable_trajectory
from cobalt.evaluation.scores import ProblemScores
from cobalt.evaluation.summary import compare, summarise
from cobalt.evaluation.turn_report import TurnReport, write_report
from cobalt.records import RecordFile, id_key, read_jsonl, row_hash
from cobalt.records.jsonl import Record
from cobalt.records.manifest import origin_of
from cobalt.serving.execution import open_execution_service
from cobalt.serving.programs import ExecutionCounter

OPEN_PROBLEMS = 16
FIELDS = ("id", "conversations", "public_pass_rates", "hidden_test_cases")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(ExecutionConfig, AdoptConfig, ReadConfig):
    """Run the hidden tests on every turn of a multi-turn file and report Pass@1 per turn."""

    input_file: InputFile
    """Output of a multi-turn run."""
    output_file: OutputFile
    """Records with `all_pass_rates`; the report goes beside it."""
    compare: Path | None = None
    """Another output of this command; the report holds the differences (this - other), paired by problem."""


def main(config: EvaluationConfig) -> None:
    """Evaluate, write the report, print it."""
    others = read_evaluation(config.compare).problems if config.compare else []
    counts, execution = asyncio.run(_evaluate(config, others))
    evaluation = read_evaluation(config.output_file)
    problems = evaluation.problems
    write_counts(counts_path(config.output_file), config.output_file.stem, None, [evaluation])
    comparison = compare(problems, others, config.compare.name) if config.compare else None
    report = TurnReport(config.output_file.name, execution, summarise(problems), comparison)
    print(write_report(config.output_file, report))
    print_summary("eval_multi_turn", {"output": config.output_file, **counts})
    refuse_infra_rate(counts["infra_errors"], counts["samples"], "samples", config.max_infra_rate)


async def _evaluate(config: EvaluationConfig, others: Sequence[ProblemScores]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the records; returns the counts and what decided the verdicts."""
    inputs = [config.input_file, *([config.compare] if config.compare else [])]
    check_paths(inputs, [config.output_file])
    invalid = InvalidLines(config.skip_invalid)
    ids = [record["id"] for record in _records(config, invalid)]
    if config.compare and not {id_key(id_) for id_ in ids} & {id_key(other.id) for other in others}:
        raise InputError.at(config.compare, None, f"--compare: it has no problem of {config.input_file}")
    async with open_execution_service(config.executor, config.checker) as service:
        execution = await service.describe()
        contents = {config.output_file: {"tests": "hidden_test_cases", "execution": execution}}
        with recorded_run("eval_multi_turn", asdict(config), [config.input_file], contents, config.adopt) as run:
            with RecordFile(config.output_file) as output:
                output.refuse_loss(ids)
                rows = _records(config, InvalidLines(config.skip_invalid, quiet=True)) if config.adopt else []
                adopted = adopt_records(output, ((row, row_hash(row)) for row in rows), refuse_other_evaluation)
                counts = await _evaluate_all(config, output, ExecutionCounter(service), len(ids))
                written = output.finish(ids)
            read = {"read": len(ids) + invalid.count, "written": written, "skipped_invalid": invalid.count}
            read |= {"adopted": adopted} if adopted else {}
            run.counts, run.origin = {**read, **counts}, origin_of(config.input_file)
    return run.counts, execution


def _records(config: EvaluationConfig, invalid: InvalidLines) -> Iterator[Record]:
    return read_jsonl(config.input_file, FIELDS, parse=usable_trajectory, on_invalid=invalid.handler)


async def _evaluate_all(
    config: EvaluationConfig, output: RecordFile, execution: ExecutionCounter, problems: int
) -> dict[str, float]:
    counts = {"samples": 0, "programs": 0, "infra_errors": 0}
    with progress_bar(total=problems, unit="problem") as bar:

        async def evaluate(record: Record) -> None:
            input_hash = row_hash(record)
            result = output.get(record["id"], input_hash)
            if result is None or is_retryable(result):
                result = {**await evaluate_record(record, result, execution), "input_hash": input_hash}
                output.append(result)
            counts["samples"] += len(result["all_pass_rates"])
            counts["programs"] += sum(map(len, result["all_pass_rates"]))
            counts["infra_errors"] += sum(None in rates for rates in result["all_pass_rates"])
            tests = execution.tests_done
            rate = tests / max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(
                f"{rate:,.0f} tests/s, executing {execution.active}, infra {counts['infra_errors']}", refresh=False
            )
            bar.update()

        await for_each(_records(config, InvalidLines(config.skip_invalid, quiet=True)), evaluate, lambda: OPEN_PROBLEMS)
    return {**counts, **execution.work_done()}
