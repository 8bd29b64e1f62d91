"""The evaluator app on a local Ray: by handle, by HTTP, through lost replicas."""

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from dataclasses import asdict
from types import SimpleNamespace

import psutil
import pytest
from http_calls import connect, first_line, post, status_of
from own_serve import own_serve
from pydantic import ValidationError
from waiting import wait_for

from cobalt.errors import InputError, SetupError
from cobalt.sandbox import ExecutionResult, Verdict
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.selftest import examine
from cobalt.serving import execution
from cobalt.serving.app_settings import EvaluatorConfig
from cobalt.serving.execution import PROBLEMS_PER_WORKER, open_execution_service
from cobalt.serving.ports import free_port
from cobalt.serving.service_check import ServiceCheckConfig
from cobalt.serving.service_check import main as check_health

ADD = "print(sum(map(int, input().split())))"
TESTS = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}


@pytest.fixture(scope="module")
def metrics_port():
    return free_port()


@pytest.fixture(scope="module")
def app_url(metrics_port):
    """The app, with small limits, on a Ray of its own; its URL."""
    if (report := examine("namespaces")).missing is not None and examine("landlock").missing is not None:
        pytest.skip(f"no sandbox here: {report.missing}")
    from ray import serve

    from cobalt.serving.evaluator import build_app

    args = EvaluatorConfig(workers=2, num_cpus=0, cpu_limit_s=0.5, checker="lcb")
    with own_serve(num_cpus=1, _metrics_export_port=metrics_port) as url:
        serve.run(build_app(args), name=execution.APP_NAME, route_prefix="/evaluator")
        yield f"{url}/evaluator"


@pytest.mark.parametrize("tests", [TESTS, json.dumps(TESTS)], ids=["object", "JSON"])
def test_one_program_by_http(app_url, tests):
    status, record = post(app_url, {"code": "print(3.0)", "test_cases": tests})
    shown = (("1 2", 3), ("3 4", 7))
    feedback = [f"Input:\n{text}\nProgram's Output:\n3.0\nExpected Output:\n{wanted}" for text, wanted in shown]
    verdicts = {"passing": [True, False], "verdicts": ["passed", "wrong_answer"]}  # the lcb checker's
    assert (status, record) == (200, {**verdicts, "feedback": feedback, "infra_error": None})


def test_many_programs_by_http(app_url):
    programs = [{"code": code, "test_cases": TESTS} for code in (ADD, None, "while True: pass")]
    status, answer = post(app_url, {"programs": programs})
    assert status == 200
    assert [record["verdicts"][0] for record in answer["results"]] == ["passed", "no_program", "time_limit"]


SLEEPER, NINE_TESTS = "import time\nwhile True: time.sleep(0.01)", {"inputs": [""] * 9, "outputs": [""] * 9}


def test_a_client_that_has_gone_frees_the_sandbox(app_url):
    """Its programs would take over a minute."""
    body = json.dumps({"programs": [{"code": SLEEPER, "test_cases": NINE_TESTS}] * 12}).encode()
    with connect(app_url) as connection:
        connection.sendall(
            b"POST /evaluator HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        wait_for(lambda: status_of(app_url)["queue_depth"])
    wait_for(lambda: not status_of(app_url)["queue_depth"])


async def test_a_caller_by_handle_that_has_gone_frees_the_sandbox(app_url):
    async with open_execution_service("serve") as service:
        running = asyncio.ensure_future(service.run_many([(SLEEPER, NINE_TESTS)] * 12))
        await asyncio.to_thread(wait_for, lambda: status_of(app_url)["queue_depth"])
        running.cancel()
        await asyncio.to_thread(wait_for, lambda: not status_of(app_url)["queue_depth"])


async def test_description_says_what_decides_verdicts(app_url):
    async with open_execution_service("serve") as service, open_execution_service("local", workers=1) as local:
        served, here = await service.describe(), await local.describe()
        assert await service.problems_at_once() == PROBLEMS_PER_WORKER * (await service.state())["workers"]
        assert await local.problems_at_once() == PROBLEMS_PER_WORKER
    assert served == {"checker": "lcb", **asdict(Limits(cpu_limit_s=0.5))}
    assert here == {"checker": "exact", **asdict(Limits())}
    status = status_of(app_url)
    assert status.pop("mode") in ("namespaces", "landlock")
    assert status == {"workers": 2, "queue_depth": 0, "replicas": 1, **served}


async def test_service_by_handle(app_url):
    async with open_execution_service("serve") as service:
        one = await service.run(ADD, TESTS)
        many = await service.run_many([(ADD, TESTS), (None, TESTS), ("print(3)", json.dumps(TESTS))] * 10)
    assert one.solved
    assert [result.passing for result in many] == [(True, True), (False, False), (True, False)] * 10
    assert many[1].verdicts == (Verdict.NO_PROGRAM,) * 2


async def test_malformed_tests_by_handle(app_url):
    not_json = {"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}
    async with open_execution_service("serve") as service:
        for tests, complaint in (({"inputs": [], "outputs": []}, "no tests"), (not_json, "not JSON")):
            with pytest.raises(ValueError, match=complaint):
                await service.run("def f(x): return x", tests)
            assert (await service.run(ADD, TESTS)).solved


def client_of(answer):
    """A client of an app whose ``run_many`` is the coroutine function ``answer``."""
    return execution.ExecutionService(app=SimpleNamespace(run_many=SimpleNamespace(remote=answer)))


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


JSON_CHECKER = """
import json

def same_answer(output, expected):
    return json.loads(output)["answer"] == json.loads(expected)["answer"]
"""
PAIR = """
import json, sys

given = json.load(sys.stdin)
print("accepted" if sum(map(int, given["output"].split())) == int(given["input"]) else "rejected")
"""


@pytest.fixture(scope="module")
def own_checker(app_url, tmp_path_factory):
    """A second app, with a checker from a user's file: its name there."""
    from ray import serve

    from cobalt.serving.evaluator import build_app

    path = tmp_path_factory.mktemp("own") / "json_checker.py"
    path.write_text(JSON_CHECKER)
    checker = f"{path}:same_answer"
    serve.run(build_app(EvaluatorConfig(workers=1, num_cpus=0, checker=checker)), name="own", route_prefix="/own")
    return checker


@pytest.fixture
def at_the_own_app(own_checker, monkeypatch):
    monkeypatch.setattr(execution, "APP_NAME", "own")
    return own_checker


async def test_a_checker_of_ones_own_judges_in_the_app(at_the_own_app, monkeypatch):
    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)  # before a program without a verdict is sent again
    tests = {"inputs": [""], "outputs": ['{"answer": 1}']}
    async with open_execution_service("serve", checker=at_the_own_app) as service:
        right = await service.run("""print('{"because": "x", "answer": 1}')""", tests)
        wrong = await service.run("""print('{"answer": 2}')""", tests)
        broken = await service.run("print(1)", {"inputs": [""], "outputs": ["1"]})
        described = await service.describe()
    assert (right.passing, wrong.passing) == ((True,), (False,))
    assert broken.infra_error is not None and "json_checker.py:same_answer gave no verdict" in broken.infra_error
    assert "TypeError" in broken.infra_error
    assert described["checker"].startswith("json_checker.py:same_answer@")


async def test_a_checker_program_judges_in_the_app_and_another_checker_is_refused(at_the_own_app):
    tests = {"inputs": ["5"], "outputs": ["1 4"], "checker_program": PAIR}
    async with open_execution_service("serve") as service:
        results = await service.run_many([("print(2, 3)", tests), ("print(2, 2)", tests)])
    assert [result.passing for result in results] == [(True,), (False,)]
    with pytest.raises(InputError, match=r"compares with checker json_checker\.py:same_answer@\w+: start it with"):
        async with open_execution_service("serve", checker="exact"):
            pass


def test_an_app_with_a_checker_of_ones_own_is_healthy(at_the_own_app, capsys):
    check_health(ServiceCheckConfig(evaluator_args=f"checker={at_the_own_app}"))
    assert "healthy; checker=json_checker.py:same_answer@" in capsys.readouterr().out
    with pytest.raises(InputError, match="not exact"):
        check_health(ServiceCheckConfig(evaluator_args="checker=exact"))


def test_metrics_are_exported(app_url, metrics_port):
    post(app_url, {"code": ADD, "test_cases": TESTS})

    def are_told() -> bool:
        text, url = "", f"http://127.0.0.1:{metrics_port}/metrics"
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        names = [f"ray_cobalt_evaluator_{name}" for name in ("tests_total", "programs_total", "queue_depth")]
        return all(name in text for name in [*names, 'verdict="passed"'])

    wait_for(are_told)


@pytest.mark.filterwarnings("ignore:coroutine 'Evaluator.__del__'")  # which Serve awaits
async def test_the_queue_gauge_counts_what_waits(monkeypatch):
    from unittest.mock import MagicMock, call

    from cobalt.serving import evaluator

    for metric in ("Gauge", "Counter"):
        monkeypatch.setattr(evaluator, metric, MagicMock())
    replica = object.__new__(evaluator.Evaluator)
    await replica.__init__(EvaluatorConfig(workers=1))
    running = asyncio.ensure_future(replica.run_many([("import time; time.sleep(60)", TESTS)] * 4))
    while len(waiting := replica._queue.set.mock_calls) < 600 and waiting[-1:] != [call(3)]:
        await asyncio.sleep(0.1)
        await replica.check_health()
    replica._queue.set.assert_called_with(3)
    running.cancel()
    await replica.__del__()


def evaluator_replicas() -> list[psutil.Process]:
    """Processes of the app's replicas. Its programs come and go while we look, so one that is gone is passed over."""
    replicas = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "Evaluator" in " ".join(process.cmdline()):
                replicas.append(process)
    return replicas


async def test_a_lost_replica_loses_no_program(app_url):
    body = json.dumps({"programs": [{"code": ADD, "test_cases": TESTS}] * 200}).encode()
    async with open_execution_service("serve") as service:
        running = asyncio.ensure_future(service.run_many([(ADD, TESTS)] * 200))
        by_http = asyncio.ensure_future(asyncio.to_thread(post, app_url, body))
        await asyncio.to_thread(wait_for, lambda: status_of(app_url)["queue_depth"])
        replicas = evaluator_replicas()
        assert replicas
        for replica in replicas:
            replica.kill()
        results, (status, answer) = await running, await by_http
    assert [result.infra_error for result in results] == [None] * 200
    assert all(result.solved for result in results)
    assert status == 200
    assert [record["passing"] for record in answer["results"]] == [[True, True]] * 200


def test_sandboxfusions_protocol_and_refusals_by_the_app(app_url):
    run = {"code": "print(input())", "language": "python", "stdin": "given"}
    status, answer = post(f"{app_url}/run_code", run)
    assert (status, answer["status"], answer["run_result"]["stdout"]) == (200, "Success", "given\n")
    assert post(app_url, b"{}")[0] == 422
    handshake = b"GET /evaluator HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    handshake += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    for asked in (handshake % b"localhost", b"GET /evaluator HTTP/1.1\r\nHost: rebound.example\r\n\r\n"):
        with connect(app_url) as connection:
            connection.sendall(asked)
            assert b" 403 " in first_line(connection)


async def test_a_service_that_stays_away_is_an_infra_error(monkeypatch):
    from ray.exceptions import RayActorError

    async def answer(programs):
        raise RayActorError()

    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)
    results = await client_of(answer).run_many([(ADD, TESTS)] * 20)
    assert all(result.infra_error and result.pass_rate is None for result in results)


async def test_programs_that_a_replica_could_not_judge_are_sent_again(monkeypatch):
    calls = []

    async def answer(programs):
        calls.append([code for code, _ in programs])
        return [
            ExecutionResult.infra(len(tests), "lost 5 sandboxes")
            if code == "unlucky" and len(calls) < 3
            else ExecutionResult.uniform(len(tests), Verdict.WRONG_ANSWER, code)
            for code, tests in programs
        ]

    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)
    results = await client_of(answer).run_many([("a", TESTS), ("unlucky", TESTS), ("b", TESTS)])
    assert calls == [["a", "unlucky", "b"], ["unlucky"], ["unlucky"]]
    assert [result.errors[0] for result in results] == ["a", "unlucky", "b"]


@pytest.mark.parametrize("has_cluster", [True, False], ids=["dead controller", "no cluster"])
async def test_no_service_is_a_setup_error(monkeypatch, has_cluster):
    import ray
    from ray import serve
    from ray.exceptions import RayActorError

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


async def test_no_app_is_a_setup_error(app_url, monkeypatch):
    monkeypatch.setattr(execution, "APP_NAME", "another")
    with pytest.raises(SetupError, match="no execution service"):
        async with open_execution_service("serve"):
            pass


async def test_limits_belong_to_a_local_service():
    with pytest.raises(ValueError, match="limits"):
        async with open_execution_service("serve", cpu_limit_s=1):
            pass
    async with open_execution_service("local", workers=1, cpu_limit_s=0.2) as service:
        assert (await service.run("while True: pass", TESTS)).verdicts == (Verdict.TIME_LIMIT,) * 2


def test_the_apps_mode_takes_names_and_aliases_and_other_arguments_are_refused():
    with pytest.raises(ValidationError):
        EvaluatorConfig(cpu_limit=4)
    modes = [EvaluatorConfig(mode=name).mode for name in ("auto", "namespaces", "landlock", "A", "B")]
    assert modes == ["auto", "namespaces", "landlock", "namespaces", "landlock"]
    with pytest.raises(ValidationError, match="mode must be one of auto, namespaces, landlock"):
        EvaluatorConfig(mode="C")
