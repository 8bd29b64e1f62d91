"""Many programs: all at once, identical ones once, a bounded number in flight."""

import asyncio

import pytest

from cobalt.records import ExecutionResult, TestCases, Verdict
from cobalt.serving.programs import DistinctPrograms


def make_tests(count=4):
    return TestCases(tuple(map(str, range(count))), ("0",) * count)


class FakeService:
    """``print(3)`` passes three tests; keeps what it was asked for."""

    def __init__(self, delay_s=0.0):
        self.programs, self.running, self.most_running, self.delay_s = [], 0, 0, delay_s

    async def run(self, code, tests):
        self.programs.append(code)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        passing = tuple(index < int(code[6:-1]) for index in range(len(tests)))
        verdicts = tuple(Verdict.PASSED if passed else Verdict.WRONG_ANSWER for passed in passing)
        return ExecutionResult(passing, ("",) * len(tests), verdicts)


async def run_all(service, codes, max_in_flight=512):
    execution = DistinctPrograms(service, max_in_flight)
    return await asyncio.gather(*[execution.run(code, make_tests()) for code in codes])


async def test_each_distinct_program_runs_once():
    service = FakeService()
    results = await run_all(service, ["print(1)", "print(2)", "print(1)", "print(1)"])
    assert [sum(result.passing) for result in results] == [1, 2, 1, 1]
    assert service.programs == ["print(1)", "print(2)"]


async def test_the_same_code_on_other_tests_is_another_program():
    service = FakeService()
    execution = DistinctPrograms(service)
    await asyncio.gather(execution.run("print(1)", make_tests(2)), execution.run("print(1)", make_tests(3)))
    assert len(service.programs) == 2


async def test_programs_in_flight_are_bounded():
    service = FakeService(delay_s=0.01)
    await run_all(service, [f"print({index})" for index in range(100)], max_in_flight=20)
    assert service.most_running == 20
    assert len(service.programs) == 100


async def test_a_program_asked_for_later_joins_the_batch():
    service = FakeService()
    execution = DistinctPrograms(service)
    await execution.run("print(1)", make_tests())
    assert sum((await execution.run("print(2)", make_tests())).passing) == 2
    assert sum((await execution.run("print(1)", make_tests())).passing) == 1
    assert service.programs == ["print(1)", "print(2)"]


async def test_an_error_of_the_service_reaches_everyone_who_waits():
    class Broken:
        async def run(self, code, tests):
            raise ValueError("malformed tests")

    execution = DistinctPrograms(Broken())
    outcomes = await asyncio.gather(
        execution.run("print(1)", "x"), execution.run("print(1)", "x"), return_exceptions=True
    )
    assert [str(outcome) for outcome in outcomes] == ["malformed tests"] * 2
    with pytest.raises(ValueError, match="malformed"):
        await execution.run("print(1)", "x")
