"""One inference run, from its plan to the summary: check the input, resume, drive, write the manifest."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cobalt.cli.console import print_summary
from cobalt.cli.prompt_flags import InstructionCheck
from cobalt.inference.conversation import HISTORY_RULE
from cobalt.inference.driver import Driver, MethodConfig
from cobalt.inference.engine import Engine
from cobalt.inference.feedback import FeedbackSource, OtherProblemFeedback, OwnFeedback
from cobalt.inference.progress import show_progress
from cobalt.inference.trajectories import TESTS_OF_ALL_STAGES, ProblemRow, read_problem
from cobalt.prompts import COBALT, PromptSet, described, prompt_content
from cobalt.records import RecordFile, read_jsonl
from cobalt.records.jsonl import InvalidLines
from cobalt.records.manifest import (
    check_paths,
    content_hash,
    file_sha256,
    journal_path,
    recorded_run,
    refuse_infra_rate,
)
from cobalt.serving.execution import ExecutionService


@dataclass(frozen=True)
class Plan:
    """A run, as its command's flags describe it."""

    command: str
    input_file: Path
    output_file: Path
    method: MethodConfig
    tests_field: str
    first_turn_from_file: bool
    max_infra_rate: float
    skip_invalid: bool
    engine_content: dict[str, Any]
    """Engine settings that change the output's content, besides the model and the sampling."""
    flags: dict[str, Any]
    """All flags, for the manifest."""
    prompts: PromptSet = COBALT
    prompts_required: bool = False
    """The set was asked for, so that the instructions must be of it."""

    def content(self, model_id: str, execution: dict[str, Any]) -> dict[str, Any]:
        """What a resumed run must have in common with the run that began the output.

        ``execution``: what decides verdicts, as the execution service describes it.
        """
        content = {
            **asdict(self.method),
            "tests": self.tests_field,
            "first_turn_from_file": self.first_turn_from_file,
            **prompt_content(self.prompts),
            "model_id": model_id,
            "execution": execution,
            **self.engine_content,
        }
        if self.method.enable_thinking:
            content["history"] = HISTORY_RULE
        if self.method.feedback_from != "own":  # then every record depends on the other rows too
            content["input_sha256"] = file_sha256(self.input_file)
        return content


class Input:
    """The input file: read whole and checked before anything is written, then again, problem by problem."""

    def __init__(self, plan: Plan):
        self._plan = plan
        invalid = InvalidLines(plan.skip_invalid)
        self.ids: list[Any] = []
        self.conversations = 0
        check = InstructionCheck(plan.prompts, plan.prompts_required)
        for problem in self._read(invalid, check):
            self.ids.append(problem.id)
            self.conversations += len(problem.first_responses_N or ()) or plan.method.num_completions
        self.skipped = invalid.count
        check.tell(plan.input_file)

    def __iter__(self) -> Iterator[ProblemRow]:
        check = InstructionCheck(self._plan.prompts, self._plan.prompts_required)
        return self._read(InvalidLines(self._plan.skip_invalid, quiet=True), check)

    def _read(self, invalid: InvalidLines, check: InstructionCheck) -> Iterator[ProblemRow]:
        plan = self._plan
        first_turn = ["responses"] if plan.first_turn_from_file else []
        fields = list(dict.fromkeys(["id", "instruction", *TESTS_OF_ALL_STAGES, plan.tests_field, *first_turn]))
        parse = partial(
            read_problem,
            tests_field=plan.tests_field,
            fixed_first_turn=plan.first_turn_from_file,
            num_completions=plan.method.num_completions,
            check=check.see,
        )
        return read_jsonl(plan.input_file, fields, parse=parse, on_invalid=invalid.handler)


async def run_inference(
    plan: Plan,
    open_service: AbstractAsyncContextManager[ExecutionService],
    open_engine: AbstractAsyncContextManager[Engine],
) -> None:
    """Carry out ``plan``. Raises ``SetupError`` at the end if too many conversations met infra failures."""
    check_paths([plan.input_file], [plan.output_file])
    problems = Input(plan)
    async with open_service as service, open_engine as engine:
        content = plan.content(engine.model_id, await service.describe())
        feedback = _feedback(plan, problems, service)
        with recorded_run(plan.command, plan.flags, [plan.input_file], {plan.output_file: content}, plan.adopt) as run:
            with RecordFile(plan.output_file) as output:
                output.refuse_loss(problems.ids)
                with RecordFile(journal_path(plan.output_file)) as journal:
                    driver = Driver(
                        engine, service, feedback, plan.method, output, journal, plan.prompts, content_hash(content)
                    )
                    turns = problems.conversations * (plan.method.num_turns + 1)
                    async with show_progress(driver, len(problems.ids), turns):
                        await driver.run(problems)
                    written = output.finish(problems.ids)
                    journal.path.unlink()
            run.origin = {"model": plan.flags.get("model") or engine.model_id, "prompts": described(plan.prompts)}
            run.counts = {
                "read": len(problems.ids) + problems.skipped,
                "written": written,
                "skipped_invalid": problems.skipped,
                **asdict(driver.counts),
                **service.work_done(),
            }
    print_summary(plan.command, {"output": plan.output_file, "model": engine.model_id, **run.counts})
    failed = driver.counts.infra_errors
    refuse_infra_rate(failed, problems.conversations, "conversations", plan.max_infra_rate, driver.causes)


def _adopt(plan: Plan, problems: Input, output: RecordFile) -> int:
    asked, turns = plan.method.num_completions, plan.method.num_turns + 1

    def check(record: Record, row: Record) -> None:
        samples = len(row["responses"][:asked]) if plan.first_turn_from_file else asked
        refuse_other_record(record, row, samples, turns, plan.prompts if plan.method.multi_turn else None)

    return adopt_records(output, ((problem.row, problem.input_hash) for problem in problems), check)


def _feedback(plan: Plan, problems: Input, execution: ExecutionService) -> FeedbackSource:
    if plan.method.feedback_from == "own":
        return OwnFeedback(plan.prompts)
    return OtherProblemFeedback(list(problems), plan.method.seed, execution, plan.prompts)
