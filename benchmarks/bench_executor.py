"""Executor throughput against simpler designs, in interleaved rounds on one machine.

    python benchmarks/bench_executor.py --rounds 7 [--programs_in_flight 1 64]

Absolute figures drift with the machine; medians of ratios taken in the same round do not. Contenders:

executor    cobalt.sandbox.executor.Executor, one worker per core
bwrap       bubblewrap around a fresh interpreter per test, one at a time per core
python      a fresh ``python -I -S`` per test, no isolation
fork        fork + exec of compiled code, no isolation and no verdict: the practical limit
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cobalt.cli.entry import run
from cobalt.sandbox.confinement import interpreter
from cobalt.sandbox.executor import Executor, default_workers
from cobalt.tables import markdown_table

TRIVIAL = "a, b = map(int, input().split())\nprint(a + b)\n"
TYPICAL = """
import heapq
import math
import sys
from collections import defaultdict, deque
from itertools import accumulate


def distances(size):
    edges = defaultdict(list)
    for node in range(size):
        edges[node] += [(node * 7 + 1) % size, (node * 13 + 5) % size]
    heap, known = [(0, 0)], {0: 0}
    while heap:
        distance, node = heapq.heappop(heap)
        if distance > known[node]:
            continue
        for other in edges[node]:
            if distance + 1 < known.get(other, math.inf):
                known[other] = distance + 1
                heapq.heappush(heap, (distance + 1, other))
    return list(accumulate(known.values()))


a, b = map(int, sys.stdin.readline().split())
queue = deque(distances(700))
queue.popleft()
print(a + b)
"""
PROGRAMS = {"trivial": TRIVIAL, "typical": TYPICAL}
TESTS_PER_PROGRAM = 20
TESTS = {
    "inputs": [f"{i} {i + 1}\n" for i in range(TESTS_PER_PROGRAM)],
    "outputs": [str(2 * i + 1) for i in range(TESTS_PER_PROGRAM)],
}
PR_SET_CHILD_SUBREAPER = 36
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

BWRAP = [
    "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all",
    "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
]  # fmt: skip
FORKS = 200


@dataclass(frozen=True)
class Contender:
    """``run`` runs one program on its tests and returns the number of wrong verdicts."""

    run: Callable[[str], Awaitable[int]]
    programs: int
    """Of a round."""
    in_flight: int
    tests: int = TESTS_PER_PROGRAM


@dataclass
class BenchConfig:
    """Measure the executor against simpler designs."""

    rounds: int = 5
    """Interleaved rounds; medians are over these."""
    programs_in_flight: tuple[int, ...] = (1, 64)
    """Programs at a time, for the executor (the others run one test per core at a time)."""


async def run_executor(executor: Executor, code: str) -> int:
    """Through ``Executor.run``."""
    result = await executor.run(code, TESTS)
    return sum(not passed for passed in result.passing)


async def run_processes(pool: ThreadPoolExecutor, prefix: list[str], code: str) -> int:
    """One process per test, one thread per core."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir="/var/tmp") as file:
        file.write(code)
        file.flush()
        os.chmod(file.name, 0o644)

        def one(pair: tuple[str, str]) -> bool:
            command = [*prefix, interpreter(), "-I", "-S", file.name]
            done = subprocess.run(command, input=pair[0], capture_output=True, text=True, check=False)
            return done.returncode == 0 and done.stdout.strip() == pair[1]

        loop = asyncio.get_running_loop()
        pairs = zip(TESTS["inputs"], TESTS["outputs"], strict=True)
        outcomes = await asyncio.gather(*(loop.run_in_executor(pool, one, pair) for pair in pairs))
    return outcomes.count(False)


FORK_SCRIPT = """
import os, sys
for name in sys.argv[2].split():
    __import__(name)
code, null = compile(open(sys.argv[1]).read(), "x", "exec"), os.open("/dev/null", os.O_WRONLY)
given = os.memfd_create("input")
os.write(given, b"1 2\\n")
os.dup2(given, 0)
for _ in range(int(sys.argv[3])):
    pid = os.fork()
    if pid == 0:
        os.lseek(0, 0, 0)
        os.dup2(null, 1)
        exec(code, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""


async def run_forks(code: str) -> int:
    """``FORKS`` forks in one process per core; their results are not looked at."""
    modules = "heapq math collections itertools" if "import" in code else ""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(code)
        file.flush()
        command = [interpreter(), "-I", "-S", "-c", FORK_SCRIPT, file.name, modules, str(FORKS)]
        running = [await asyncio.create_subprocess_exec(*command) for _ in range(default_workers())]
        return sum([await process.wait() for process in running])


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, everything below it, and everything that they have waited for."""
    total = 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += sum(map(int, fields[11:15])) / TICKS_PER_S
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            total += sum(cpu_seconds(int(child)) for child in task.read_text().split())
    except OSError:
        pass
    return total


async def measure(contender: Contender, code: str) -> dict[str, float]:
    """One round of a contender: its number of programs, with at most so many in flight."""
    places, latencies = asyncio.Semaphore(contender.in_flight), []

    async def one() -> int:
        async with places:
            started = time.perf_counter()
            wrong = await contender.run(code)
            latencies.append(time.perf_counter() - started)
            return wrong

    cpu, started = cpu_seconds(os.getpid()), time.perf_counter()
    wrong = sum(await asyncio.gather(*(one() for _ in range(contender.programs))))
    wall_s = time.perf_counter() - started
    with contextlib.suppress(ChildProcessError):  # the CPU time of dead orphans counts once they are waited for
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    cpu_s, tests = cpu_seconds(os.getpid()) - cpu, contender.programs * contender.tests
    p95_s = sorted(latencies)[-1 - len(latencies) // 20]
    return {"tests_per_s": tests / wall_s, "cpu_ms_per_test": cpu_s / tests * 1000, "p95_s": p95_s, "wrong": wrong}


async def benchmark(config: BenchConfig) -> dict[str, dict[str, list[dict[str, float]]]]:
    """``{program: {contender: a sample per round}}``."""
    async with Executor() as executor:
        with ThreadPoolExecutor(default_workers()) as pool:
            contenders = {
                f"executor, {count} in flight": Contender(partial(run_executor, executor), max(count, 8), count)
                for count in config.programs_in_flight
            }
            if shutil.which("bwrap"):
                contenders["bwrap"] = Contender(partial(run_processes, pool, BWRAP), 3, 1)
            contenders["python"] = Contender(partial(run_processes, pool, []), 3, 1)
            contenders["fork"] = Contender(run_forks, 1, 1, FORKS * default_workers())
            samples = {program: {name: [] for name in contenders} for program in PROGRAMS}
            for number in range(config.rounds + 1):  # the first one warms up
                for program, code in PROGRAMS.items():
                    for name, contender in contenders.items():
                        sample = await measure(contender, code)
                        if number:
                            samples[program][name].append(sample)
            return samples


def summarise(samples: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """One row per contender: medians over the rounds, and of the ratios within each round."""

    def ratio(above: str, below: str, field: str) -> float:
        pairs = zip(samples[above], samples[below], strict=True)
        return statistics.median(one[field] / max(other[field], 1e-9) for one, other in pairs)

    rows = []
    for name, rounds in samples.items():
        row: dict[str, Any] = {"contender": name}
        for field in ("tests_per_s", "cpu_ms_per_test", "p95_s"):
            row[field] = statistics.median(sample[field] for sample in rounds)
        row["wrong"] = sum(sample["wrong"] for sample in rounds)
        bases = [base for base in ("bwrap", "python", "fork") if base in samples]
        row |= {f"x_{base}": ratio(name, base, "tests_per_s") for base in bases}
        if "bwrap" in samples:
            row["cpu_x_bwrap"] = ratio("bwrap", name, "cpu_ms_per_test")
        rows.append(row)
    return rows


def main(config: BenchConfig) -> None:
    """Measure and print, as in docs/scale.md."""
    load_before = os.getloadavg()[0]
    # bubblewrap does not wait for its own child: orphans become children of this process
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for program, samples in asyncio.run(benchmark(config)).items():
        rows = summarise(samples)
        print(f"\n{program}, {TESTS_PER_PROGRAM} tests per program, {default_workers()} cores\n")
        cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
        print(markdown_table(list(rows[0]), cells))
    print(f"\n1-minute load before the run: {load_before:.1f} on {default_workers()} cores")


if __name__ == "__main__":
    run(BenchConfig, main)
