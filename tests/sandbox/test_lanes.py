"""Programs that take long are in nobody's way, in every place; those whose callers have gone are stopped."""

import math
import subprocess
import sys

import pytest
from places import report

from cobalt.records import Verdict
from cobalt.sandbox import executor as executor_module
from cobalt.sandbox.executor import Executor
from cobalt.sandbox.limits import default_workers
from cobalt.sandbox.zygote import waited_s


@pytest.fixture(scope="module")
def lanes(place) -> dict:
    """The scenario ``run_lanes``, in this place."""
    return report(*place.arguments, "--scenario", "lanes")


def test_good_programs_overtake_whatever_takes_long(lanes):
    """Sleepers, loops, threads that wake together, what compiles for long, and what is judged for long."""
    assert lanes["good"] == ["passed"] * 40
    assert lanes["still_running"] == 10


def test_the_tests_of_cancelled_programs_are_killed(lanes):
    assert lanes["busy"] == 0


def test_programs_are_served_after_others_were_cancelled(lanes):
    assert lanes["after"] == ["passed"] * 2 + ["wrong_answer"] * 6


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
    "sleep 0.1",
    "wrong 0",
    "spin 0.3",
    "spin 0.3",
    "sleep 0.5",
    "spin 5",
    "sleep 9",
    "sleep 0",
    "spin 0.3",
    "sleep 0",
]


async def test_turns_change_no_verdict(monkeypatch, namespaces):
    tests = {"inputs": INPUTS, "outputs": ["a"] * len(INPUTS)}
    results = []
    for turn_s in (0.2, math.inf):
        monkeypatch.setattr(executor_module, "TURN_S", turn_s)
        async with Executor(workers=1, cpu_limit_s=0.5, suite_cpu_limit_s=1.3) as executor:
            results.append(await executor.run(MIXED, tests))
    assert results[0] == results[1]
    letters = "".join(verdict.value[0] for verdict in results[0].verdicts)
    assert letters == "pwpppttptt"  # passed, wrong, time limit: of a test, and from the ninth on of the suite


async def test_a_test_may_sleep_for_three_times_its_cpu_limit(namespaces):
    tests = {"inputs": ["sleep 1", "sleep 2.5"], "outputs": ["a", "a"]}
    async with Executor(workers=1, cpu_limit_s=0.5) as executor:
        result = await executor.run(MIXED, tests)
    assert result.verdicts == (Verdict.PASSED, Verdict.TIME_LIMIT)


def test_a_test_may_end_while_its_waiting_is_looked_up():
    """Of 100 looks at processes that end at once about one falls between two system calls."""
    ending = "import os\nwhile True:\n    if not os.fork(): os._exit(0)\n    os.wait()"
    with subprocess.Popen([sys.executable, "-S", "-c", ending]) as process:
        try:
            assert all(waited_s(process.pid) >= 0 for _ in range(20_000))
        finally:
            process.kill()


SHARE = """
import time
while time.process_time() < 0.4:
    pass
print("a")
"""


async def test_waiting_for_a_core_is_no_time_of_the_test(namespaces):
    """At eight tests to a core each takes more than twice its wall limit."""
    beside = 8 * default_workers()
    async with Executor(workers=beside, cpu_limit_s=0.5, memory_limit_mb=256) as executor:
        results = await executor.run_many([(SHARE, {"inputs": [""] * 2, "outputs": ["a"] * 2})] * beside)
    assert {verdict for result in results for verdict in result.verdicts} == {Verdict.PASSED}
