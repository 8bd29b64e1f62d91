"""The driver of single-turn and multi-turn inference: every conversation advances on its own.

A conversation holds one of the engine's slots only while its response is generated; its program runs while other
conversations generate. About ``WINDOW`` times as many conversations as slots are open, and a free slot goes to the one
with the most turns left, so that the last ones end together. Every finished turn goes to a journal beside the output:
after kill -9 a run repeats only what was being generated. Infrastructure failures are kept out of the journal and
marked in the record; the next run takes those turns again, and only those.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cobalt.cli.tasks import for_each
from cobalt.completion import FINISH_CONTEXT, Message, Sampling, request_seed
from cobalt.errors import InfraError, SetupError
from cobalt.extraction import extract_code
from cobalt.inference.conversation import (
    Response,
    Turn,
    history_changes_program,
    history_text,
    turn_from_record,
    turn_to_record,
)
from cobalt.inference.engine import Engine
from cobalt.inference.feedback import FeedbackSource
from cobalt.inference.slots import PrioritySlots
from cobalt.inference.trajectories import ProblemRow, multi_turn_record, single_turn_record, turns_of_record
from cobalt.prompts import PromptSet, feedback_message, first_messages, with_feedback
from cobalt.records import RecordFile
from cobalt.sandbox import ExecutionResult
from cobalt.serving.execution import ExecutionService, Runs

WINDOW = 4
MAX_FAILURES_IN_A_ROW = 100


@dataclass(frozen=True)
class MethodConfig:
    """What is done with each problem."""

    sampling: Sampling
    num_completions: int
    seed: int
    multi_turn: bool
    num_turns: int = 0
    """Turns after the first."""
    enable_thinking: bool = False
    feedback_tests: str = "public"
    feedback_from: str = "own"


@dataclass
class Counts:
    """What a run has done so far; shown while it runs, stored in the manifest."""

    problems: int = 0
    conversations: int = 0
    turns: int = 0
    """Turns done, those of earlier runs included."""
    requests: int = 0
    """Answered requests whose responses are in the output, those of earlier runs included; so are their tokens."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    infra_errors: int = 0
    """Conversations that an infrastructure failure ended."""
    over_context: int = 0
    """Requests whose prompt left no room for an answer."""
    history_changes_program: int = 0
    """Turns whose program in the history is not the one that the public tests ran."""


@dataclass
class Driver:
    """Runs problems through one engine and one execution service into ``output``."""

    engine: Engine
    execution: ExecutionService
    feedback: FeedbackSource
    method: MethodConfig
    output: RecordFile
    journal: RecordFile
    prompts: PromptSet
    journal_version: str
    """Turns in the journal count only if they were taken under the same settings: their content hash."""
    counts: Counts = field(default_factory=Counts)
    tokens_generated: int = 0
    """By this run."""
    causes: Counter[str] = field(default_factory=Counter)
    """Of the conversations that an infrastructure failure ended."""
    _failures_in_a_row: int = 0

    def __post_init__(self) -> None:
        self.slots = PrioritySlots(lambda: self.engine.max_in_flight)

    async def run(self, problems: Iterable[ProblemRow]) -> None:
        """Take every problem through all turns; a bounded number of them is open at a time."""
        await for_each(problems, self._problem, self._window)

    def _window(self) -> int:
        """Problems open at a time."""
        return math.ceil(WINDOW * self.engine.max_in_flight / self.method.num_completions)

    async def _problem(self, problem: ProblemRow) -> None:
        record = self.output.get(problem.id, problem.input_hash)
        known_NT = [] if record is None else turns_of_record(record, self.method.multi_turn)
        if record is None or any(turn.failed for turns in known_NT for turn in turns):
            done = await self._conversations(problem, known_NT)
            turns_NT = [turns for turns, _ in done]
            if self.method.multi_turn:
                method = self.method
                labels = {"feedback_tests": method.feedback_tests, "feedback_from": method.feedback_from}
                record = multi_turn_record(problem, turns_NT, [messages for _, messages in done], labels)
            else:
                record = single_turn_record(problem, turns_NT)
            self.output.append(record)
        else:
            turns_NT = known_NT
            self.counts.conversations += len(turns_NT)
            self.counts.turns += sum(map(len, turns_NT))
        self._count_problem(problem, turns_NT)

    async def _conversations(
        self, problem: ProblemRow, known_NT: list[list[Turn]]
    ) -> list[tuple[list[Turn], list[Message]]]:
        firsts = problem.first_responses_N
        samples = self.method.num_completions if firsts is None else len(firsts)
        runs: Runs = {}  # equal programs of the problem run once
        conversations = [
            _Conversation(self, problem, runs, sample, known_NT[sample] if known_NT else [])
            for sample in range(samples)
        ]
        tasks = [asyncio.ensure_future(conversation.run()) for conversation in conversations]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def journal_entry(self, problem: ProblemRow, sample: int, number: int) -> tuple[list[Any], str]:
        """Key and hash of a turn in the journal."""
        return [problem.id, sample, number], f"{problem.input_hash}/{self.journal_version}"

    async def generate(self, problem: ProblemRow, sample: int, number: int, messages: list[Message]) -> Response:
        """The model's response in one turn; waits for a slot. Raises ``InfraError``."""
        seed = request_seed(self.method.seed, problem.id, sample, number)
        async with self.slots.hold((number,)):
            try:
                completion = await self.engine.generate(messages, self.method.sampling, seed)
            except InfraError as error:
                self._failures_in_a_row += 1
                if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                    raise SetupError(f"the engine failed {MAX_FAILURES_IN_A_ROW} times in a row: {error}") from None
                raise
        self._failures_in_a_row = 0
        self.tokens_generated += completion.completion_tokens
        return Response(completion.text, completion.usage())

    def _count_problem(self, problem: ProblemRow, turns_NT: list[list[Turn]]) -> None:
        counts = self.counts
        counts.problems += 1
        failures = [next((turn.result.infra_error for turn in turns if turn.failed), None) for turns in turns_NT]
        self.causes.update(failure for failure in failures if failure is not None)
        counts.infra_errors = self.causes.total()
        counts.history_changes_program += sum(
            history_changes_program(turn.text, self.method.enable_thinking) for turns in turns_NT for turn in turns
        )
        first = 0 if problem.first_responses_N is None else 1  # a given turn 0 counts where it was generated
        answers = [turn.usage for turns in turns_NT for turn in turns[first:] if turn.usage is not None]
        counts.requests += len(answers)
        counts.prompt_tokens += sum(usage.get("prompt_tokens", 0) for usage in answers)
        counts.completion_tokens += sum(usage.get("completion_tokens", 0) for usage in answers)
        counts.cost_usd += sum(usage.get("cost") or 0.0 for usage in answers)
        counts.over_context += sum(usage.get("finish_reason") == FINISH_CONTEXT for usage in answers)


@dataclass
class _Conversation:
    """One sample of one problem. ``recorded``: its turns in the output of an earlier run, or none."""

    driver: Driver
    problem: ProblemRow
    runs: Runs
    sample: int
    recorded: list[Turn]

    def __post_init__(self) -> None:
        self.messages = first_messages(self.problem.row["instruction"], self.driver.prompts)
        self.turns: list[Turn] = []

    async def run(self) -> tuple[list[Turn], list[Message]]:
        """All turns and the messages; an infrastructure failure ends the conversation early."""
        method, counts = self.driver.method, self.driver.counts
        try:
            for number in range(method.num_turns + 1):
                self.turns.append(await self._turn(number))
                if method.multi_turn:
                    await self._show_feedback(number)
                counts.turns += 1
        except _InfraEnd as end:
            counts.turns += method.num_turns + 1 - len(self.turns)
            self._fill_up(end.turn, method.num_turns + 1)
        counts.conversations += 1
        return self.turns, self.messages

    async def _turn(self, number: int) -> Turn:
        """The turn as an earlier run left it, or a new one. Raises ``_InfraEnd`` with what there is of it."""
        known = self._known(number)
        if known is not None and not known.failed:
            return known
        response = known.response if known is not None else None
        if response is None:
            try:
                response = await self._respond(number)
            except InfraError as error:
                raise _InfraEnd(self._failed(None, str(error))) from None
        tests = self.problem.tests
        result = await self.driver.execution.run(extract_code(response.text), tests, self.runs)
        turn = Turn(response, with_feedback(result, tests))
        if turn.failed:
            raise _InfraEnd(turn)
        key, content_hash = self.driver.journal_entry(self.problem, self.sample, number)
        self.driver.journal.append({"id": key, "input_hash": content_hash, **turn_to_record(turn)})
        return turn

    def _known(self, number: int) -> Turn | None:
        """The turn in the output or in the journal; in the output it may have failed."""
        if self.recorded and not self.recorded[number].failed:
            return self.recorded[number]
        row = self.driver.journal.get(*self.driver.journal_entry(self.problem, self.sample, number))
        if row is not None:
            return turn_from_record(row, str(self.driver.journal.path))
        return self.recorded[number] if self.recorded else None

    async def _respond(self, number: int) -> Response:
        firsts = self.problem.first_responses_N
        if number > 0 or firsts is None:
            return await self.driver.generate(self.problem, self.sample, number, self.messages)
        first = firsts[self.sample]
        if first is None:
            raise InfraError("the single-turn file has no response for this sample")
        return first

    async def _show_feedback(self, number: int) -> None:
        turn = self.turns[-1]
        try:
            feedback = await self.driver.feedback.feedback(self.problem, self.sample, number, turn)
        except InfraError as error:
            self.turns.pop()
            raise _InfraEnd(self._failed(turn.response, str(error))) from None
        text = history_text(turn.text, self.driver.method.enable_thinking)
        self.messages.append({"role": "assistant", "content": text})
        self.messages.append(feedback_message(feedback, self.driver.prompts))

    def _failed(self, response: Response | None, why: str) -> Turn:
        tests = self.problem.tests
        return Turn(response, with_feedback(ExecutionResult.infra(len(tests), why), tests))

    def _fill_up(self, failed: Turn, length: int) -> None:
        """The failed turn, and those that it prevented."""
        why = f"turn {len(self.turns)} failed"
        self.turns.append(failed)
        self.turns += [self._failed(None, why)] * (length - len(self.turns))


class _InfraEnd(Exception):
    """An infrastructure failure ended a conversation in ``turn``."""

    def __init__(self, turn: Turn):
        super().__init__(turn.result.infra_error)
        self.turn = turn
