"""Executor throughput against simpler designs, in interleaved rounds on one machine.

    python benchmarks/bench_executor.py --rounds 7 [--serve] [--output_file runs/bench_executor.json]

Absolute figures drift with the machine; medians of ratios taken in the same round do not. Contenders:

executor    cobalt.sandbox.executor.Executor, one worker per core
serve       the same through the Ray Serve app by handle (``--serve``: starts a local Ray)
bwrap       bubblewrap around a fresh interpreter per test, one at a time per core
python      a fresh ``python -I -S`` per test, no isolation
fork        fork + exec of compiled code, no isolation and no verdict: the practical limit
"""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cobalt.cli.entry import run
from cobalt.sandbox.confinement import interpreter
from cobalt.sandbox.executor import Executor, default_workers
from cobalt.serving.evaluator import build_app
from cobalt.serving.evaluator_config import EvaluatorConfig
from cobalt.serving.execution import APP_NAME, open_execution_service
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

Contender = Callable[[str], Awaitable[int]]
"""Runs one program on ``TESTS`` and returns the number of wrong verdicts."""


@dataclass
class BenchConfig:
    """Measure the executor against simpler designs."""

    rounds: int = 5
    """Interleaved rounds; medians are over these."""
    programs_in_flight: tuple[int, ...] = (1, 64)
    """Programs at a time, for the executor (the others run one test per core at a time)."""
    serve: bool = False
    """Also through Ray Serve."""
    output_file: str | None = None
    """Write the figures as JSON."""


@dataclass(frozen=True)
class Sample:
    """One contender in one round."""

    tests_per_s: float
    cpu_ms_per_test: float
    p95_s: float
    wrong: int


async def run_executor(service, code: str) -> int:
    """Through ``Executor.run``, or the served one."""
    result = await service.run(code, TESTS)
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
FORKS = 200


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


def adopt_orphans() -> None:
    """Make this process the parent of orphans below it: bubblewrap does not wait for its own child."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Wait for dead children, so that their CPU time counts."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


async def measure(contender: Contender, code: str, programs: int, in_flight: int, tests: int) -> Sample:
    """Run ``programs`` programs, at most ``in_flight`` at a time."""
    places, latencies = asyncio.Semaphore(in_flight), []

    async def one() -> int:
        async with places:
            started = time.perf_counter()
            wrong = await contender(code)
            latencies.append(time.perf_counter() - started)
            return wrong

    cpu, started = cpu_seconds(os.getpid()), time.perf_counter()
    wrong = sum(await asyncio.gather(*(one() for _ in range(programs))))
    wall_s = time.perf_counter() - started
    reap_orphans()
    cpu_s = cpu_seconds(os.getpid()) - cpu
    latencies.sort()
    return Sample(
        programs * tests / wall_s, cpu_s / (programs * tests) * 1000, latencies[-1 - len(latencies) // 20], wrong
    )


async def open_contenders(config: BenchConfig, stack: AsyncExitStack) -> dict[str, tuple[Contender, int, int, int]]:
    """``{name: (contender, programs per round, in flight, tests per program)}``."""
    executor = await stack.enter_async_context(Executor())
    pool = stack.enter_context(ThreadPoolExecutor(default_workers()))
    opened = {}
    for count in config.programs_in_flight:
        opened[f"executor, {count} in flight"] = (
            partial(run_executor, executor),
            max(count, 8),
            count,
            TESTS_PER_PROGRAM,
        )
    if config.serve:
        service = await stack.enter_async_context(_served())
        count = max(config.programs_in_flight)
        opened[f"serve, {count} in flight"] = (partial(run_executor, service), count, count, TESTS_PER_PROGRAM)
    if shutil.which("bwrap"):
        opened["bwrap"] = (partial(run_processes, pool, BWRAP), 3, 1, TESTS_PER_PROGRAM)
    opened["python"] = (partial(run_processes, pool, []), 3, 1, TESTS_PER_PROGRAM)
    opened["fork"] = (run_forks, 1, 1, FORKS * default_workers())
    return opened


BWRAP = [
    "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all",
    "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
]  # fmt: skip


def _served():
    import ray
    from ray import serve

    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error")
    serve.start(proxy_location="Disabled")
    serve.run(build_app(EvaluatorConfig(num_cpus=0)), name=APP_NAME, route_prefix=None)
    return open_execution_service("serve")


async def benchmark(config: BenchConfig) -> dict[str, dict[str, list[Sample]]]:
    """``{program: {contender: a sample per round}}``."""
    async with AsyncExitStack() as stack:
        contenders = await open_contenders(config, stack)
        samples = {program: {name: [] for name in contenders} for program in PROGRAMS}
        for number in range(config.rounds + 1):  # the first one warms up
            for program, code in PROGRAMS.items():
                for name, (contender, programs, in_flight, tests) in contenders.items():
                    sample = await measure(contender, code, programs, in_flight, tests)
                    if number:
                        samples[program][name].append(sample)
        return samples


def summarise(samples: dict[str, list[Sample]]) -> list[dict]:
    """One row per contender: medians over the rounds, and of the ratios within each round."""
    rows = []
    for name, rounds in samples.items():
        row = {"contender": name}
        for field in ("tests_per_s", "cpu_ms_per_test", "p95_s"):
            row[field] = statistics.median(getattr(sample, field) for sample in rounds)
        row["wrong"] = sum(sample.wrong for sample in rounds)
        for base in ("bwrap", "python", "fork"):
            if base in samples:
                pairs = zip(rounds, samples[base], strict=True)
                row[f"x_{base}"] = statistics.median(mine.tests_per_s / other.tests_per_s for mine, other in pairs)
        if "bwrap" in samples:
            pairs = zip(rounds, samples["bwrap"], strict=True)
            row["cpu_x_bwrap"] = statistics.median(o.cpu_ms_per_test / max(m.cpu_ms_per_test, 1e-9) for m, o in pairs)
        rows.append(row)
    return rows


def print_table(program: str, rows: list[dict]) -> None:
    """Markdown, as in docs/scale.md."""
    print(f"\n{program}, {TESTS_PER_PROGRAM} tests per program, {default_workers()} cores\n")
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    print(markdown_table(list(rows[0]), cells))


def main(config: BenchConfig) -> None:
    """Measure and print."""
    load_before = os.getloadavg()[0]
    adopt_orphans()
    table = {program: summarise(samples) for program, samples in asyncio.run(benchmark(config)).items()}
    for program, rows in table.items():
        print_table(program, rows)
    print(f"\n1-minute load before the run: {load_before:.1f} on {default_workers()} cores")
    if config.output_file:
        Path(config.output_file).parent.mkdir(parents=True, exist_ok=True)
        Path(config.output_file).write_text(json.dumps({"load_before": load_before, "table": table}, indent=2) + "\n")


if __name__ == "__main__":
    run(BenchConfig, main)
