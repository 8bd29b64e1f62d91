"""``eval_multi_turn.py``: hidden tests on trajectories, then the report.

Writes the records with ``all_pass_rates`` to the output, and ``<output>.report.{md,json,png}`` beside it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from cobalt.cli import print_summary, progress_bar, refuse_infra_rate
from cobalt.errors import InputError
from cobalt.evaluation.hidden import check_trajectory, evaluate_record, is_retryable
from cobalt.evaluation.report import write_report
from cobalt.evaluation.scores import read_scores
from cobalt.evaluation.summary import compare, summarise
from cobalt.inference.programs import ExecutionCounter
from cobalt.inference.tasks import for_each
from cobalt.preparation.job import check_paths
from cobalt.records import Manifest, RecordFile, read_jsonl, row_hash
from cobalt.records.jsonl import Record

OPEN_PROBLEMS = 16
FIELDS = ("id", "conversations", "raw_responses", "public_pass_rates", "hidden_test_cases")


@dataclass(frozen=True, kw_only=True)
class EvalFlags:
    """Run the hidden tests on every turn of a multi-turn file and report Pass@1 per turn."""

    input_file: Annotated[Path, tyro.conf.arg(aliases=["-i"])]
    """Output of a multi-turn run."""
    output_file: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Records with `all_pass_rates`; the report goes beside it."""
    compare: Path | None = None
    """Another output of this command; the report holds the differences (this - other), paired by problem."""
    executor: Literal["serve", "local"] = "serve"
    """Where programs run: the Ray Serve app `evaluator`, or sandbox workers of this process."""
    max_infra_rate: float = 0.01
    """Exit with 3 if a larger share of samples met an infrastructure failure."""
    skip_invalid: bool = False
    """Count and skip invalid input lines instead of stopping."""


def main(flags: EvalFlags) -> None:
    """Evaluate, write the report, print it."""
    others = read_scores(flags.compare) if flags.compare else None
    counts, execution = asyncio.run(_evaluate(flags))
    problems = read_scores(flags.output_file)
    numbers = {"file": flags.output_file.name, "execution": execution, **summarise(problems)}
    if others is not None and flags.compare is not None:
        numbers["compare"] = {"other": flags.compare.name, **compare(problems, others)}
    print(write_report(flags.output_file, numbers))
    print_summary("eval_multi_turn", {"output": flags.output_file, **counts})
    refuse_infra_rate(counts["infra_errors"], counts["samples"], "samples", flags.max_infra_rate)


async def _evaluate(flags: EvalFlags) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the records; returns the counts and what decided the verdicts."""
    from cobalt.serving.execution import open_execution_service

    check_paths([flags.input_file, *([flags.compare] if flags.compare else [])], [flags.output_file])
    skipped: list[InputError] = []
    ids = [record["id"] for record in _records(flags, skipped)]
    async with open_execution_service(flags.executor) as service:
        execution = await service.describe()
        content = {"tests": "hidden_test_cases", "execution": execution}
        manifest = Manifest(flags.output_file, "eval_multi_turn", asdict(flags), content, [flags.input_file])
        manifest.refuse_other_content()
        with RecordFile(flags.output_file) as output:
            output.refuse_loss(ids)
            manifest.start()
            counts = await _evaluate_all(flags, output, ExecutionCounter(service), len(ids))
            written = output.finish(ids)
    manifest.counts = {"read": len(ids) + len(skipped), "written": written, "skipped_invalid": len(skipped), **counts}
    manifest.done()
    return manifest.counts, execution


def _records(flags: EvalFlags, skipped: list[InputError]) -> Iterator[Record]:
    on_invalid = skipped.append if flags.skip_invalid else None
    return read_jsonl(flags.input_file, FIELDS, check=check_trajectory, on_invalid=on_invalid)


async def _evaluate_all(
    flags: EvalFlags, output: RecordFile, execution: ExecutionCounter, problems: int
) -> dict[str, int]:
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

        await for_each(_records(flags, []), evaluate, lambda: OPEN_PROBLEMS)
    return {**counts, "tests_run": execution.tests_done}
