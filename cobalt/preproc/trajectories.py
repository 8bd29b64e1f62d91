"""``cobalt data trajectories``: rollouts that other frameworks saved, as multi-turn records (docs/formats.md).

Only the answers are taken over. Their programs run again, on our public tests, and the conversations are built anew
with our messages and our feedback: a policy trains on the prompts that it will be served. Holds all answers in memory.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic.dataclasses
import tyro

from cobalt.cli import flags
from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.cli.tasks import for_each
from cobalt.completion import Message, joined, written
from cobalt.errors import InputError
from cobalt.inference.conversation import Turn
from cobalt.inference.driver import ProblemRow, history_of, program_of_turn, record_of
from cobalt.inference.flags import MultiTurnOpenWeightConfig
from cobalt.preproc.sources import Source
from cobalt.prompts import (
    PromptSet,
    described,
    feedback_message,
    feedback_to_policy,
    first_messages,
    prompt_content,
    with_feedback,
)
from cobalt.records import RecordFile, id_key, row_hash
from cobalt.records.jsonl import InvalidLines, Record, checked_rows, load_json, parse_line
from cobalt.records.manifest import check_paths, recorded_run, refuse_infra_rate
from cobalt.records.rows import MultiTurn, Problem, read_rows
from cobalt.serving.execution import ExecutionService, Runs, service_of

EPISODES = "episode_*.json"  # as rLLM names its files
KEPT = "kept"
UNKNOWN = "dropped: of none of the problems"
FAILED = "dropped: ended by an error of its framework"
OTHER_AGENT = "dropped: of another agent"
BRANCHED = "dropped: a conversation with branches"
TOOLS = "dropped: calls tools, so that its programs are not in its answers"
SILENT = "dropped: without an answer"
INVALID = "skipped invalid"

Layout = Literal["verifiers", "prime-rl", "rllm", "openai-messages"]
Messages = Sequence[Mapping[str, Any]]


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoriesConfig(flags.ExecutionConfig, PromptsConfig, flags.ReadConfig):
    """Make trajectories of rollouts that another framework saved. Their programs run again on the public tests.

    The output is that of a multi-turn run: eval_multi_turn.py is next.
    """

    input: tyro.conf.Positional[tuple[Path, ...]]
    """Rollouts: results.jsonl or traces.jsonl of verifiers, traces.jsonl of prime-rl, episode_*.json of rLLM or a
    folder of them, or rows with `messages` (JSONL or parquet). A file that is named twice is read once."""
    layout: Annotated[Layout, tyro.conf.arg(name="from")]
    """What saved them."""
    problems: Path
    """The problems (JSONL) with their tests."""
    output_file: Annotated[flags.OutputFile, tyro.conf.arg(aliases=["-o", "--output"])]
    """Records (JSONL), as of a multi-turn run with --stop_at_success; an unfinished or partly failed file is
    resumed."""
    id_field: str | None = None
    """Where a row names its problem's id, such as `info.id` or `task.data.name`. Default: the problem is the one whose
    statement stands in the last user message before the first answer."""
    num_turns: flags.NotNegative = MultiTurnOpenWeightConfig.num_turns
    """Turns after the first program; later ones are left out."""
    enable_thinking: bool = False
    """Keep only what follows the last `</think>` in the history, as in a multi-turn run."""


@dataclass(frozen=True)
class Rollout:
    """``prompt``: the messages before the first of its ``answers``. ``left_out``: why it cannot be used."""

    prompt: Messages
    answers: Messages
    left_out: str | None = None


def of_chat(row: Record) -> list[Rollout]:
    """Rows with OpenAI's ``messages``."""
    return [_rollout(_messages(row, "messages"))]


def of_verifiers(row: Record) -> list[Rollout]:
    """A line of ``results.jsonl``, or else of ``traces.jsonl``: an episode of several agents, or one trace alone."""
    if "completion" in row:
        prompt, said = _messages(row, "prompt"), _messages(row, "completion", "assistant")
        own = range(len(prompt), len(prompt) + len(said))
        return [_rollout([*prompt, *said], own, FAILED if row.get("error") is not None else None)]
    if "traces" not in row and "nodes" not in row:
        raise ValueError("missing field 'completion', 'traces' or 'nodes'")
    rollouts = []
    for trace in _objects(row, "traces") if "traces" in row else [row]:
        nodes, agent = _objects(trace, "nodes"), trace.get("agent")
        reasons = {
            OTHER_AGENT: isinstance(agent, dict) and not agent.get("trainable", True),
            FAILED: trace.get("stop_condition") == "error",
            BRANCHED: any(node.get("parent") != (place - 1 if place else None) for place, node in enumerate(nodes)),
        }
        messages = _messages({"message": [node.get("message") for node in nodes]}, "message")
        sampled = [place for place, node in enumerate(nodes) if node.get("sampled")]
        rollouts.append(_rollout(messages, sampled, next(filter(reasons.get, reasons), None)))
    return rollouts


def of_rllm(row: Record) -> list[Rollout]:
    """An episode: the trajectories of its first agent. A step's ``chat_completions`` end with its answer."""
    rollouts, trajectories = [], _objects(row, "trajectories")
    for trajectory in trajectories:
        chats = [_messages(step, "chat_completions") for step in _objects(trajectory, "steps")]
        chats = [chat for chat in chats if chat]
        said = [*chats[0][:-1], *(chat[-1] for chat in chats)] if chats else []
        other = trajectory.get("name") != trajectories[0].get("name")
        own = range(len(said) - len(chats), len(said))
        rollouts.append(_rollout(said, own, OTHER_AGENT if other else None))
    return rollouts


LAYOUTS: dict[Layout, Callable[[Record], list[Rollout]]] = {
    "verifiers": of_verifiers,
    "prime-rl": of_verifiers,
    "rllm": of_rllm,
    "openai-messages": of_chat,
}


def _rollout(messages: Messages, own: Sequence[int] | None = None, left_out: str | None = None) -> Rollout:
    """``own``: places of messages that may be answers; default: all."""
    places = range(len(messages)) if own is None else own
    answers = [place for place in places if messages[place]["role"] == "assistant"]
    return Rollout(messages[: min(answers, default=None)], [messages[place] for place in answers], left_out)


def _objects(row: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """A list of objects. Raises ``ValueError``."""
    if field not in row:
        raise ValueError(f"missing field '{field}'")
    if not isinstance(row[field], list) or not all(isinstance(value, dict) for value in row[field]):
        raise ValueError(f"field '{field}' must be a list of objects")
    return row[field]


def _messages(row: Mapping[str, Any], field: str, role: str = "user") -> Messages:
    """Chat messages; a text is one of ``role``, null is none. Raises ``ValueError``."""
    value = row.get(field)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if value is None and field in row:
        return []
    messages = _objects(row, field)
    for message in messages:
        if not isinstance(message.get("role"), str):
            raise ValueError(f"field '{field}': a message has no 'role'")
        if not isinstance(message.get("content"), str | list | None):
            raise ValueError(f"field '{field}': the content of a message must be a text or a list of parts")
    return messages


def _answer(message: Mapping[str, Any]) -> str:
    return written(message.get("content"), message.get("reasoning_content") or message.get("reasoning"))


class Statements:
    """Finds the problem that a prompt holds: the longest statement that ends where a line of the prompt ends."""

    def __init__(self, statements: Mapping[str, str]):
        """``statements``: by the key of the problem's id. White space within lines does not count."""
        lined = [(_lines(statement), key) for key, statement in statements.items() if statement.strip()]
        self._size = min((len(statement) for statement, _ in lined), default=0)
        self._by_start: dict[str, list[tuple[str, str]]] = {}
        for statement, key in lined:
            self._by_start.setdefault(statement[: self._size], []).append((statement, key))
        self._found: dict[str, str | None] = {}  # the rollouts of a group have one prompt

    def find(self, prompt: str) -> str | None:
        """The key of its id; None: there is none."""
        if prompt not in self._found:
            text, matches = _lines(prompt), []
            for place in range(len(text) - self._size + 1):
                for statement, key in self._by_start.get(text[place : place + self._size], ()):
                    end = place + len(statement)
                    if text.startswith(statement, place) and text[end : end + 1] in ("", "\n"):
                        matches.append((statement, key))
            self._found[prompt] = max(matches, key=lambda match: len(match[0]), default=(None, None))[1]
        return self._found[prompt]


def _lines(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


async def main(config: TrajectoriesConfig) -> None:
    """Read all answers, then run them problem by problem and write a record for each problem that has some."""
    named = (file for path in config.input for file in (sorted(path.rglob(EPISODES)) if path.is_dir() else [path]))
    files = list({file.resolve(): file for file in named}.values())
    if not files:
        raise InputError(f"no input: {', '.join(map(str, config.input)) or 'give files'} (folders: {EPISODES} of rLLM)")
    check_paths([*files, config.problems], [config.output_file])
    prompts = config.prompt_set([config.problems])
    check, ids, statements = InstructionCheck(prompts, config.prompts is not None), {}, {}
    for problem in read_rows(config.problems, Problem):
        check.see(problem.instruction)
        ids[id_key(problem.id)] = problem.id
        statements[id_key(problem.id)] = str(problem.row.get("question", ""))
    check.tell(config.problems)

    fates: Counter[str] = Counter()
    answers = read_answers(config, files, ids, Statements(statements), fates)
    rollouts = fates.total() - fates[INVALID]
    if not answers:
        told = "; ".join(f"{count} x {fate}" for fate, count in fates.most_common())
        raise InputError.at(files[0], None, f"no trajectory is left of {rollouts}: {told or 'no rollouts'}")
    kept = [id_ for key, id_ in ids.items() if key in answers]

    turns = min(config.num_turns + 1, max(len(texts) for texts_N in answers.values() for texts in texts_N))
    settings = MultiTurnOpenWeightConfig(
        input_file=config.problems,
        output_file=config.output_file,
        num_turns=turns - 1,
        enable_thinking=config.enable_thinking,
        stop_at_success=True,
    )
    async with service_of(config) as execution:
        content = {
            "from": config.layout,
            **{name: getattr(config, name) for name in ("id_field", "num_turns", "enable_thinking")},
            **prompt_content(prompts),
            "execution": await execution.describe(),
        }
        inputs = [*files, config.problems]
        with recorded_run("data trajectories", asdict(config), inputs, {config.output_file: content}) as run:
            counts: Counter[str] = Counter()
            causes: Counter[str] = Counter()
            with RecordFile(config.output_file) as output, progress_bar(total=len(kept), unit="problem") as bar:
                output.refuse_loss(kept)

                async def replay(problem: Problem) -> None:
                    texts_N = answers[id_key(problem.id)]
                    input_hash = row_hash({**problem.row, "answers": texts_N, "turns": turns})
                    record = output.get(problem.id, input_hash, lambda record: MultiTurn.read(record).row)
                    if record is None or any(None in rates_N for rates_N in record["public_pass_rates"]):
                        known = ProblemRow(problem.row, input_hash, problem.public_test_cases, None)
                        record = await replayed(known, texts_N, settings, execution, prompts)
                        output.append(record)
                    for texts, messages in zip(texts_N, record["conversations"], strict=True):
                        counts["answers run"] += (played := len(messages) // 2 - 1)
                        counts["answers left out"] += len(texts) - played
                    failures = [result["infra_error"] for result in record["public_exec_results"][-1]]
                    causes.update(filter(None, failures))
                    bar.update()

                at_once = await execution.problems_at_once()
                problems = (row for row in read_rows(config.problems, Problem) if id_key(row.id) in answers)
                await for_each(problems, replay, lambda: at_once)
                written = output.finish(kept)
            found = {"read": rollouts, **fates, "problems": written, **counts}
            found["infra_errors"] = causes.total()
            run.counts = {**found, **execution.work_done()}
            run.origin = {"prompts": described(prompts)}
    print_summary(f"Trajectories of {config.layout}", {"output": config.output_file, **found}, execution.work_done())
    refuse_infra_rate(causes.total(), fates[KEPT], "trajectories", config.max_infra_rate, causes)


def read_answers(
    config: TrajectoriesConfig,
    files: Sequence[Path],
    ids: Mapping[str, Any],
    statements: Statements,
    fates: Counter[str],
) -> dict[str, list[list[str]]]:
    """The answers of each kept rollout by the key of its problem's id, in the order of the files; counts all fates."""
    answers: dict[str, list[list[str]]] = {}

    def parse(row: Record) -> None:
        for rollout in LAYOUTS[config.layout](row):
            key = None
            if config.id_field is not None:
                value: Any = row
                for name in config.id_field.split("."):
                    if not isinstance(value, dict) or name not in value:
                        raise ValueError(f"missing field '{config.id_field}' (--id_field)")
                    value = value[name]
                key = id_key(value)
            elif users := [message for message in rollout.prompt if message["role"] == "user"]:
                key = statements.find(joined(users[-1].get("content"), "text"))
            fate = rollout.left_out or KEPT
            if fate == KEPT and any(message.get("tool_calls") for message in rollout.answers):
                fate = TOOLS
            elif fate == KEPT and not rollout.answers:
                fate = SILENT
            elif fate == KEPT and key not in ids:
                fate = UNKNOWN
            fates[fate] += 1
            if fate == KEPT and key is not None:
                answers.setdefault(key, []).append([_answer(message) for message in rollout.answers])

    invalid = InvalidLines(config.skip_invalid)
    for file in progress_bar(iterable=files, desc="reading", unit=" files"):
        if config.layout == "rllm" and file.suffix == ".json":
            whole = [(1, file.read_bytes() + b"\n")]  # else a file that is no JSON would be called torn
            load = partial(parse_line, loads=load_json)
            rows = checked_rows(file, whole, load, (), None, parse, invalid.handler, may_be_empty=True)
        else:
            rows = Source(str(file.absolute())).rows(None, parse, invalid.handler)
        for _ in rows:
            pass
    fates[INVALID] = invalid.count
    return answers


async def replayed(
    problem: ProblemRow,
    texts_N: Sequence[Sequence[str]],
    settings: MultiTurnOpenWeightConfig,
    execution: ExecutionService,
    prompts: PromptSet,
) -> Record:
    """The record of a problem. A conversation ends with its last answer, or the first whose program passes.

    The result of its last program counts at the turns after it. So does an infrastructure failure.
    """
    runs: Runs = {}  # equal programs of the problem run once

    async def one(texts: Sequence[str]) -> tuple[list[Turn], list[Message]]:
        messages, taken = first_messages(problem.row["instruction"], prompts), []
        for text in texts[: settings.num_turns + 1]:
            result = await execution.run(program_of_turn(text, None, settings), problem.tests, runs)
            taken.append(Turn(text, None, with_feedback(result, problem.tests)))
            if taken[-1].failed:
                break
            feedback = feedback_message(feedback_to_policy(taken[-1].result, prompts), prompts)
            messages += [{"role": "assistant", "content": history_of(text, None, settings)}, feedback]
            if result.solved:
                break
        return taken + [Turn("", None, taken[-1].result)] * (settings.num_turns + 1 - len(taken)), messages

    done = await asyncio.gather(*map(one, texts_N))
    record = record_of(problem, [turns for turns, _ in done], [messages for _, messages in done], settings)
    del record["usage"]  # nobody has told
    return record
