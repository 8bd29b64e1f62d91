"""The driver of single-turn and multi-turn inference: every conversation advances on its own.

A conversation holds one of the engine's slots only while its response is generated. Its program runs while other
conversations generate. About ``WINDOW`` times as many conversations as slots are open. Every response goes to a journal
beside the output with its result: after kill -9 a run repeats only what was in flight. Infrastructure failures are
marked. The next run takes those turns again, and only those: it runs the program where there is a response.
"""

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cobalt.cli.tasks import Slots
from cobalt.completion import FINISH_CONTEXT, FINISH_LENGTH, Message, Sampling, request_seed
from cobalt.errors import InfraError, InputError, SetupError
from cobalt.extraction import extract_code, rules_differ
from cobalt.inference.conversation import Turn, Usage, history_text
from cobalt.inference.engines import Engine
from cobalt.inference.flags import InferenceConfig, SolveConfig
from cobalt.prompts import PromptSet, feedback_message, feedback_to_policy, first_messages, with_feedback
from cobalt.records import RecordFile, ResultRecord, id_key
from cobalt.records.jsonl import Record
from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.serving.execution import ExecutionService, Runs

WINDOW = 4
MAX_FAILURES_IN_A_ROW = 100
SINGLE_TURN = ("responses", "exec_results", "usage")
"""What a single-turn run adds to a row."""
OF_ANOTHER_RUN = (
    *("conversations", "raw_responses", "public_pass_rates", "public_exec_results", "feedback_tests", "feedback_from"),
    *("stop_at_success", "all_pass_rates", "clean_public_pass_rates"),
)
"""What multi-turn runs and their evaluation add: none of it is of this run's answers."""


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
    cost_usd: float | None = None
    """None: the engine has no price."""
    infra_errors: int = 0
    """Conversations that an infrastructure failure ended."""
    over_context: int = 0
    """Requests whose prompt left no room for an answer."""
    history_changes_program: int = 0
    """Turns whose program in the history is not the one that the public tests ran."""
    extraction_differs: int = 0
    """Turns in whose response the two rules of extraction find different programs."""


class OtherProblemFeedback:
    """A control: problem i is shown feedback to another problem's first runs, whatever its own program did.

    Sample s gets feedback to program (s + t) mod n of the n responses, so that it varies over turns. Gains that come
    from reading the feedback vanish under it. Holds every problem of the input in memory.
    """

    def __init__(
        self, problems: Sequence[ProblemRow], config: InferenceConfig, execution: ExecutionService, prompts: PromptSet
    ):
        if len(problems) < 2:
            raise InputError("--feedback_from other_problem needs at least two problems")
        cycle = random.Random(config.seed).sample(list(problems), len(problems))  # through all: none is its own donor
        self._donors = {id_key(one.id): donor for one, donor in zip(cycle, cycle[1:] + cycle[:1], strict=True)}
        self._config, self._execution, self._prompts = config, execution, prompts
        self._runs: Runs = {}

    async def text(self, problem: ProblemRow, sample: int, number: int) -> str:
        """The feedback shown after turn ``number`` of sample ``sample``. Raises ``InfraError``."""
        donor = self._donors[id_key(problem.id)]
        firsts = [(text, usage) for text, usage in donor.first_responses_N or () if usage is not None]
        if not firsts:
            raise InfraError(f"problem {donor.id!r}, whose feedback is shown, has no response in the single-turn file")
        code = program_of_turn(*firsts[(sample + number) % len(firsts)], self._config)
        result = await self._execution.run(code, donor.tests, self._runs)
        if result.infra_error is not None:
            raise InfraError(f"feedback of problem {donor.id!r}: {result.infra_error}")
        return feedback_to_policy(with_feedback(result, donor.tests), self._prompts)


@dataclass
class Driver:
    """Runs problems through one engine and one execution service into ``output``."""

    engine: Engine
    execution: ExecutionService
    config: InferenceConfig
    output: RecordFile
    journal: RecordFile
    prompts: PromptSet
    journal_version: str
    """Turns in the journal count only if they were taken under the same settings: their content hash."""
    other_feedback: OtherProblemFeedback | None = None
    """Instead of the conversation's own."""
    counts: Counts = field(default_factory=Counts)
    tokens_generated: int = 0
    """Tokens that this run generated."""
    causes: Counter[str] = field(default_factory=Counter)
    """Causes of the infrastructure failures that ended conversations."""
    asked: int = 0
    """Requests that the engine answers, or that wait for a slot."""
    held_back_s: float = 0.0
    """Seconds in which the engine had room for requests while programs waited for a sandbox."""
    _failures_in_a_row: int = 0

    def __post_init__(self) -> None:
        self._sampling = Sampling(self.config.temperature, self.config.top_p, self.config.max_tokens)
        self._slots = Slots(lambda: self.engine.max_in_flight)

    @property
    def most_open(self) -> int:
        """How many problems may be open now."""
        return math.ceil(WINDOW * self.engine.max_in_flight / self.config.num_completions)

    async def problem(self, problem: ProblemRow) -> None:
        """One problem: all of its conversations, side by side, and its record. Nothing if an earlier run did it."""
        config, counts = self.config, self.counts
        firsts = problem.first_responses_N
        turns_NT = turns_in(self.output, problem.id, problem.input_hash, config.multi_turn)
        if not are_done(turns_NT):
            runs: Runs = {}  # equal programs of the problem run once
            recorded_NT = turns_NT or [[]] * (config.num_completions if firsts is None else len(firsts))
            tasks = [
                asyncio.ensure_future(self._conversation(problem, sample, recorded, runs))
                for sample, recorded in enumerate(recorded_NT)
            ]
            try:
                done = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            turns_NT = [turns for turns, _ in done]
            self.output.append(record_of(problem, turns_NT, [messages for _, messages in done], config))
            self.journal.forget(
                [problem.id, sample, number] for sample, turns in enumerate(turns_NT) for number in range(len(turns))
            )
        else:
            counts.conversations += len(turns_NT)
            counts.turns += sum(map(len, turns_NT))
        counts.problems += 1
        failures = [next((turn.result.infra_error for turn in turns if turn.failed), None) for turns in turns_NT]
        self.causes.update(failure for failure in failures if failure is not None)
        counts.infra_errors = self.causes.total()
        for turn in itertools.chain.from_iterable(turns_NT):
            shown = extract_code(history_of(turn.text, turn.usage, config), config.extraction)
            counts.history_changes_program += program_of_turn(turn.text, turn.usage, config) != shown
            counts.extraction_differs += rules_differ(turn.text)
        generated = 0 if firsts is None else 1  # a given turn 0 counts where it was generated
        for usage in [turn.usage for turns in turns_NT for turn in turns[generated:] if turn.usage is not None]:
            counts.requests += 1
            counts.prompt_tokens += usage.get("prompt_tokens", 0)
            counts.completion_tokens += usage.get("completion_tokens", 0)
            if usage.get("cost") is not None:
                counts.cost_usd = (counts.cost_usd or 0.0) + usage["cost"]
            counts.over_context += usage.get("finish_reason") == FINISH_CONTEXT

    async def _conversation(
        self, problem: ProblemRow, sample: int, recorded: list[Turn], runs: Runs
    ) -> tuple[list[Turn], list[Message]]:
        """One sample from turn 0 to turn T. An infrastructure failure ends it: the turns after it are marked, too.
        So does a program that passes, with ``stop_at_success``: it counts at the turns after it.

        ``recorded``: its turns in the output of an earlier run, or none.
        """
        config = self.config
        messages = first_messages(problem.row["instruction"], self.prompts)
        turns: list[Turn] = []
        for number in range(config.num_turns + 1):
            turn = await self._turn(problem, sample, number, messages, recorded, runs)
            if config.multi_turn and not turn.failed:
                try:
                    if self.other_feedback is not None:
                        feedback = await self.other_feedback.text(problem, sample, number)
                    else:
                        feedback = feedback_to_policy(turn.result, self.prompts)
                    text = history_of(turn.text, turn.usage, config)
                    messages += [{"role": "assistant", "content": text}, feedback_message(feedback, self.prompts)]
                except InfraError as error:
                    turn = replace(turn, result=_not_run(problem.tests, str(error)))
            turns.append(turn)
            self.counts.turns += 1
            if turn.failed or (config.stop_at_success and turn.result.pass_rate == 1):
                break
        prevented = config.num_turns + 1 - len(turns)
        last = turns[-1]
        after = _not_run(problem.tests, f"turn {len(turns) - 1} failed") if last.failed else last.result
        turns += [Turn("", None, after)] * prevented
        self.counts.turns += prevented
        self.counts.conversations += 1
        return turns, messages

    async def _turn(
        self,
        problem: ProblemRow,
        sample: int,
        number: int,
        messages: list[Message],
        recorded: list[Turn],
        runs: Runs,
    ) -> Turn:
        """One turn, as an earlier run left it or new: a response, then its program's result. It may have failed."""
        entry = {"id": [problem.id, sample, number], "input_hash": f"{problem.input_hash}/{self.journal_version}"}
        known = recorded[number] if recorded else None
        if known is None or known.failed:
            known = self.journal.get(entry["id"], entry["input_hash"], _turn_of_journal) or known
        if known is not None and not known.failed:
            return known
        if known is not None and known.usage is not None:  # only its program could not be run
            text, usage = known.text, known.usage
        elif number == 0 and problem.first_responses_N is not None:
            text, usage = problem.first_responses_N[sample]
            if usage is None:
                why = "the single-turn file has no response for this sample"
                return Turn("", None, _not_run(problem.tests, why))
        else:
            seed = request_seed(self.config.seed, problem.id, sample, number)
            self.asked += 1
            try:
                async with self._slots:
                    completion = await self.engine.generate(messages, self._sampling, seed)
            except InfraError as error:
                self._failures_in_a_row += 1
                if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                    raise SetupError(f"the engine failed {MAX_FAILURES_IN_A_ROW} times in a row: {error}") from None
                return Turn("", None, _not_run(problem.tests, str(error)))
            finally:
                self.asked -= 1
            self._failures_in_a_row = 0
            self.tokens_generated += completion.completion_tokens
            text, usage = completion.text, completion.usage()
        result = await self.execution.run(program_of_turn(text, usage, self.config), problem.tests, runs)
        turn = Turn(text, usage, with_feedback(result, problem.tests))
        self.journal.append({**entry, "response": text, "usage": usage, "result": turn.result.to_record()})
        return turn


def unfinished(output: RecordFile, multi_turn: bool) -> Callable[[Record], bool]:
    """Tells which turns of a journal are needed: those of problems without a record, or with failed turns in it."""
    known: dict[tuple[str, str], bool] = {}

    def needed(turn: Record) -> bool:
        problem, input_hash = turn["id"][0], turn["input_hash"].rpartition("/")[0]
        key = id_key(problem), input_hash
        if key not in known:
            known[key] = not are_done(turns_in(output, problem, input_hash, multi_turn))
        return known[key]

    return needed


def history_of(response: str, usage: Usage, config: InferenceConfig | SolveConfig) -> str:
    """What later turns see of a response."""
    was_cut = usage is not None and usage.get("finish_reason") == FINISH_LENGTH
    return history_text(response, config.enable_thinking, config.extraction, was_cut)


def program_of_turn(response: str, usage: Usage, config: InferenceConfig | SolveConfig) -> str | None:
    """The program that runs. A response that leaves nothing in the history has none, but for the released rule."""
    if config.extraction != "released" and not history_of(response, usage, config):
        return None
    return extract_code(response, config.extraction)


def _not_run(tests: TestCases, why: str) -> ResultRecord:
    """The result of a program that an infrastructure failure kept from running, or from being written."""
    return with_feedback(ExecutionResult.infra(len(tests), why), tests)


def record_of(
    problem: ProblemRow,
    turns_NT: Sequence[Sequence[Turn]],
    conversations: Sequence[list[Message]],
    config: InferenceConfig,
) -> Record:
    """The output record (docs/formats.md). What was given as turn 0 is cut to the samples used, or left out."""
    others = {*OF_ANOTHER_RUN, *(SINGLE_TURN if problem.first_responses_N is None else ())}
    row = {name: value for name, value in problem.row.items() if name not in others}
    turns_TN = list(zip(*turns_NT, strict=True))
    texts_TN = [[turn.text for turn in turns] for turns in turns_TN]
    results_TN = [[turn.result.to_record() for turn in turns] for turns in turns_TN]
    usage_TN = [[turn.usage for turn in turns] for turns in turns_TN]
    if not config.multi_turn:
        fields = {"responses": texts_TN[0], "exec_results": results_TN[0], "usage": usage_TN[0]}
    else:
        of_turn_0 = [name for name in ("responses", "exec_results") if name in row]
        fields = {
            **{name: row[name][: len(turns_NT)] for name in of_turn_0},
            "conversations": list(conversations),
            "raw_responses": texts_TN,
            "public_pass_rates": [[turn.result.pass_rate for turn in turns] for turns in turns_TN],
            "public_exec_results": results_TN,
            "usage": usage_TN,
            "feedback_tests": config.feedback_tests,
            "feedback_from": config.feedback_from,
            **({"stop_at_success": True} if config.stop_at_success else {}),
        }
    return {**row, **fields, "extraction": config.extraction, "input_hash": problem.input_hash}


def turns_in(output: RecordFile, id_: Any, input_hash: str, multi_turn: bool) -> list[list[Turn]]:
    """``turns_NT`` of a problem's record; empty if there is none."""
    return output.get(id_, input_hash, partial(turns_of_record, multi_turn=multi_turn)) or []


def is_done(record: Record, multi_turn: bool) -> bool:
    """Whether none of the record's turns has failed."""
    return are_done(turns_of_record(record, multi_turn))


def turns_of_record(record: Record, multi_turn: bool) -> list[list[Turn]]:
    """``turns_NT`` of an output record."""
    names = ("raw_responses", "usage", "public_exec_results") if multi_turn else ("responses", "usage", "exec_results")
    columns = [record[name] if multi_turn else [record[name]] for name in names]
    turns_TN = [
        [_turn(text, usage, result) for text, usage, result in zip(*row, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    return [list(turns) for turns in zip(*turns_TN, strict=True)]


def _turn_of_journal(row: Record) -> Turn:
    return _turn(row["response"], row["usage"], row["result"])


def _turn(text: Any, usage: Any, result: Any) -> Turn:
    """A stored turn. Raises ``TypeError`` for values of other types."""
    if not isinstance(text, str) or not isinstance(usage, dict | None):
        raise TypeError("a turn has a text and its usage")
    return Turn(text, usage, ResultRecord.from_record(result))


def are_done(turns_NT: list[list[Turn]]) -> bool:
    """Whether there are turns, and none of them has failed."""
    return bool(turns_NT) and not any(turn.failed for turns in turns_NT for turn in turns)
