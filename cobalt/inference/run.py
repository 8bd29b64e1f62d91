"""One inference run, from its flags to the summary: check the input, resume, drive, write the manifest."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from cobalt.cli.console import MUCH, print_summary, progress_bar
from cobalt.cli.prompt_flags import InstructionCheck
from cobalt.cli.tasks import for_each
from cobalt.errors import InputError
from cobalt.inference.conversation import HISTORY_RULE
from cobalt.inference.driver import Driver, OtherProblemFeedback, ProblemRow, is_done, unfinished
from cobalt.inference.engines import Engine, open_engine
from cobalt.inference.flags import InferenceConfig, LitellmConfig
from cobalt.prompts import PromptSet, described, prompt_content
from cobalt.records import RecordFile, read_jsonl, row_hash
from cobalt.records.jsonl import InvalidLines, Record, refuse_half_characters
from cobalt.records.manifest import (
    check_paths,
    content_hash,
    file_sha256,
    journal_path,
    recorded_run,
    refuse_infra_rate,
    tell_other_origin,
)
from cobalt.records.rows import Problem, SingleTurn
from cobalt.sandbox.own_files import OwnFile, is_own
from cobalt.serving.execution import ExecutionService, service_of

REFRESH_S = 1.0
TESTS_OF_ALL_STAGES = ("test_cases", "public_test_cases", "hidden_test_cases")
"""Tests that this or a later stage needs. A row without them is refused before anything is generated for it."""
TESTS_FIELDS = {"public": "public_test_cases", "perturbed": "perturbed_public_test_cases"}


async def main(
    flags: InferenceConfig,
    service: AbstractAsyncContextManager[ExecutionService] | None = None,
    engine: AbstractAsyncContextManager[Engine] | None = None,
) -> None:
    """Run one of the four commands, with the ``service`` and the ``engine`` that ``flags`` name unless they are given.

    Raises ``SetupError`` at the end if too many conversations met infrastructure failures.
    """
    if flags.from_scratch and flags.feedback_from != "own":
        raise InputError("--feedback_from other_problem takes its feedback from a single-turn file: no --from_scratch")
    service = service or service_of(flags)
    engine = engine or open_engine(flags)
    check_paths([flags.input_file], [flags.output_file])
    prompts, settings = flags.prompt_set([flags.input_file]), asdict(flags)
    provider = "litellm" if isinstance(flags, LitellmConfig) else "vllm"
    kind = "multi" if flags.multi_turn else "single"
    command = f"run_{kind}_turn_{provider}"
    title = f"{kind.capitalize()}-turn run, engine {'litellm' if isinstance(flags, LitellmConfig) else flags.engine}"

    # The input is read whole and checked before anything is written. Later it is read again, problem by problem.
    invalid = InvalidLines(flags.skip_invalid)
    check = InstructionCheck(prompts, flags.prompts is not None)
    ids, hashes, conversations = [], [], 0
    for problem in read_problems(flags, invalid, check):
        ids.append(problem.id)
        hashes.append(problem.input_hash)
        conversations += len(problem.first_responses_N or ()) or flags.num_completions
    check.tell(flags.input_file)

    def problems() -> Iterator[ProblemRow]:
        again = InstructionCheck(prompts, flags.prompts is not None)
        return read_problems(flags, InvalidLines(flags.skip_invalid, quiet=True), again)

    async with service as execution, engine as model:
        described_execution = await execution.describe()
        made_by = {"model_id": model.model_id, "checker": described_execution["checker"]}
        tell_other_origin(flags.input_file, **made_by)
        content = run_content(flags, prompts, model.model_id, described_execution)
        other_feedback = None
        if flags.feedback_from != "own":
            other_feedback = OtherProblemFeedback(list(problems()), flags, execution, prompts)
        named = settings.get("model") or model.model_id
        origin = {"model": named, "prompts": described(prompts), **made_by}
        with recorded_run(command, settings, [flags.input_file], {flags.output_file: content}, origin) as run:
            with RecordFile(flags.output_file) as output:
                output.refuse_loss(ids)
                output.refuse_other_input(zip(ids, hashes, strict=True), partial(is_done, multi_turn=flags.multi_turn))
                needed = unfinished(output, flags.multi_turn)
                with RecordFile(journal_path(flags.output_file), needed=needed) as journal:
                    journal.refuse_loss(ids, lambda turn: turn[0])
                    version = content_hash(content)
                    driver = Driver(model, execution, flags, output, journal, prompts, version, other_feedback)
                    turns, most_running = conversations * (flags.num_turns + 1), await execution.programs_at_once()
                    started = time.monotonic()
                    async with _progress(driver, len(ids), turns, most_running):
                        await for_each(problems(), driver.problem, lambda: driver.most_open)
                    elapsed_s = time.monotonic() - started
                    written = output.finish(ids)
                    journal.path.unlink()
            work_done = {**execution.work_done(), "held_back_s": driver.held_back_s}
            run.counts = {
                "read": len(ids) + invalid.count,
                "written": written,
                "skipped_invalid": invalid.count,
                **asdict(driver.counts),
                **work_done,
            }
    work_done = {"tokens_generated": driver.tokens_generated, **work_done}
    counts = {name: value for name, value in run.counts.items() if name not in work_done}
    print_summary(title, {"output": flags.output_file, "model": model.model_id, **counts}, work_done)
    if driver.held_back_s > MUCH * elapsed_s:
        print(
            f"The engine had room while programs waited in {driver.held_back_s:.0f} of {elapsed_s:.0f} s. "
            f"{most_running} ran at a time: more cores, or the evaluator app on more machines, make this faster "
            "(docs/executor.md)."
        )
    failed = driver.counts.infra_errors
    refuse_infra_rate(failed, conversations, "conversations", flags.max_infra_rate, driver.causes)


def read_problems(flags: InferenceConfig, invalid: InvalidLines, check: InstructionCheck) -> Iterator[ProblemRow]:
    """The problems of the input file, one at a time, with at most ``num_completions`` first responses each."""
    tests_field = _tests_field(flags)
    first_turn = [] if flags.from_scratch else ["responses"]
    fields = list(dict.fromkeys(["id", "instruction", *TESTS_OF_ALL_STAGES, tests_field, *first_turn]))

    def parse(row: Record) -> ProblemRow:
        problem = (Problem if flags.from_scratch else SingleTurn).read(row)
        refuse_half_characters(problem.instruction)
        check.see(problem.instruction)
        firsts = None
        if isinstance(problem, SingleTurn):
            usage = row.get("usage") or [{}] * len(problem.responses)
            firsts = tuple(zip(problem.responses, usage, strict=True))[: flags.num_completions]
        return ProblemRow(row, row_hash(row), getattr(problem, tests_field), firsts)

    return read_jsonl(flags.input_file, fields, parse=parse, on_invalid=invalid.handler)


def _tests_field(flags: InferenceConfig) -> str:
    return TESTS_FIELDS[flags.feedback_tests] if flags.multi_turn else "test_cases"


def run_content(flags: InferenceConfig, prompts: PromptSet, model_id: str, execution: dict[str, Any]) -> dict[str, Any]:
    """What a resumed run must have in common with the run that began the output.

    ``execution``: what decides verdicts, as the execution service describes it.
    """
    content = {
        "sampling": {name: getattr(flags, name) for name in ("temperature", "top_p", "max_tokens")},
        **{name: getattr(flags, name) for name in ("num_completions", "seed", "multi_turn", "num_turns")},
        **{name: getattr(flags, name) for name in ("enable_thinking", "feedback_tests", "feedback_from")},
        "tests": _tests_field(flags),
        "first_turn_from_file": not flags.from_scratch,
        **prompt_content(prompts),
        "model_id": model_id,
        "execution": execution,
    }
    if isinstance(flags, LitellmConfig):
        content["reasoning_effort"] = flags.reasoning_effort
    elif is_own(flags.engine):
        content["engine"] = OwnFile.read(flags.engine).identity
    elif flags.fp32:  # earlier outputs do not say
        content["fp32"] = True
    if flags.extraction != "released":  # earlier outputs do not say
        content["extraction"] = flags.extraction
    if flags.stop_at_success:  # earlier outputs do not say
        content["stop_at_success"] = True
    if flags.enable_thinking:
        content["history"] = HISTORY_RULE
    if flags.feedback_from != "own":  # then every record depends on the other rows too
        content["input_sha256"] = file_sha256(flags.input_file)
    return content


@asynccontextmanager
async def _progress(driver: Driver, problems: int, turns: int, most_running: int) -> AsyncIterator[None]:
    """Show turns done of ``turns``, time left, problems, conversations, rates and queues until the body ends.

    Meanwhile see whether programs hold the engine back. ``most_running``: programs that can run at a time.
    """
    started = time.monotonic()

    def look() -> None:
        counts, execution = driver.counts, driver.execution
        waiting = max(driver.asked - driver.engine.max_in_flight, 0)
        queued = max(execution.active - most_running, 0)
        elapsed = max(time.monotonic() - started, 1e-9)
        bar.set_postfix_str(
            f"problems {counts.problems}/{problems}, conversations {counts.conversations}, "
            f"{driver.tokens_generated / elapsed:,.0f} tok/s, {execution.tests_done / elapsed:,.0f} tests/s, "
            f"requests {driver.asked - waiting} running and {waiting} waiting, "
            f"programs {execution.active - queued} running and {queued} waiting, "
            f"infra errors {counts.infra_errors}",
            refresh=False,
        )
        bar.update(counts.turns - bar.n)

    async def watch() -> None:
        since = started
        while True:
            await asyncio.sleep(REFRESH_S)
            before, since = since, time.monotonic()
            if driver.asked < driver.engine.max_in_flight and driver.execution.active > most_running:
                driver.held_back_s += since - before

    with progress_bar(look, total=turns, unit="turn", delay=0) as bar:
        watcher = asyncio.ensure_future(watch())
        try:
            yield
        finally:
            watcher.cancel()
