"""Programs while processes of their sandboxes are killed at random."""

import asyncio
import os
import random
import signal
import time

from processes import children, identity, left, wait_until

from cobalt.sandbox.executor import Executor

STUBBORN = """
import signal
for number in (signal.SIGXCPU, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
while True:
    pass
"""
LIMITS = {"cpu_limit_s": 0.15, "suite_cpu_limit_s": 0.3}
KINDS = (
    ("print(sum(map(int, input().split())))", "passed"),
    ("print(-1)", "wrong_answer"),
    ("import time\ntime.sleep(0.05)\nprint(sum(map(int, input().split())))", "passed"),
    ("1 / 0", "runtime_error"),
    (STUBBORN, "time_limit"),
)
"""Programs and the verdict of each of their tests; the last kind once in ten."""
PROGRAMS, TESTS = 500, 4
KILL_EVERY = 10
"""Programs that have ended between two kills: so many are hit, however fast or busy the machine is."""
IN_FLIGHT = 128


PROGRAM_KINDS = [4 if i % 10 == 9 else i % 4 for i in range(PROGRAMS)]
"""Which of ``KINDS`` each program is."""


def new_children(others):
    """Processes below this one but for ``others``, which earlier tests may have left."""
    return [pid for pid in children(os.getpid()) if pid not in others]


async def kill_at_random(chooser, ended, longest_s, others, seen, killed):
    """A new process below this one, whichever it is, some time after another few programs have ``ended``."""
    while True:
        for _ in range(KILL_EVERY):
            await ended.acquire()
        await asyncio.sleep(chooser.uniform(0, longest_s))
        below = new_children(others)
        seen.update(identity(pid) for pid in below)
        if below:
            try:
                os.kill(chosen := chooser.choice(below), signal.SIGKILL)
                killed.append(chosen)
            except ProcessLookupError:
                continue


async def run_and_kill(mode, programs=PROGRAMS):
    """``{"wrong", "infra", "killed", "left"}``: programs with a wrong verdict and with an infrastructure error,
    processes killed, and processes that are still there after the executor has closed.
    """
    chooser, others, seen, killed = random.Random(0), set(children(os.getpid())), set(), []
    places, ended = asyncio.Semaphore(IN_FLIGHT), asyncio.Semaphore(0)
    tests = {"inputs": [f"{i} 1" for i in range(TESTS)], "outputs": [str(i + 1) for i in range(TESTS)]}

    async def one(executor, kind):
        async with places:
            result = await executor.run(KINDS[kind][0], tests)
            ended.release()
            return result

    async with Executor(mode=mode, **LIMITS) as executor:
        undisturbed = time.monotonic()
        await executor.run_many([(STUBBORN, tests)] * executor.workers)
        longest_s = time.monotonic() - undisturbed
        killer = asyncio.ensure_future(kill_at_random(chooser, ended, longest_s, others, seen, killed))
        results = await asyncio.gather(*(one(executor, kind) for kind in PROGRAM_KINDS[:programs]))
        killer.cancel()
        seen.update(map(identity, new_children(others)))
    wait_until(lambda: not left(list(seen)), timeout_s=5)
    wrong = [
        (kind, [v.value for v in result.verdicts])
        for kind, result in zip(PROGRAM_KINDS[:programs], results, strict=True)
        if result.infra_error is None and {v.value for v in result.verdicts} != {KINDS[kind][1]}
    ]
    return {
        "wrong": wrong,
        "infra": [result.infra_error for result in results if result.infra_error is not None],
        "killed": len(killed),
        "left": left(list(seen)),
    }
