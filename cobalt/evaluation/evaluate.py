"""``eval_multi_turn.py``: hidden tests on trajectories, then the report.

A turn's program is taken from the text that ``conversations`` holds, as in the original release. Equal programs of a
problem run once. For perturbed runs the clean public tests run as well: on the raw responses, like the perturbed ones.
Writes the records with ``all_pass_rates`` to the output, and ``<output>.report.{md,json,png}`` and
``<output>.counts.json`` beside it.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import ExecutionConfig, InputFile, OutputFile, ReadConfig
from cobalt.cli.tasks import for_each
from cobalt.errors import InputError
from cobalt.evaluation.export import export_livecodebench, exportable
from cobalt.evaluation.files import ProblemScores, counts_path, one_label, read_evaluation, write_counts
from cobalt.evaluation.summary import compare, summarise, write_report
from cobalt.extraction import Rule, extract_code, rules_differ
from cobalt.records import RecordFile, TestCases, id_key, row_hash
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import check_paths, origin_of, recorded_run, refuse_infra_rate, tell_other_origin
from cobalt.records.rows import Evaluated, MultiTurn, Rates, raw_responses, read_rows
from cobalt.serving.execution import ExecutionService, Runs, service_of


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(ExecutionConfig, ReadConfig):
    """Run the hidden tests on every turn of a multi-turn file and report Pass@1 per turn."""

    input_file: InputFile
    """Output of a multi-turn run."""
    output_file: OutputFile
    """Records with `all_pass_rates`; the report goes beside it."""
    extraction: Rule | None = None
    """How the program of a response is found: `markdown` or `released`. Default: as in the run that made the input, or
    `released` if the input does not say it."""
    compare: Path | None = None
    """Another output of this command; the report holds the differences (this - other), paired by problem."""
    export: Literal["livecodebench"] | None = None
    """Also write the submitted programs as LiveCodeBench's custom evaluator reads them, beside the output."""


def main(config: EvaluationConfig) -> None:
    others = read_evaluation(config.compare).problems if config.compare else []
    counts, execution, work_done = asyncio.run(_evaluate(config, others))
    evaluation = read_evaluation(config.output_file)
    write_counts(counts_path(config.output_file), config.output_file.stem, None, [evaluation])
    comparison = compare(evaluation.problems, others, config.compare.name) if config.compare else None
    print(write_report(config.output_file, execution, summarise(evaluation.problems), comparison))
    print_summary("eval_multi_turn", {"output": config.output_file, **counts}, work_done)
    refuse_infra_rate(counts["infra_errors"], counts["samples"], "samples", config.max_infra_rate)
    if config.export:
        print(f"  export  {export_livecodebench(config.output_file)}")


async def _evaluate(
    config: EvaluationConfig, others: list[ProblemScores]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]]:
    """Write the records; returns the counts, what decided the verdicts, and the work of this run."""

    def rows(invalid: InvalidLines) -> Iterator[MultiTurn]:
        return read_rows(config.input_file, MultiTurn, invalid.handler)

    check_paths([config.input_file, *([config.compare] if config.compare else [])], [config.output_file])
    invalid = InvalidLines(config.skip_invalid)
    checked = exportable(config.input_file, rows(invalid)) if config.export else rows(invalid)
    ids, hashes, labels = zip(*((row.id, row_hash(row.row), row.feedback) for row in checked), strict=True)
    input_hashes = dict(zip(map(id_key, ids), hashes, strict=True))
    one_label(config.input_file, set(labels))
    if config.compare and not {id_key(id_) for id_ in ids} & {id_key(other.id) for other in others}:
        raise InputError.at(config.compare, None, f"--compare: it has no problem of {config.input_file}")
    async with service_of(config) as execution:
        described, at_once = await execution.describe(), await execution.problems_at_once()
        for path in filter(None, (config.input_file, config.compare)):
            tell_other_origin(path, checker=described["checker"])
        content = {"tests": "hidden_test_cases", "execution": described}
        if config.extraction is not None:
            content["extraction"] = config.extraction
        contents = {config.output_file: content}
        origin = {**origin_of(config.input_file), "checker": described["checker"]}
        with recorded_run("eval_multi_turn", asdict(config), [config.input_file], contents, origin) as run:
            counts = {"samples": 0, "programs": 0, "extraction_differs": 0, "infra_errors": 0}

            def look() -> None:
                rate = execution.tests_done / max(bar.format_dict["elapsed"], 1e-9)
                text = f"{rate:,.0f} tests/s, executing {execution.active}, infra {counts['infra_errors']}"
                bar.set_postfix_str(text, refresh=False)

            with RecordFile(config.output_file) as output, progress_bar(look, total=len(ids), unit="problem") as bar:
                output.refuse_loss(ids)
                output.refuse_other_input(zip(ids, hashes, strict=True), has_all_feedback)

                async def evaluate(row: MultiTurn) -> None:
                    input_hash = input_hashes[id_key(row.id)]
                    stored = output.get(row.id, input_hash, lambda record: Evaluated.read(record).row)
                    result = {
                        **await evaluate_record(row, stored, execution, config.extraction),
                        "input_hash": input_hash,
                    }
                    if result != stored:
                        output.append(result)
                    counts["samples"] += len(result["all_pass_rates"])
                    counts["programs"] += sum(map(len, result["all_pass_rates"]))
                    counts["extraction_differs"] += sum(rules_differ(text) for texts in row.texts_N for text in texts)
                    counts["infra_errors"] += sum(None in rates for rates in result["all_pass_rates"])
                    bar.update()

                await for_each(rows(InvalidLines(config.skip_invalid, quiet=True)), evaluate, lambda: at_once)
                written = output.finish(ids)
            read = {"read": len(ids) + invalid.count, "written": written, "skipped_invalid": invalid.count}
            run.counts = {**read, **counts, **execution.work_done()}
    return {**read, **counts}, described, execution.work_done()


def has_all_feedback(record: Record) -> bool:
    """Whether no infrastructure failure ended one of its conversations: then the run that made it was finished."""
    return not any(result.get("infra_error") for results in record.get("public_exec_results", ()) for result in results)


async def evaluate_record(
    row: MultiTurn, earlier: Record | None, execution: ExecutionService, extraction: Rule | None = None
) -> Record:
    """The row with ``all_pass_rates`` ([N][T]); null: a turn that was not taken, or an infrastructure failure.

    ``earlier``: the output for this row of an earlier run; only programs whose rate is null there run again.
    ``extraction``: the rule that finds programs; None: the one that the row names.
    """
    rule = extraction or row.extraction
    runs: Runs = {}  # equal programs of the problem run once
    turns, samples = len(row.public_pass_rates), len(row.conversations)

    async def measured(programs: Mapping[tuple[int, int], str | None], tests: TestCases, known: Rates) -> Rates:
        """``known``, with the pass rates of the programs whose rate is null there, by their place in the table."""
        wanted = {place: program for place, program in programs.items() if known[place[0]][place[1]] is None}
        results = await asyncio.gather(*(execution.run(program, tests, runs) for program in wanted.values()))
        rates = [list(known_rates) for known_rates in known]
        for (line, column), result in zip(wanted, results, strict=True):
            rates[line][column] = result.pass_rate
        return rates

    texts_N, raw_TN = row.texts_N, [list(texts) for texts in raw_responses(row.row)]
    for sample, texts in enumerate(texts_N if row.stop_at_success else ()):
        for turn in range(last := len(texts), turns):
            if row.public_pass_rates[turn][sample] is not None:  # not taken after success: the last program counts
                texts.append(texts[last - 1])
                raw_TN[turn][sample] = raw_TN[last - 1][sample]
    shown = {(n, t): extract_code(text, rule) for n, texts in enumerate(texts_N) for t, text in enumerate(texts)}
    known: Rates = earlier["all_pass_rates"] if earlier else [[None] * turns for _ in range(samples)]
    result = {**row.row, "all_pass_rates": await measured(shown, row.hidden_test_cases, known)}
    if extraction is not None:
        result["extraction"] = extraction
    if row.is_perturbed:
        raw = {
            # a response with an empty text in the history was cut inside its thinking
            (turn, sample): extract_code(text, rule) if rule == "released" or texts_N[sample][turn] else None
            for turn, texts in enumerate(raw_TN)
            for sample, text in enumerate(texts)
            if row.public_pass_rates[turn][sample] is not None
        }
        known_TN: Rates = earlier["clean_public_pass_rates"] if earlier else [[None] * samples for _ in range(turns)]
        result["clean_public_pass_rates"] = await measured(raw, row.public_test_cases, known_TN)
    return result
