"""The client of the execution service: equal programs once, a bounded number in flight, and what it counts."""

import asyncio

import pytest
from fake_service import FakeService

from cobalt.sandbox import TestCases
from cobalt.serving.execution import ExecutionService


def make_tests(count=4):
    return TestCases(tuple(map(str, range(count))), ("0",) * count)


async def test_each_distinct_program_runs_once_and_counts_once():
    executor = FakeService()
    service, runs = ExecutionService(executor), {}
    codes = ["print(1)", "print(2)", "print(1)", "print(1)"]
    results = await asyncio.gather(*[service.run(code, make_tests(), runs) for code in codes])
    later = await service.run("print(1)", make_tests(), runs)  # joins them
    assert [sum(result.passing) for result in [*results, later]] == [1, 2, 1, 1, 1]
    assert executor.programs == ["print(1)", "print(2)"]
    assert service.work_done() == {"programs_run": 2, "tests_run": 8, "executor_cpu_s": 1.0}


async def test_other_tests_or_other_runs_are_another_program():
    executor = FakeService()
    service, runs = ExecutionService(executor), {}
    for tests, known in ((make_tests(2), runs), (make_tests(3), runs), (make_tests(2), {}), (make_tests(2), None)):
        await service.run("print(1)", tests, known)
    assert len(executor.programs) == 4


async def test_programs_in_flight_are_bounded():
    executor = FakeService(delay_s=0.01)
    service = ExecutionService(executor, max_in_flight=20)
    await asyncio.gather(*[service.run(f"print({index})", make_tests()) for index in range(100)])
    assert (executor.most_running, len(executor.programs)) == (20, 100)


async def test_an_error_of_the_service_reaches_everyone_who_waits():
    class Broken:
        async def run(self, code, tests):
            raise ValueError("malformed tests")

    service, runs = ExecutionService(Broken()), {}
    outcomes = await asyncio.gather(*[service.run("print(1)", "x", runs) for _ in range(2)], return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["malformed tests"] * 2
    with pytest.raises(ValueError, match="malformed"):
        await service.run("print(1)", "x", runs)
