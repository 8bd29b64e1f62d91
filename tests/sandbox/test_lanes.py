"""Programs that take long are in nobody's way, in every place; those whose callers have gone are stopped."""

import asyncio
import math
import os
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest
from places import report
from processes import wait_until

from cobalt.records import Verdict
from cobalt.sandbox import executor as executor_module
from cobalt.sandbox.executor import Executor
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.turns import Terms, Turn, TurnOver
from cobalt.sandbox.zygote import Zygote, threads_of, weigh_as_one


def test_good_programs_overtake_whatever_takes_long_and_nothing_is_left_of_cancelled_ones(place):
    """Sleepers, loops, threads that wake together, what compiles for long, and what is judged for long."""
    found = report(*place.arguments, "--scenario", "lanes")
    assert found["good"] == ["passed"] * 40
    assert found["still_running"] == 10
    assert found["after"] == ["passed"] * 2 + ["wrong_answer"] * 6
    assert found["busy"] == 0


MIXED = """
import time
kind, share = input().split()
if kind == "sleep":
    time.sleep(float(share))
while kind == "spin" and time.process_time() < float(share):
    pass
print("a" if kind != "wrong" else "b")
"""
INPUTS = [
    "sleep 0.1", "wrong 0", "spin 0.2", "spin 0.2", "sleep 0.3", "spin 5", "sleep 9", "sleep 0", "spin 0.2", "sleep 0",
]  # fmt: skip


async def test_turns_change_no_verdict(monkeypatch, namespaces):
    tests = {"inputs": INPUTS, "outputs": ["a"] * len(INPUTS)}
    monkeypatch.setattr(executor_module, "IDLE_S", 0.6)
    async with AsyncExitStack() as stack:
        executors = []
        for turn_s, workers in ((0.15, 1), (math.inf, 1), (0.15, 4)):
            monkeypatch.setattr(executor_module, "TURN_S", turn_s)
            executor = Executor(workers=workers, cpu_limit_s=0.35, suite_cpu_limit_s=0.9)
            executors.append(await stack.enter_async_context(executor))
        results = await asyncio.gather(*(executor.run(MIXED, tests) for executor in executors))
    assert results[0] == results[1] == results[2]
    letters = "".join(verdict.value[0] for verdict in results[0].verdicts)
    assert letters == "pwpppttptt"  # passed, wrong, time limit: of a test, and from the ninth on of the suite


SAYS = """
import time
share, *words = input().split()
print(*words, flush=True)
while time.process_time() < float(share):
    pass
"""
"""Its CPU seconds, and what it says before it uses them."""


async def test_tests_of_a_long_program_run_side_by_side(monkeypatch, namespaces):
    """They end as one after the other: one that had more time than is left of the suite's runs again."""
    monkeypatch.setattr(executor_module, "TURN_S", 0.1)
    results, counts = {}, []
    async with Executor(workers=4, cpu_limit_s=0.3, suite_cpu_limit_s=0.65) as executor:
        collect = executor._collect

        def note(job, futures):
            counts.append(len(futures))
            return collect(job, futures)

        monkeypatch.setattr(executor, "_collect", note)
        for workers in (4, 1):
            executor.workers = workers  # with one nothing else is idle
            for test in ("0.24 word", "9"):
                tests = {"inputs": [test] * 5, "outputs": [test.partition(" ")[2]] * 5}
                results[workers, test] = await executor.run(SAYS, tests)
    # the third of the first kind ends, but later than the suite's limit
    for test, letters in (("0.24 word", "ppttt"), ("9", "ttttt")):
        assert results[4, test] == results[1, test]
        assert "".join(verdict.value[0] for verdict in results[4, test].verdicts) == letters
    assert counts == [3, 3]  # so many use up the limit


async def test_side_by_side_or_not_what_fails_or_leaves_is_one_program(monkeypatch, namespaces):
    """Lost sandboxes cost no verdict, a caller that goes takes all tests along, and so does closing."""
    monkeypatch.setattr(executor_module, "TURN_S", 0.05)
    monkeypatch.setattr(executor_module, "RETRY_DELAY_S", 0.01)
    tests = {"inputs": ["0.15 a"] * 4, "outputs": ["a"] * 4}
    async with Executor(workers=4) as executor:
        serve, lost = executor._serve, []

        async def lose_first_parts(job, worker, lane):
            if job.is_part and len(lost) < 2:
                lost.append(job)
                raise ConnectionError("the worker died")
            return await serve(job, worker, lane)

        monkeypatch.setattr(executor, "_serve", lose_first_parts)
        result = await executor.run(SAYS, tests)
        assert result.solved and len(lost) == 2
        endless = {"inputs": ["99"] * 4, "outputs": [""] * 4}
        leaves, stays = (asyncio.ensure_future(executor.run(SAYS, endless)) for _ in range(2))
        await asyncio.to_thread(wait_until, lambda: executor._served > 1)
        leaves.cancel()
        result = await executor.run(SAYS, tests)
        assert result.solved
        assert not stays.done()
    assert (await asyncio.gather(stays, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    assert not executor._spread


async def test_a_test_may_sleep_for_three_times_its_cpu_limit(namespaces):
    tests = {"inputs": ["sleep 0.5", "sleep 9"], "outputs": ["a", "a"]}
    async with Executor(workers=1, cpu_limit_s=0.25) as executor:
        result = await executor.run(MIXED, tests)
    assert result.verdicts == (Verdict.PASSED, Verdict.TIME_LIMIT)


def test_a_test_may_end_while_its_waiting_is_looked_up():
    """Of 100 looks at processes that end at once about one falls between two system calls."""
    ending = "import os\nwhile True:\n    if not os.fork(): os._exit(0)\n    os.wait()"
    with subprocess.Popen([sys.executable, "-S", "-c", ending]) as process:
        try:
            assert all(threads_of(process.pid).waited_s >= 0 for _ in range(3_000))
        finally:
            process.kill()


CROWD = """
import hashlib, threading
for _ in range({computing}):
    threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 10**9)).start()
for _ in range({sleeping}):
    threading.Thread(target=threading.Event().wait).start()
"""


def test_the_turn_of_many_threads_ends_with_its_cpu_time(namespaces):
    """They wait for each other nearly all of the time, which does not count."""
    zygote, turn = Zygote("namespaces", Limits(cpu_limit_s=20)), Turn(Terms(0.5))
    try:
        with pytest.raises(TurnOver), zygote.program(CROWD.format(computing=60, sleeping=0), None, turn):
            zygote.run_test(b"", 20, 60)
    finally:
        zygote.close()
    assert turn.left_s > -8  # the test itself has 20 s; a busy machine is slow to end it


@pytest.mark.parametrize(("computing", "sleeping"), [(8, 3), (1, 8)])
def test_threads_that_compute_weigh_as_one(computing, sleeping):
    """The others may still be on their way to sleep when so many are ready: one and the same look counts."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    command = [sys.executable, "-S", "-c", CROWD.format(computing=computing, sleeping=sleeping)]
    with subprocess.Popen(command) as process:
        try:
            threads = f"/proc/{process.pid}/task"
            assert wait_until(lambda: len(os.listdir(threads)) == 1 + computing + sleeping)
            crowd = wait_until(lambda: (seen := threads_of(process.pid)).ready == computing and seen)
            assert crowd
            weigh_as_one(crowd)
            niceness = {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(threads)}
        finally:
            process.kill()
    assert min(niceness) > min(own, 18) if computing > 1 else niceness == {own}


SLEEP = "import time\ntime.sleep(100)"
COMPUTE = "import time\nwhile time.process_time() < 0.2: pass\nprint('a')"


async def test_programs_that_compute_do_not_wait_for_those_that_sleep(namespaces, monkeypatch):
    monkeypatch.setattr(executor_module, "TURN_S", 0.1)
    monkeypatch.setattr(executor_module, "IDLE_S", 0.3)
    async with Executor(workers=2) as executor:
        tests = {"inputs": [""] * 4, "outputs": ["a"] * 4}
        asleep = [asyncio.ensure_future(executor.run(SLEEP, tests)) for _ in range(3)]
        await asyncio.to_thread(wait_until, lambda: len(executor._idle.queue) == 2)
        result = await executor.run(COMPUTE, tests)
        assert result.solved
        assert not any(task.done() for task in asleep)
        for task in asleep:
            task.cancel()
