#!/usr/bin/env python3
"""Lets a model answer problems under several wordings, runs its programs, counts by problem and turn (README.md).

    python research/real/wordings.py --model DIR --problems FILE.jsonl --plan research/real/plan.json --out DIR

One stage of a plan is one wording. A stage continues its own first answers, or those of the stage it names.
"""

import argparse
import asyncio
import functools
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt import prompts as texts
from cobalt.completion import Message
from cobalt.records.jsonl import dump_line
from cobalt.records.rows import Problem, read_rows
from cobalt.sandbox import ExecutionResult, Executor, TestCases
from research.real.counts import COUNTS, Answer, counts_of

SAMPLING: dict[str, Any] = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 768}
CONTEXT = 8192
CPU_S, SUITE_CPU_S = 1.0, 2.0  # 200 right programs took 0.05 s at most; those that hang cost the most
PROBLEMS_AT_ONCE, REQUESTS_AT_ONCE = 300, 4000


@dataclass(frozen=True)
class Stage:
    """One row of a plan: a wording, and how much is asked with it. Files lie beside the plan."""

    name: str
    prompts: str
    samples: int
    turns: int
    """Answers of a conversation, the first included."""
    problems: str
    """``dev``, ``train``, or a file with a list of ids."""
    first: str | None = None
    """The stage whose first answers it continues."""
    calls: bool = False
    """Whether the input of a failed test is shown as the call that it is."""


@dataclass
class Talk:
    """One conversation. An infrastructure failure ends it; the answer that met it is not among ``answers``."""

    problem: Problem
    messages: list[Message]
    first: Answer | None = None
    answers: list[Answer] = field(default_factory=list)
    failed: bool = False


Generate = Callable[[Sequence[list[Message]]], list[Answer]]
prompt_set = functools.cache(texts.load_prompts)


def is_dev(id_: Any) -> bool:
    """A tenth of all problems, by their ids alone: wordings and learning rates are chosen on these."""
    return hashlib.sha256(str(id_).encode()).digest()[0] % 10 == 0


def shown_call(fn_name: str, input_text: str) -> str:
    """A test's arguments, one JSON value a line, as a call in Python."""
    return f"{fn_name}({', '.join(repr(json.loads(line)) for line in input_text.splitlines() if line.strip())})"


class Batches:
    """Sends what waits to the model in one batch, the earliest rank first."""

    def __init__(self, generate: Generate, thread: ThreadPoolExecutor):
        self._generate, self._thread = generate, thread
        self._waiting: asyncio.PriorityQueue[Any] = asyncio.PriorityQueue()
        self._order = itertools.count()

    async def ask(self, rank: tuple[int, ...], conversations: list[list[Message]]) -> list[Answer]:
        done = asyncio.get_running_loop().create_future()
        await self._waiting.put((rank, next(self._order), conversations, done))
        return await done

    async def serve(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while not self._waiting.empty() and sum(len(one[2]) for one in batch) < REQUESTS_AT_ONCE:
                batch.append(self._waiting.get_nowait())
            asked, began = [messages for one in batch for messages in one[2]], time.time()
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._generate, asked)
            tokens = sum(answer.tokens for answer in answers)
            print(
                f"{time.strftime('%T')} {len(asked)} answers, {tokens} tokens, {time.time() - began:.0f} s", flush=True
            )
            rest = iter(answers)
            for _, _, conversations, done in batch:
                done.set_result(list(itertools.islice(rest, len(conversations))))


class Study:
    """Runs stages against one model; equal programs of a problem run once."""

    def __init__(self, batches: Batches, executor: Executor, folder: Path):
        self.batches, self.executor, self.folder = batches, executor, folder
        self._runs: dict[Any, asyncio.Task[ExecutionResult]] = {}

    async def _run(self, talk: Talk, answer: Answer) -> ExecutionResult:
        key = (talk.problem.id, answer.program)
        if key not in self._runs:
            self._runs[key] = asyncio.ensure_future(self.executor.run(answer.program, talk.problem.test_cases))
        return await self._runs[key]

    def _hear(self, talk: Talk, answer: Answer, result: ExecutionResult, stage: Stage) -> None:
        """Add an answer, and what is said about the first public test that its program failed."""
        tests = talk.problem.public_test_cases
        shown = slice(len(tests))
        if stage.calls and tests.fn_name:
            inputs = [shown_call(tests.fn_name, text) for text in tests.inputs_K]
            tests = TestCases(tuple(inputs), tests.outputs_K)  # only to be shown
        seen = replace(result, **{name: getattr(result, name)[shown] for name in ("verdicts", "outputs", "errors")})
        prompts = prompt_set(str(self.folder / stage.prompts))
        feedback = texts.feedback_to_policy(texts.with_feedback(seen, tests), prompts)
        hidden = result.passing[len(tests) :]
        talk.answers.append(replace(answer, hidden=sum(hidden) / len(hidden), public=seen.pass_rate))
        said = [{"role": "assistant", "content": answer.text}, texts.feedback_message(feedback, prompts)]
        talk.messages = [*talk.messages, *said]

    async def converse(
        self, rank: int, stage: Stage, problems: Sequence[Problem], firsts: dict[Any, list[Answer]]
    ) -> list[Talk]:
        """The talks about some problems, those of one problem one after the other."""
        talks, prompts = [], prompt_set(str(self.folder / stage.prompts))
        for problem in problems:
            row, fn_name = problem.row, problem.test_cases.fn_name
            question = texts.problem_instruction(row["question"], fn_name, row.get("starter_code") or "", prompts)
            talks += [Talk(problem, texts.first_messages(question, prompts)) for _ in range(stage.samples)]
        for turn in range(stage.turns):
            going = [talk for talk in talks if not talk.failed]
            if turn == 0 and firsts:
                answers = [answer for problem in problems for answer in firsts[problem.id]]
            else:
                answers = await self.batches.ask((rank, -turn), [talk.messages for talk in going])
            for talk, answer in zip(going, answers, strict=True):
                talk.first = talk.first or answer
            results = await asyncio.gather(*map(self._run, going, answers))
            for talk, answer, result in zip(going, answers, results, strict=True):
                talk.failed = result.infra_error is not None
                if not talk.failed:
                    self._hear(talk, answer, result, stage)
        return talks


def record_of(talks: Sequence[Talk]) -> dict[str, Any]:
    """An evaluated record (docs/formats.md) without the problem's own fields. Talks that failed are left out."""
    whole = [talk for talk in talks if not talk.failed]
    return {
        "id": talks[0].problem.id,
        "conversations": [talk.messages for talk in whole],
        "public_pass_rates": list(zip(*([answer.public for answer in talk.answers] for talk in whole), strict=True)),
        "all_pass_rates": [[answer.hidden for answer in talk.answers] for talk in whole],
    }


async def run_plan(batches: Batches, plan: Path, problems: Sequence[Problem], out: Path, about: dict[str, Any]) -> None:
    """Write ``NAME.counts.json`` and ``NAME.jsonl`` (evaluated records) of each stage into ``out``."""
    stages = [Stage(**row) for row in json.loads(plan.read_text())]
    asked = {"dev": {p.id for p in problems if is_dev(p.id)}, "train": {p.id for p in problems if not is_dev(p.id)}}
    async with Executor(cpu_limit_s=CPU_S, suite_cpu_limit_s=SUITE_CPU_S) as executor:
        about = {**about, **SAMPLING, "execution": await executor.describe()}
        study = Study(batches, executor, plan.parent)
        loop = asyncio.get_running_loop()
        firsts: dict[str, asyncio.Future[Any]] = {stage.name: loop.create_future() for stage in stages}

        async def run(rank: int, stage: Stage) -> None:
            began = time.time()
            ids = asked.get(stage.problems) or set(json.loads((plan.parent / stage.problems).read_text()))
            mine = [problem for problem in problems if problem.id in ids]
            given = await firsts[stage.first] if stage.first else {}
            chunks = [mine[i : i + PROBLEMS_AT_ONCE] for i in range(0, len(mine), PROBLEMS_AT_ONCE)]
            parts = await asyncio.gather(*(study.converse(rank, stage, chunk, given) for chunk in chunks))
            grouped = itertools.groupby(itertools.chain(*parts), key=lambda talk: talk.problem.id)
            talks = {id_: list(group) for id_, group in grouped}
            firsts[stage.name].set_result({id_: [talk.first for talk in of] for id_, of in talks.items()})
            (out / f"{stage.name}.jsonl").write_bytes(b"".join(dump_line(record_of(of)) for of in talks.values()))
            counts = [counts_of((talk.answers for talk in of), stage.turns) for of in talks.values()]
            record = {"stage": asdict(stage), **about, "seconds": round(time.time() - began),
                      "infra_errors": sum(talk.failed for of in talks.values() for talk in of),
                      "columns": COUNTS, "ids": list(talks), "counts": counts}  # fmt: skip
            (out / f"{stage.name}.counts.json").write_text(json.dumps(record, separators=(",", ":")))
            print(f"{time.strftime('%T')} done: {stage.name}", flush=True)

        work = asyncio.gather(*(run(rank, stage) for rank, stage in enumerate(stages)))
        server = asyncio.ensure_future(batches.serve())
        ended, _ = await asyncio.wait((work, server), return_when=asyncio.FIRST_COMPLETED)
        server.cancel()
        ended.pop().result()  # the work's, or what the model failed with


def vllm_generate(model: str, memory: float, seed: int) -> Generate:
    """Answers by vLLM on this machine's GPU; an empty one where the prompt leaves no room."""
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

    llm = LLM(model, max_model_len=CONTEXT, gpu_memory_utilization=memory, max_num_seqs=512, seed=seed)
    sampling = SamplingParams(**SAMPLING, detokenize=False)  # at the end, all at once
    tokenizer = llm.get_tokenizer()

    def generate(conversations: Sequence[list[Message]]) -> list[Answer]:
        prompts = [texts.prompt_tokens(tokenizer, messages) for messages in conversations]
        fits = [len(tokens) + SAMPLING["max_tokens"] <= CONTEXT for tokens in prompts]
        asked = [{"prompt_token_ids": tokens} for tokens in itertools.compress(prompts, fits)]
        given = [output.outputs[0].token_ids for output in llm.generate(asked, sampling, use_tqdm=False)]
        found = iter(zip(tokenizer.batch_decode(given, skip_special_tokens=True), map(len, given), strict=True))
        return [Answer(*next(found)) if fit else Answer("", 0) for fit in fits]

    return generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--plan", "--out"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--problems", required=True, type=Path, nargs="+")
    parser.add_argument("--memory", type=float, default=0.85, help="share of the GPU's memory for vLLM")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="K/N: every N-th problem from the K-th on; several fill one GPU")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    problems = [problem for file in args.problems for problem in read_rows(file, Problem)]
    part, parts = map(int, args.part.split("/"))
    problems = problems[part::parts]
    generate = vllm_generate(str(args.model), args.memory, args.seed)
    thread = ThreadPoolExecutor(1)
    thread.submit(os.getpid).result()  # it runs now, so what follows is not for it
    os.nice(10)  # the sandboxes: generation goes first
    about = {"model": args.model.name, "seed": args.seed}
    asyncio.run(run_plan(Batches(generate, thread), args.plan, problems, args.out, about))


if __name__ == "__main__":
    main()
