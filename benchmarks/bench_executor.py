"""Executor throughput against simpler designs.

    python -m benchmarks.bench_executor --rounds 7 [--programs_in_flight 64]

Contenders, which take turns:

executor    cobalt.sandbox.executor.Executor, one worker per core
bwrap       bubblewrap around a fresh interpreter per test, one at a time per core
fork        fork + exec of compiled code, no isolation and no verdict: the practical limit

Then a program that does not end, alone, with ``LIMITS``: the wait for its verdicts on all cores, and with one worker,
which runs its tests one after the other.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from benchmarks.harness import Sample, interleaved, median_ratio, medians
from cobalt.cli.entry import run
from cobalt.sandbox import Verdict
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
NUM_TESTS = 20
TESTS = {
    "inputs": [f"{i} {i + 1}\n" for i in range(NUM_TESTS)],
    "outputs": [str(2 * i + 1) for i in range(NUM_TESTS)],
}
ENDLESS, LIMITS = "while True: pass", {"cpu_limit_s": 1.0, "suite_cpu_limit_s": 4.0}
PR_SET_CHILD_SUBREAPER = 36
BWRAP = (
    "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all",
    "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
)  # fmt: skip
BWRAP_PROGRAMS = 3
"""Of a round."""
FORKS = 200
"""Of a round, per core."""


@dataclass
class BenchConfig:
    """Measure the executor against simpler designs."""

    rounds: int = 5
    """Interleaved rounds; medians are over these."""
    programs_in_flight: int = 64
    """Programs that the executor is handed at a time."""


def run_executor(executor: Executor, loop: asyncio.AbstractEventLoop, programs: int, code: str) -> tuple[int, int]:
    """All programs at once. Returns, as the other contenders do, the tests run and the wrong verdicts."""

    async def run_all() -> int:
        results = await asyncio.gather(*(executor.run(code, TESTS) for _ in range(programs)))
        return sum(not passed for result in results for passed in result.passing)

    return programs * NUM_TESTS, loop.run_until_complete(run_all())


def judge_endless(executor: Executor, loop: asyncio.AbstractEventLoop) -> Sample:
    """The wait for a program that does not end."""
    started = time.perf_counter()
    result = loop.run_until_complete(executor.run(ENDLESS, TESTS))
    return {"seconds": time.perf_counter() - started, "wrong": NUM_TESTS - result.verdicts.count(Verdict.TIME_LIMIT)}


@contextlib.contextmanager
def in_bwrap(code: str) -> Iterator[list[str]]:
    """The command that runs a program."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir="/var/tmp") as file:
        file.write(code)
        file.flush()
        os.chmod(file.name, 0o644)
        yield [*BWRAP, interpreter(), "-I", "-S", file.name]


def run_bwrap(code: str) -> tuple[int, int]:
    """One process per test, one thread per core."""
    with in_bwrap(code) as command:

        def is_right(given: str, expected: str) -> bool:
            done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
            return done.returncode == 0 and done.stdout.strip() == expected

        with ThreadPoolExecutor(default_workers()) as pool:
            outcomes = list(pool.map(is_right, TESTS["inputs"] * BWRAP_PROGRAMS, TESTS["outputs"] * BWRAP_PROGRAMS))
    return len(outcomes), outcomes.count(False)


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


def run_forks(code: str) -> tuple[int, int]:
    """``FORKS`` forks in one process per core; their results are not looked at."""
    modules = "heapq math collections itertools" if "import" in code else ""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(code)
        file.flush()
        command = [interpreter(), "-I", "-S", "-c", FORK_SCRIPT, file.name, modules, str(FORKS)]
        running = [subprocess.Popen(command) for _ in range(default_workers())]
        return FORKS * len(running), sum(process.wait() for process in running)


def cpu_seconds() -> float:
    """CPU time of this process, everything below it, and everything that they have waited for."""
    total, this = 0.0, psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def measure(work: Callable[[], tuple[int, int]]) -> Sample:
    """One round of a contender."""
    cpu, started = cpu_seconds(), time.perf_counter()
    tests, wrong = work()
    wall_s = time.perf_counter() - started
    with contextlib.suppress(ChildProcessError):  # the CPU time of dead orphans counts once they are waited for
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return {"tests/s": tests / wall_s, "CPU ms per test": (cpu_seconds() - cpu) / tests * 1000, "wrong": wrong}


@contextlib.contextmanager
def started(loop: asyncio.AbstractEventLoop, **settings: Any) -> Iterator[Executor]:
    """An executor that runs as long as the block."""
    executor = loop.run_until_complete(Executor(**settings).__aenter__())
    try:
        yield executor
    finally:
        loop.run_until_complete(executor.close())


def main(config: BenchConfig) -> None:
    load_before = os.getloadavg()[0]
    # bubblewrap does not wait for its own child: orphans become children of this process
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        with started(loop) as executor:
            own = partial(run_executor, executor, loop, config.programs_in_flight)
            contenders = {"executor": own, **({"bwrap": run_bwrap} if shutil.which("bwrap") else {}), "fork": run_forks}
            measured = interleaved(
                {
                    (program, name): partial(measure, partial(contender, code))
                    for program, code in PROGRAMS.items()
                    for name, contender in contenders.items()
                },
                config.rounds,
            )
        with started(loop, **LIMITS) as every, started(loop, workers=1, **LIMITS) as one:
            of_endless = {"all cores": every, "one worker": one}
            waits = interleaved(
                {name: partial(judge_endless, each, loop) for name, each in of_endless.items()}, config.rounds
            )
    rows = []
    for (program, name), samples in measured.items():
        ratios = {f"times {base}'s": median_ratio(samples, measured[program, base], "tests/s") for base in contenders}
        row = {**medians(samples), "wrong": sum(sample["wrong"] for sample in samples), **ratios}
        rows.append([program, name, *(f"{value:.4g}" for value in row.values())])
    print(markdown_table(["program", "contender", *row], rows))
    columns = ("a program that does not end", "seconds", "wrong", "times those of all cores")
    rows = []
    for name, samples in waits.items():
        wrong, ratio = sum(sample["wrong"] for sample in samples), median_ratio(samples, waits["all cores"], "seconds")
        rows.append((name, f"{medians(samples)['seconds']:.3g}", f"{wrong:.0f}", f"{ratio:.2f}"))
    print(f"\n{markdown_table(columns, rows)}")
    print(f"\n1-minute load before the run: {load_before:.1f} on {default_workers()} cores")


if __name__ == "__main__":
    run(BenchConfig, main)
