"""``cobalt minicode3 probe``: does a policy use what it thinks, and what it reads? Three probes of its own responses.

*Thinking*: Pass@1 at turn 0 of the same responses, whole and cut. At the cut stands ``</think>``, and the policy writes
its program from there. *Values*: in the first run of a plan, a number in the middle of a step's work is changed, and
the policy goes on from there. Executing the plan from the changed number tells which values follow from it. *Repair*:
Pass@1 at turn 1 after programs that failed a public test: with their own feedback, with another problem's, and of a
second first try.

OUTPUT has a record for every response. All figures are made from these alone.
"""

import asyncio
import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import (
    ExecutionConfig,
    InputFile,
    ModelFolder,
    NotNegative,
    NotNegativeFloat,
    OutputFile,
    Positive,
    TopP,
)
from cobalt.cli.tasks import for_each
from cobalt.completion import Message, Sampling, request_seed
from cobalt.extraction import THINK_END, extract_code
from cobalt.inference.conversation import history_text
from cobalt.inference.engines import Engine, open_local_engine
from cobalt.prompts import (
    ALL_PASSED_START,
    NO_PROGRAM,
    PROMPT_VERSION,
    feedback_message,
    feedback_to_policy,
    first_messages,
    with_feedback,
)
from cobalt.records import RecordFile, id_key, row_hash
from cobalt.records.identity import refuse_missing_model
from cobalt.records.jsonl import Record
from cobalt.records.manifest import check_paths, file_sha256, recorded_run, refuse_infra_rate
from cobalt.records.rows import Problem, read_rows
from cobalt.serving.execution import ExecutionService, Runs, open_execution_service
from studies.minicode3.changes import THINK, change_value, thinking_of
from studies.minicode3.probe_figures import AGAIN, CHANGED, OTHER, OWN, WHOLE, cut_to, summary_rows, summary_table

SPARE_TOKENS = 24


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(ExecutionConfig):
    """Measure whether a policy uses its thinking and the feedback that it reads."""

    model: ModelFolder = Path("runs/minicoder3")
    """Folder of the policy."""
    input_file: InputFile
    """Problems of MiniCode 3, from preproc_taco.py."""
    output_file: OutputFile
    """A record for every response (JSONL); an unfinished file is resumed. OUTPUT.summary.json gets the figures."""
    num_problems: Positive = 100
    """As many problems from the beginning of the file."""
    num_samples: Positive = 3
    """Responses to each problem at turn 0."""
    cuts: tuple[NotNegative, ...] = (0, 100, 300)
    """Thinking tokens that a cut leaves."""
    repairs: NotNegative = 2
    """Most failed programs of a problem that are repaired, each in three ways."""
    temperature: NotNegativeFloat = 0.6
    top_p: TopP = 0.95
    max_tokens: Positive = 2200
    """Most tokens of a response."""
    batch_size: Positive = 128
    """Most responses that are sampled side by side, by each core or by the GPU."""
    seed: int = 42


class Ask(NamedTuple):
    """A response to sample."""

    problem: Problem
    sample: int
    arm: str
    messages: list[Message]
    max_tokens: int
    begun: str = ""
    """What the response starts with."""
    notes: Mapping[str, Any] = {}
    """For its record."""

    @property
    def id(self) -> list[Any]:
        return [self.problem.id, self.sample, self.arm]


async def sample_all(
    name: str,
    asks: Sequence[Ask],
    tokenizer: Any,
    engine: Engine,
    service: ExecutionService,
    output: RecordFile,
    config: ProbeConfig,
) -> list[Record | None]:
    """A record for each ask, new or from an earlier run; None after an infrastructure failure.

    All but those with a changed value have ``passed``, of the hidden tests, and ``feedback``, of the public ones.
    """
    records: list[Record | None] = [None] * len(asks)
    runs: Runs = {}  # equal programs run once
    tokens, started = 0, time.monotonic()
    with progress_bar(total=len(asks), desc=name, unit=" responses") as bar:

        async def answer(numbered: tuple[int, Ask]) -> None:
            nonlocal tokens
            place, ask = numbered
            messages = [*ask.messages, *([{"role": "assistant", "content": ask.begun}] if ask.begun else [])]
            made_of = row_hash({"messages": messages})
            records[place] = output.get(ask.id, made_of)
            if records[place] is None:
                seed = request_seed(config.seed, [ask.problem.id, ask.arm], ask.sample, 0)
                sampling = Sampling(config.temperature, config.top_p, ask.max_tokens)
                completion = await engine.generate(messages, sampling, seed)
                tokens += completion.completion_tokens
                text = ask.begun + completion.text
                record = {"id": ask.id, "input_hash": made_of, "begun": ask.begun, "response": text, **ask.notes}
                record["thinking_tokens"] = len(tokenizer.encode(thinking_of(text), add_special_tokens=False))
                if ask.arm != CHANGED:
                    tests_of = ask.problem.hidden_test_cases, ask.problem.public_test_cases
                    hidden, public = [await service.run(extract_code(text), tests, runs) for tests in tests_of]
                    if hidden.infra_error is not None or public.infra_error is not None:
                        return
                    record["passed"] = hidden.solved
                    record["feedback"] = feedback_to_policy(with_feedback(public, tests_of[1]))
                record["usage"] = completion.usage()
                output.append(record)
                records[place] = record
            bar.set_postfix_str(f"{tokens / (time.monotonic() - started):,.0f} tokens/s", refresh=False)
            bar.update()

        await for_each(enumerate(asks), answer, lambda: engine.max_in_flight)
    return records


def later_asks(firsts: Sequence[tuple[Ask, Record]], tokenizer: Any, config: ProbeConfig) -> Iterator[Ask]:
    """What the probes ask about the responses at turn 0."""
    for cut in config.cuts:
        for ask, record in firsts:
            if record["thinking_tokens"] > cut:
                ids = tokenizer.encode(thinking_of(record["response"]), add_special_tokens=False)
                begun = f"{THINK}{tokenizer.decode(ids[:cut])}{THINK_END}"
                yield ask._replace(arm=cut_to(cut), begun=begun, max_tokens=config.max_tokens - cut)
    for ask, record in firsts:
        change = change_value(record["response"], random.Random(f"{config.seed} {id_key(ask.id)}"))
        if change is not None:
            notes = {name: getattr(change, name) for name in ("right", "wrong", "own")}
            length = len(tokenizer.encode(change.rest, add_special_tokens=False))
            room = round(1.5 * length) + SPARE_TOKENS
            yield ask._replace(arm=CHANGED, begun=change.begun, max_tokens=room, notes=notes)

    # Programs that failed a public test, by problem. The other feedback is that of the next such problem.
    failed: dict[str, list[tuple[Ask, Record]]] = defaultdict(list)
    for ask, record in firsts:
        has_test = record["feedback"] != NO_PROGRAM and not record["feedback"].startswith(ALL_PASSED_START)
        if has_test and len(failed[id_key(ask.problem.id)]) < config.repairs:
            failed[id_key(ask.problem.id)].append((ask, record))
    groups = [group for group in failed.values() if group]
    for group, others in zip(groups, groups[1:] + groups[:1], strict=True):
        for ask, record in group:
            history = {"role": "assistant", "content": history_text(record["response"], enable_thinking=True)}
            feedback = {OWN: record["feedback"], OTHER: others[0][1]["feedback"]}
            for arm in (OWN, OTHER) if len(groups) > 1 else (OWN,):
                yield ask._replace(arm=arm, messages=[*ask.messages, history, feedback_message(feedback[arm])])
            yield ask._replace(arm=AGAIN)


async def probe(config: ProbeConfig, tokenizer: Any, opened: AbstractAsyncContextManager[Engine]) -> None:
    """The command, with an engine that is given."""
    problems = [*itertools.islice(read_rows(config.input_file, Problem), config.num_problems)]
    flags = asdict(config)
    elsewhere = ("model", "input_file", "output_file", "executor", "checker", "max_infra_rate", "batch_size")
    content = {name: value for name, value in flags.items() if name not in elsewhere}
    content |= {"prompt_version": PROMPT_VERSION, "input_sha256": file_sha256(config.input_file)}
    async with opened as engine, open_execution_service(config.executor, config.checker) as service:
        content |= {"model_id": engine.model_id, "execution": await service.describe()}
        with recorded_run("cobalt minicode3 probe", flags, [config.input_file], {config.output_file: content}) as run:
            with RecordFile(config.output_file) as output:
                sample = partial(
                    sample_all, tokenizer=tokenizer, engine=engine, service=service, output=output, config=config
                )
                asks = [
                    Ask(problem, number, WHOLE, first_messages(problem.instruction), config.max_tokens)
                    for problem in problems
                    for number in range(config.num_samples)
                ]
                records = await sample("turn 0", asks)
                firsts = [(ask, record) for ask, record in zip(asks, records, strict=True) if record is not None]
                later = [*later_asks(firsts, tokenizer, config)]
                records += await sample("probes", later)
                output.finish(ask.id for ask in [*asks, *later])
            made = [record for record in records if record is not None]
            rows = summary_rows(made, config.cuts)
            run.counts = {
                "problems": len(problems),
                "responses": len(made),
                "tokens": sum(record["usage"]["completion_tokens"] for record in made),
                "thinking_tokens_at_turn_0": sum(record["thinking_tokens"] for _, record in firsts),
                "infra_errors": len(records) - len(made),
                **service.work_done(),
            }
            summary = {"counts": run.counts, "rows": rows}
            Path(f"{config.output_file}.summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(summary_table(rows))
    print_summary(f"MiniCode 3 probes: {config.output_file}", run.counts)
    refuse_infra_rate(len(records) - len(made), len(records), "responses", config.max_infra_rate)


def main(config: ProbeConfig) -> None:
    check_paths([config.input_file], [config.output_file])
    engine = open_local_engine(str(config.model), config.batch_size, None)
    refuse_missing_model(str(config.model), "--model ")
    from transformers import AutoTokenizer

    asyncio.run(probe(config, AutoTokenizer.from_pretrained(config.model), engine))
