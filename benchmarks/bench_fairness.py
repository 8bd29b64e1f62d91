"""How long good programs wait when one in ten sleeps or loops, against how long they wait without those.

    python benchmarks/bench_fairness.py --rounds 3

All programs are submitted at once, each by a caller of its own. A program's wait is the time from then to its result.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass

from bench_executor import TESTS

from cobalt.cli.entry import run
from cobalt.sandbox.executor import Executor

GOOD = "import heapq, math\nprint(sum(map(int, input().split())))\n"
BAD = ("import time\ntime.sleep(1000)\n", "while True: pass\n")
BAD_EVERY = 10
"""One program in so many is bad: they sleep and loop in turn."""


@dataclass
class FairnessConfig:
    """Measure what programs that sleep and loop cost the others."""

    rounds: int = 3
    """Each is one run without bad programs and one with them; medians are over these."""
    programs: int = 64
    """Programs of a run."""


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
    bad = {number: BAD[number // BAD_EVERY % len(BAD)] for number in numbers[::BAD_EVERY]}
    rows = []
    async with Executor() as executor:
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


if __name__ == "__main__":
    run(FairnessConfig, main)
