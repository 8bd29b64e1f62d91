"""The client of the execution service: equal programs once, a bounded number in flight, what it counts, its retries."""

import asyncio
from types import SimpleNamespace

import pytest
import ray
from fake_service import FakeService
from ray import serve
from ray.exceptions import RayActorError

from cobalt.cli.flags import ExecutionConfig
from cobalt.errors import InputError, SetupError
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.serving import execution
from cobalt.serving.execution import ExecutionService, open_execution_service, service_of

TESTS = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}


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


def client_of(answer):
    """A client of an app whose ``run_many`` is the coroutine function ``answer``."""
    return ExecutionService(app=SimpleNamespace(run_many=SimpleNamespace(remote=answer)))


async def test_programs_submitted_together_share_calls(monkeypatch):
    calls = []

    async def answer(programs):
        calls.append(len(programs))
        return [ExecutionResult.uniform(len(tests), Verdict.WRONG_ANSWER, code) for code, tests in programs]

    monkeypatch.setattr(execution, "PROGRAMS_PER_CALL", 4)
    service = client_of(answer)
    results = await asyncio.gather(*(service.run(str(i), TESTS) for i in range(10)))
    assert calls == [4, 4, 2]
    assert [result.errors[0] for result in results] == [str(i) for i in range(10)]


async def test_a_service_that_stays_away_is_an_infra_error(monkeypatch):
    async def answer(programs):
        raise RayActorError()

    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)
    results = await client_of(answer).run_many([("code", TESTS)] * 20)
    assert all(result.infra_error and result.pass_rate is None for result in results)


async def test_programs_that_a_replica_could_not_judge_are_sent_again(monkeypatch):
    calls = []

    async def answer(programs):
        calls.append([code for code, _ in programs])
        return [
            ExecutionResult.infra(len(tests), "no verdict", is_final=code == "unjudged")
            if code == "unjudged" or (code == "unlucky" and len(calls) < 3)
            else ExecutionResult.uniform(len(tests), Verdict.WRONG_ANSWER, code)
            for code, tests in programs
        ]

    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)
    results = await client_of(answer).run_many([(code, TESTS) for code in ("a", "unlucky", "unjudged")])
    assert calls == [["a", "unlucky", "unjudged"], ["unlucky"], ["unlucky"]]
    assert [result.errors[0] for result in results] == ["a", "unlucky", ""]
    assert results[2].infra_error == "no verdict"


@pytest.mark.parametrize("has_cluster", [True, False], ids=["dead controller", "no cluster"])
async def test_no_service_is_a_setup_error(monkeypatch, has_cluster):
    def dead(_):
        raise RayActorError()

    def no_cluster(**_):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "is_initialized", lambda: has_cluster)
    monkeypatch.setattr(ray, "init", no_cluster)
    monkeypatch.setattr(serve, "get_app_handle", dead)
    with pytest.raises(SetupError, match="serve run remote_reward_server:app"):
        async with open_execution_service("serve"):
            pass


async def test_limits_belong_to_a_local_service():
    with pytest.raises(ValueError, match="limits"):
        async with open_execution_service("serve", cpu_limit_s=1):
            pass


async def test_a_commands_flags_give_the_limits_of_its_sandboxes():
    async with service_of(ExecutionConfig(executor="local", executor_args="workers=1 cpu_limit_s=0.2")) as service:
        assert (await service.run("while True: pass", TESTS)).verdicts == (Verdict.TIME_LIMIT,) * 2
        assert (await service.describe())["cpu_limit_s"] == 0.2


@pytest.mark.parametrize(
    "executor, args, message",
    [
        ("serve", "cpu_limit_s=1", "of --executor local"),
        ("local", "cpu_limit=1", "--executor_args: .*cpu_limit"),
        ("local", "cpu_limit_s=-1", "--executor_args: .*cpu_limit_s"),
        ("local", "replicas=2", "--executor_args: .*replicas"),
        ("local", "workers=1 workers=2", "--executor_args: workers is given twice"),
        ("local", "checker=lcb", "--checker"),
    ],
)
def test_arguments_that_the_sandboxes_do_not_have_are_refused(executor, args, message):
    with pytest.raises(InputError, match=message):
        service_of(ExecutionConfig(executor=executor, executor_args=args))
