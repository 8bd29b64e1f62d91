"""How long good programs wait when one in ten sleeps or loops, against how long they wait without those.

    python benchmarks/bench_fairness.py --rounds 3 [--mode landlock] [--output_file runs/bench_fairness.json]

All programs are submitted at once, each by a caller of its own. A program's wait is the time from then to its result.
"""

import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from cobalt.cli.entry import run
from cobalt.sandbox.executor import Executor

TESTS_PER_PROGRAM = 20
TESTS = {
    "inputs": [f"{i} {i + 1}\n" for i in range(TESTS_PER_PROGRAM)],
    "outputs": [str(2 * i + 1) for i in range(TESTS_PER_PROGRAM)],
}
GOOD = "import heapq, math\nprint(sum(map(int, input().split())))\n"
BAD = ("import time\ntime.sleep(1000)\n", "while True: pass\n")


@dataclass
class FairnessConfig:
    """Measure what programs that sleep and loop cost the others."""

    rounds: int = 3
    """Each is one run without bad programs and one with them; medians are over these."""
    programs: int = 64
    """Programs of a run."""
    bad_every: int = 10
    """One program in so many is bad: they sleep and loop in turn."""
    workers: int | None = None
    """Default: one per core."""
    mode: str = "auto"
    """Mode of the sandbox."""
    output_file: str | None = None
    """Write the figures as JSON."""


async def waits(executor: Executor, programs: list[str]) -> tuple[list[float], int]:
    """Seconds that each good program took, and how many of their verdicts were wrong. The bad ones are cancelled."""
    started, waited, wrong = time.perf_counter(), [], 0

    async def one(code: str) -> None:
        nonlocal wrong
        result = await executor.run(code, TESTS)
        waited.append(time.perf_counter() - started)
        wrong += sum(not passed for passed in result.passing)

    tasks = [(code, asyncio.ensure_future(one(code))) for code in programs]
    await asyncio.gather(*(task for code, task in tasks if code == GOOD))
    for _, task in tasks:
        task.cancel()
    await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
    return waited, wrong


async def benchmark(config: FairnessConfig) -> list[dict[str, float]]:
    """A row per round: median waits in seconds, and their ratio."""
    numbers = range(config.programs)
    bad = {number: BAD[number // config.bad_every % len(BAD)] for number in numbers[:: config.bad_every]}
    rows = []
    async with Executor(config.workers, mode=config.mode) as executor:
        await waits(executor, [GOOD] * config.programs)
        for _ in range(config.rounds):
            alone, wrong_alone = await waits(executor, [GOOD for number in numbers if number not in bad])
            beside, wrong_beside = await waits(executor, [bad.get(number, GOOD) for number in numbers])
            row = {"alone_s": statistics.median(alone), "beside_bad_s": statistics.median(beside)}
            rows.append({**row, "ratio": row["beside_bad_s"] / row["alone_s"], "wrong": wrong_alone + wrong_beside})
    return rows


def main(config: FairnessConfig) -> None:
    """Measure and print."""
    rows = asyncio.run(benchmark(config))
    ratio = statistics.median(row["ratio"] for row in rows)
    for row in rows:
        print(", ".join(f"{name} {value:.3g}" for name, value in row.items()))
    print(f"fairness ratio {ratio:.2f}: median wait of good programs beside bad ones, by that without them")
    if config.output_file:
        Path(config.output_file).parent.mkdir(parents=True, exist_ok=True)
        Path(config.output_file).write_text(json.dumps({"ratio": ratio, "rounds": rows}, indent=2) + "\n")


if __name__ == "__main__":
    run(FairnessConfig, main)
