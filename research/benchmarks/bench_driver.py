"""How busy the multi-turn driver keeps an engine, against schedules that wait for a whole turn.

    python -m research.benchmarks.bench_driver [--problems 175 --samples 16 --turns 8 --slots 128 --seeds 3]

The engine is a clock: each request takes a time drawn from a log-normal distribution by the request's own seed, at
most ``slots`` at once; every program takes a fixed time to run. Printed per seed:

busy           sum of latencies / slots / wall time of the real driver (1 = no slot was ever idle)
barrier, 2     the same requests with 2 problems at a time, each waiting for all its samples at every turn
barrier, wide  as many such problems at a time as fill the slots

The barrier schedules are computed without any overhead, which favours them. Time is simulated: it passes only while
everything waits, so that other work on the machine does not count. CPU time per turn is the driver's own.
"""

import asyncio
import heapq
import json
import random
import selectors
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import medians
from cobalt.cli.entry import run
from cobalt.cli.tasks import for_each
from cobalt.completion import Completion, Sampling, request_seed
from cobalt.inference.driver import Driver, ProblemRow
from cobalt.inference.flags import MultiTurnOpenWeightConfig
from cobalt.prompts import COBALT
from cobalt.records import RecordFile
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.serving.execution import ExecutionService

TESTS = TestCases(("1",) * 4, ("2",) * 4)
MEDIAN_LATENCY_S, SIGMA, EXECUTION_S = 0.15, 1.0, 0.05
"""``SIGMA``: of the logarithm of the latency; 1.0 puts the 99th percentile at ten times the median."""


@dataclass(frozen=True)
class BenchConfig:
    """Benchmark of the inference driver."""

    problems: int = 175
    samples: int = 16
    turns: int = 8
    """Turns after the first."""
    slots: int = 128
    seeds: int = 3


class JumpingSelector(selectors.DefaultSelector):
    """Lets simulated time jump to an event loop's next timer instead of waiting for it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now_s += max(timeout or 0, 0)
        return super().select(0)


def latency_s(seed: int) -> float:
    """The time that the request with this seed takes."""
    return MEDIAN_LATENCY_S * random.Random(seed).lognormvariate(0, SIGMA)


class Clock:
    """An engine that only takes time; its answers all differ."""

    model_id = "clock"

    def __init__(self, slots: int):
        self.max_in_flight, self.total_s = slots, 0.0

    async def generate(self, messages: Any, sampling: Sampling, seed: int) -> Completion:
        self.total_s += latency_s(seed)
        await asyncio.sleep(latency_s(seed))
        return Completion(f"```python\n{seed}\n```", 1000, 1000, "stop")


class SlowService:
    """Fails every program, after a while."""

    async def run(self, code: str | None, tests: Any) -> ExecutionResult:
        return (await self.run_many([(code, tests)]))[0]

    async def run_many(self, programs: Any) -> list[ExecutionResult]:
        await asyncio.sleep(EXECUTION_S)
        return [ExecutionResult.uniform(len(tests), Verdict.WRONG_ANSWER, "no") for _, tests in programs]


async def measure(config: BenchConfig, seed: int) -> dict[str, float]:
    """One run of the real driver, and the two barrier schedules of the same requests."""
    problems = [ProblemRow({"id": n, "instruction": "x"}, "hash", TESTS, None) for n in range(config.problems)]
    clock, service = Clock(config.slots), ExecutionService(SlowService())
    with tempfile.TemporaryDirectory() as folder:
        output, journal = RecordFile(Path(folder, "output")), RecordFile(Path(folder, "journal"))
        method = {"num_completions": config.samples, "seed": seed, "num_turns": config.turns}
        flags = MultiTurnOpenWeightConfig(input_file=Path(folder), output_file=output.path, **method)
        driver = Driver(clock, service, flags, output, journal, COBALT, "version")
        loop = asyncio.get_running_loop()
        started, cpu = loop.time(), time.process_time()
        await for_each(problems, driver.problem, lambda: driver.most_open)
        wall_s, cpu_s = loop.time() - started, time.process_time() - cpu
        output.close()
        journal.close()
    ideal_s = clock.total_s / config.slots
    found = {"wall_s": wall_s, "busy": ideal_s / wall_s}
    for name, at_once in (("2", 2), ("wide", max(config.slots // config.samples, 1))):
        # a schedule with so many problems at a time and a barrier after each turn of a problem
        free_at = [0.0] * at_once
        for problem in range(config.problems):
            length = 0.0
            for turn in range(config.turns + 1):
                seeds = (request_seed(seed, problem, sample, turn) for sample in range(config.samples))
                length += max(map(latency_s, seeds)) + EXECUTION_S
            heapq.heappush(free_at, heapq.heappop(free_at) + length)
        found |= {f"barrier_{name}_busy": ideal_s / max(free_at), f"barrier_{name}_ratio": max(free_at) / wall_s}
    turns = config.problems * config.samples * (config.turns + 1)
    return {**found, "driver_cpu_ms_per_turn": 1000 * cpu_s / turns}


def main(config: BenchConfig) -> None:
    rows = []
    for seed in range(config.seeds):
        clock = JumpingSelector()
        loop = asyncio.SelectorEventLoop(clock)
        loop.time = lambda clock=clock: clock.now_s  # seconds since the loop was made
        rows.append(loop.run_until_complete(measure(config, seed)))
        loop.close()
        print(f"seed {seed}: " + ", ".join(f"{name} {value:.3f}" for name, value in rows[-1].items()), file=sys.stderr)
    print(json.dumps({name: round(value, 4) for name, value in medians(rows).items()}, indent=2))


if __name__ == "__main__":
    run(BenchConfig, main)
