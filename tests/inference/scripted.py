"""A world without a model or a sandbox: programs are texts ``k=3``, right if k times the input is the output.

``ScriptedEngine`` answers from a hash of the request alone, so every run of it gives the same trajectories. As a
script, multi-turn runs to be killed: one for each line ``INPUT OUTPUT`` that it reads.
"""

import asyncio
import hashlib
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cobalt.completion import Completion, Message, Sampling
from cobalt.errors import InfraError
from cobalt.inference.flags import InferenceConfig, MultiTurnOpenWeightConfig, SingleTurnOpenWeightConfig
from cobalt.inference.run import main
from cobalt.prompts import problem_instruction
from cobalt.records import write_jsonl
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.serving.execution import ExecutionService

Row = dict[str, Any]
GUESSES = 4


def problem_rows(count: int) -> list[Row]:
    """Problems with ids 0, ...: multiply by k, 4 public and 2 hidden tests."""
    rows = []
    for number in range(count):
        instruction = problem_instruction(f"Multiply. This is problem {number}.")
        row = {"id": number, "difficulty": ("EASY", "HARD")[number % 2], "instruction": instruction}
        parts = {"public_test_cases": (1, 2, 3, 4), "hidden_test_cases": (5, 6), "test_cases": (1, 2, 3, 4, 5, 6)}
        for name, part in parts.items():
            outputs = tuple(str(x * (number % GUESSES + 1)) for x in part)
            row[name] = TestCases(tuple(map(str, part)), outputs).to_json()
        rows.append(row)
    return rows


class ScriptedEngine:
    """Guesses k; about one answer in eight holds no program. Keeps every request that it got."""

    model_id = "scripted"

    def __init__(self, max_in_flight: int = 8, latency_s: Callable[[int], float] = lambda seed: 0.0):
        self.max_in_flight = max_in_flight
        self.requests: list[tuple[list[Message], Sampling, int]] = []
        self.failing: Callable[[list[Message], int], bool] = lambda messages, seed: False
        self.running = self.most_running = 0
        self._latency_s = latency_s

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        self.requests.append(([dict(message) for message in messages], sampling, seed))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self._latency_s(seed))
        finally:
            self.running -= 1
        if self.failing(messages, seed):
            raise InfraError("scripted failure")
        digest = hashlib.sha256(json.dumps([messages, seed]).encode()).digest()
        text = f"<think>guess {digest.hex()[:6]}</think>\n"
        text += "I do not know." if digest[0] < 32 else f"```python\nk={digest[1] % GUESSES + 1}\n```"
        return Completion(text, sum(len(m["content"]) for m in messages), len(text), "stop", 0.25)


class MultiplyingService:
    """Judges ``k=3`` programs; counts how often each (program, tests) ran."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str | None, TestCases]] = Counter()
        self.failing: Callable[[str | None], bool] = lambda code: False
        self.checker, self.workers = "exact", 1

    async def describe(self) -> dict[str, Any]:
        return {"checker": self.checker}

    async def state(self) -> dict[str, Any]:
        return {"workers": self.workers, **await self.describe()}

    async def run(self, code: str | None, tests: Any) -> ExecutionResult:
        return (await self.run_many([(code, tests)]))[0]

    async def run_many(self, programs: Sequence[tuple[str | None, Any]]) -> list[ExecutionResult]:
        await asyncio.sleep(0)
        return [self._judge(code, TestCases.parse(tests)) for code, tests in programs]

    def _judge(self, code: str | None, tests: TestCases) -> ExecutionResult:
        self.runs[code, tests] += 1
        if self.failing(code):
            return ExecutionResult.infra(len(tests), "scripted sandbox failure")
        if code is None:
            return ExecutionResult.uniform(len(tests), Verdict.NO_PROGRAM)
        match = re.fullmatch(r"k=(\d+)", code)
        factor = int(match[1]) if match else 0
        outputs = tuple(str(int(x) * factor) for x in tests.inputs_K)
        right = zip(outputs, tests.outputs_K, strict=True)
        verdicts = tuple(Verdict.PASSED if ours == wanted else Verdict.WRONG_ANSWER for ours, wanted in right)
        return ExecutionResult(verdicts, outputs, ("",) * len(tests))


@asynccontextmanager
async def opened(thing: Any) -> AsyncIterator[Any]:
    yield thing


def make_plan(source: Path, output: Path, **flags: Any) -> InferenceConfig:
    """A multi-turn run from scratch, or a single-turn run (``num_turns=None``), unless ``flags`` say otherwise."""
    files = {"input_file": source, "output_file": output, "max_infra_rate": 0.0}
    flags = {"num_completions": 3, "seed": 1, "num_turns": 2, **files, **flags}
    if flags["num_turns"] is None:
        del flags["num_turns"]
        return SingleTurnOpenWeightConfig(**flags)
    return MultiTurnOpenWeightConfig(**{"from_scratch": True, **flags})


async def run_plan(plan: InferenceConfig, engine: Any = None, service: Any = None) -> list[Row]:
    """Run it, with a new engine and service by default, and read the output."""
    execution = ExecutionService(service or MultiplyingService())
    await main(plan, opened(execution), opened(engine or ScriptedEngine()))
    return read_rows(plan.output_file)


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_problems(path: Path, count: int) -> Path:
    write_jsonl(path, problem_rows(count))
    return path


def long_tailed(seed: int, scale_s: float = 0.01, sigma: float = 1.0) -> float:
    """A latency drawn from a log-normal distribution, by the request's seed."""
    return scale_s * random.Random(seed).lognormvariate(0, sigma)


def runs_to_be_killed() -> None:
    """Each is a process of its own, which has imported everything. Prints its id, and at its end its exit code."""
    for line in sys.stdin:
        source, output = map(Path, line.split())
        process = os.fork()
        if process == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            plan = make_plan(source, output, num_completions=4, num_turns=4, enable_thinking=True)
            asyncio.run(run_plan(plan, ScriptedEngine(max_in_flight=16, latency_s=long_tailed)))
            os._exit(0)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    runs_to_be_killed()
