"""Does a verdict depend on how many programs run at a time? Ours by CPU time, beside two ways with a wall limit.

    python -m research.benchmarks.bench_verdicts --output runs/verdicts

200 programs, half of them right. They use from 2 to 70 % of the time limit, wrong ones also without end. Each contender
first takes them one at a time. Then it takes the same at 1, 4, 16 and 64 at a time, and verdicts that differ are
counted.

Cobalt              cobalt.sandbox.Executor, all programs of a load handed over together
bubblewrap          bubblewrap around a fresh interpreter, as many at a time
multiprocessing     a process that calls ``exec``, as most trainers do, as many at a time
"""

import asyncio
import contextlib
import io
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.bench_executor import in_bwrap
from cobalt.cli.entry import run
from cobalt.records.jsonl import read_json
from cobalt.sandbox import Executor
from cobalt.tables import markdown_table
from research.reports.pictures import verdicts_picture

LOADS = (1, 4, 16, 64)
SHARES = (0.02, 0.02, 0.1, 0.3, 0.7)
"""Of the time limit, that a program computes."""
WAYS = ("right", "right", "right", "right", "right", "wrong", "wrong", "wrong", "error", "endless")
ENDS = {
    "right": "print(2 * given)",
    "wrong": "print(2 * given + 1)",
    "error": "raise ValueError(given)",
    "endless": "while True: given += 1",
}
TEXT, EXPECTED = "21\n", "42"
Judged = list[bool]


@dataclass
class VerdictsConfig:
    """Count verdicts that change with the number of programs that run at a time."""

    output: Path
    """Folder for verdicts.json and the figure."""
    programs: int = 200
    """How many."""
    limit_s: float = 0.5
    """Seconds that a program may take."""


def make_programs(count: int, limit_s: float) -> list[str]:
    """The same ones in every run, mixed. Their computing is counted in CPU time, so it is the same on any machine."""
    programs = []
    for number in range(count):
        work_s = SHARES[number // len(WAYS) % len(SHARES)] * limit_s
        lines = ["import time", "given = int(input())", f"while time.process_time() < {work_s}: pass"]
        programs.append("\n".join([*lines, ENDS[WAYS[number % len(WAYS)]], f"# {number}"]))
    random.Random(0).shuffle(programs)
    return programs


def by_cobalt(programs: Sequence[str], at_a_time: int, limit_s: float) -> Judged:
    """The executor, with its limits by CPU time."""

    async def run_all() -> Judged:
        async with Executor(cpu_limit_s=limit_s) as executor:
            slots = asyncio.Semaphore(at_a_time)

            async def judged(code: str) -> bool:
                async with slots:
                    return (await executor.run(code, {"inputs": [TEXT], "outputs": [EXPECTED]})).solved

            return await asyncio.gather(*map(judged, programs))

    return asyncio.run(run_all())


def by_bubblewrap(programs: Sequence[str], at_a_time: int, limit_s: float) -> Judged:
    """A fresh interpreter for each program, killed when the limit has passed."""

    def judged(code: str) -> bool:
        with in_bwrap(code) as command:
            try:
                done = subprocess.run(command, input=TEXT, capture_output=True, text=True, timeout=limit_s, check=False)
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0 and done.stdout.strip() == EXPECTED

    with ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(judged, programs))


def execute(code: str, answer: Connection) -> None:
    """In the process of a program."""
    sys.stdin, printed = io.StringIO(TEXT), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(Exception):
        exec(code, {"__name__": "__main__"})
    answer.send(printed.getvalue())


def by_multiprocessing(programs: Sequence[str], at_a_time: int, limit_s: float) -> Judged:
    """A fork for each program, killed when the limit has passed."""
    context = multiprocessing.get_context("fork")

    def judged(code: str) -> bool:
        answer, of_the_program = context.Pipe(duplex=False)
        process = context.Process(target=execute, args=(code, of_the_program), daemon=True)
        process.start()
        right = answer.poll(limit_s) and answer.recv().strip() == EXPECTED
        process.kill()
        process.join()
        return right

    with ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(judged, programs))


CONTENDERS: dict[str, Callable[[Sequence[str], int, float], Judged]] = {
    "Cobalt": by_cobalt,
    "bubblewrap, wall limit": by_bubblewrap,
    "multiprocessing, wall limit": by_multiprocessing,
}


def main(config: VerdictsConfig) -> None:
    programs = make_programs(config.programs, config.limit_s)
    report = {"programs": len(programs), "limit_s": config.limit_s, "cores": len(os.sched_getaffinity(0))}
    report |= {"load_average_before": os.getloadavg()[0], "different": {}, "seconds": {}}
    for name, judge in CONTENDERS.items():
        alone, different, seconds = judge(programs, 1, config.limit_s), [], []
        for load in LOADS:
            started = time.monotonic()
            judged = judge(programs, load, config.limit_s)
            seconds.append(round(time.monotonic() - started, 1))
            different.append(sum(now != before for now, before in zip(judged, alone, strict=True)))
        report["different"][name], report["seconds"][name] = different, seconds
        print(f"{name}: {sum(alone)} pass alone, different {different}, seconds {seconds}", flush=True)
    config.output.mkdir(parents=True, exist_ok=True)
    (config.output / "verdicts.json").write_text(json.dumps({**report, "at_a_time": LOADS}, indent=2) + "\n")
    rows = [[name, *map(str, counts)] for name, counts in report["different"].items()]
    print(markdown_table(["at a time", *map(str, LOADS)], rows))
    verdicts_picture(read_json(config.output / "verdicts.json")).write(config.output)


if __name__ == "__main__":
    run(VerdictsConfig, main)
