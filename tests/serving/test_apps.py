"""Both Ray Serve apps on one local Ray: the evaluator, and vLLM's with a stand-in for vLLM."""

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import httpx
import psutil
import pytest
from http_calls import connect, first_line, post, status_of
from own_serve import own_serve
from pydantic import ValidationError
from ray import serve
from test_vllm_app import search_path
from waiting import wait_for

from cobalt.completion import FINISH_CONTEXT, Sampling
from cobalt.errors import InfraError, InputError, SetupError
from cobalt.inference.endpoints import open_openai_engine
from cobalt.inference.flags import OpenWeightConfig
from cobalt.sandbox import Verdict
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.selftest import examine
from cobalt.serving import evaluator, execution, vllm_app
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stand-in for vLLM leaves traces."""
    return tmp_path_factory.mktemp("fake")


@pytest.fixture(scope="module")
def own_ray(metrics_port, folder):
    """A Ray of these tests; the URL of its HTTP server."""
    with pytest.MonkeyPatch.context() as patch:  # a runtime_env would start each process anew
        patch.setenv("FAKE_VLLM_DIR", str(folder))
        patch.setenv("PYTHONPATH", search_path())
        with own_serve(num_cpus=2, _metrics_export_port=metrics_port) as url:
            yield url


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    """A user's own."""
    path = tmp_path_factory.mktemp("own") / "numbers.py"
    path.write_text("def same(output, expected):\n    return float(output) == float(expected)\n")
    return f"{path}:same"


@pytest.fixture(scope="module")
def app_url(own_ray, checker):
    """The evaluator, with small limits and a user's own checker; its URL."""
    if (report := examine("namespaces")).missing is not None and examine("landlock").missing is not None:
        pytest.skip(f"no sandbox here: {report.missing}")
    args = EvaluatorConfig(workers=2, num_cpus=0, cpu_limit_s=0.5, checker=checker)
    serve.run(evaluator.build_app(args), name=execution.APP_NAME, route_prefix="/evaluator")
    return f"{own_ray}/evaluator"


@pytest.mark.parametrize("tests", [TESTS, json.dumps(TESTS)], ids=["object", "JSON"])
def test_one_program_by_http(app_url, tests):
    status, record = post(app_url, {"code": "print(3.0)", "test_cases": tests})
    shown = (("1 2", 3), ("3 4", 7))
    feedback = [f"Input:\n{text}\nProgram's Output:\n3.0\nExpected Output:\n{wanted}" for text, wanted in shown]
    verdicts = {"passing": [True, False], "verdicts": ["passed", "wrong_answer"]}
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
    assert served.pop("checker").startswith("numbers.py:same@")
    assert served == asdict(Limits(cpu_limit_s=0.5))
    assert here == {"checker": "exact", **asdict(Limits())}
    status = status_of(app_url)
    assert status.pop("mode") in ("namespaces", "landlock") and status.pop("checker").startswith("numbers.py:same@")
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


PAIR = """
import json, sys

given = json.load(sys.stdin)
print("accepted" if sum(map(int, given["output"].split())) == int(given["input"]) else "rejected")
"""


async def test_the_checker_of_the_app_judges(app_url, checker):
    async with open_execution_service("serve", checker=checker) as service:
        result = await service.run("print(3.0)", TESTS)
        broken = await service.run("print('x')", {"inputs": [""], "outputs": ["x"]})
    assert result.passing == (True, False)
    assert broken.infra_error is not None and "numbers.py:same gave no verdict" in broken.infra_error
    assert "ValueError" in broken.infra_error
    with pytest.raises(InputError, match=r"compares with checker numbers\.py:same@\w+: start it with"):
        async with open_execution_service("serve", checker="exact"):
            pass


def test_an_app_with_a_checker_of_ones_own_is_healthy(app_url, checker, capsys):
    check_health(ServiceCheckConfig(evaluator_args=f"checker={checker}"))
    assert "healthy; checker=numbers.py:same@" in capsys.readouterr().out
    with pytest.raises(InputError, match="not exact"):
        check_health(ServiceCheckConfig(evaluator_args="checker=exact"))


async def test_a_checker_program_judges_in_the_app(app_url):
    tests = {"inputs": ["5"], "outputs": ["1 4"], "checker_program": PAIR}
    async with open_execution_service("serve") as service:
        results = await service.run_many([("print(2, 3)", tests), ("print(2, 2)", tests)])
    assert [result.passing for result in results] == [(True,), (False,)]


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
    tests = {**TESTS, "checker": "exact"}
    body = json.dumps({"programs": [{"code": ADD, "test_cases": tests}] * 200}).encode()
    async with open_execution_service("serve") as service:
        running = asyncio.ensure_future(service.run_many([(ADD, tests)] * 200))
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


async def test_no_app_is_a_setup_error(app_url, monkeypatch):
    monkeypatch.setattr(execution, "APP_NAME", "another")
    with pytest.raises(SetupError, match="no execution service"):
        async with open_execution_service("serve"):
            pass


def test_the_apps_mode_takes_names_and_other_arguments_are_refused():
    with pytest.raises(ValidationError):
        EvaluatorConfig(cpu_limit=4)
    modes = [EvaluatorConfig(mode=name).mode for name in ("auto", "namespaces", "landlock")]
    assert modes == ["auto", "namespaces", "landlock"]
    with pytest.raises(ValidationError, match="mode must be one of auto, namespaces, landlock"):
        EvaluatorConfig(mode="C")


MESSAGES = [{"role": "user", "content": "é"}]
SLOW, CRASH, GIVE_UP = 666, 667, 668


@pytest.fixture(scope="module")
def vllm_url(own_ray: str) -> str:
    """Where the app of vLLM answers."""
    args = {"model": "m", "max_num_seqs": "8", "num_replicas": 1, "num_gpus": 0}
    args["chat_template_kwargs"] = '{"enable_thinking": false}'
    app = vllm_app.build_app(vllm_app.VllmConfig.model_validate(args))
    serve.run(app, name="vllm_actor", route_prefix="/vllm_actor")
    return f"{own_ray}/vllm_actor"


def engine_at(vllm_url: str, **flags: Any) -> Any:
    return open_openai_engine(OpenWeightConfig(api_base=f"{vllm_url}/v1", **flags))


async def test_requests_and_answers(vllm_url: str) -> None:
    async with engine_at(vllm_url) as engine:
        assert engine.max_in_flight == 10  # a quarter more than it runs at a time
        assert engine.model_id == 'm {"enable_thinking": false}'
        answers = await asyncio.gather(*(engine.generate(MESSAGES, Sampling(0.5, 0.9, 4), seed) for seed in range(20)))
    asked = [json.loads(answer.text) for answer in answers]
    assert [one["seed"] for one in asked] == list(range(20))
    expected = {"messages": MESSAGES, "temperature": 0.5, "top_p": 0.9, "max_tokens": 4}
    assert all(one.items() >= expected.items() for one in asked)
    assert asked[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert answers[0].usage() == {"prompt_tokens": 1, "completion_tokens": 7, "finish_reason": "stop", "cost": None}


async def test_a_response_ends_with_the_context(vllm_url: str) -> None:
    async with engine_at(vllm_url) as engine:
        for length, max_tokens in ((1, 63), (63, 1)):
            answer = await engine.generate([{"role": "user", "content": "é" * length}], Sampling(max_tokens=1000), 1)
            assert (json.loads(answer.text)["max_tokens"], answer.prompt_tokens) == (max_tokens, length)
        answer = await engine.generate([{"role": "user", "content": "é" * 100}], Sampling(), 1)
    assert (answer.text, answer.finish_reason, answer.prompt_tokens) == ("", FINISH_CONTEXT, 100)


async def test_what_is_no_answer_is_an_infra_error(vllm_url: str) -> None:
    async with engine_at(vllm_url) as engine:
        with pytest.raises(InfraError, match="finish reason abort"):
            await engine.generate(MESSAGES, Sampling(max_tokens=4), GIVE_UP)
        with pytest.raises(InfraError, match=r"BadRequestError.*too large"):
            await engine.generate(MESSAGES, Sampling(top_p=7.0, max_tokens=4), 1)


async def test_the_server_must_serve_the_model_asked_for(vllm_url: str) -> None:
    async with engine_at(vllm_url, model="m") as engine:
        assert engine.model_id.startswith("m")
    named = vllm_url.replace("://", "://me:word@")
    with pytest.raises(InputError, match=r"--model Qwen/Qwen3-8B, but the server at .* serves m") as refused:
        async with engine_at(named, model="Qwen/Qwen3-8B"):
            pass
    assert "word" not in str(refused.value)


async def test_a_cancelled_request_is_aborted_and_leaves_the_others(vllm_url: str, folder: Path) -> None:
    async with engine_at(vllm_url) as engine:
        slow = asyncio.ensure_future(engine.generate(MESSAGES, Sampling(max_tokens=4), SLOW))
        await asyncio.to_thread(wait_for, (folder / "slow").exists)
        slow.cancel()
        assert json.loads((await engine.generate(MESSAGES, Sampling(max_tokens=4), 7)).text)["seed"] == 7
        await asyncio.to_thread(wait_for, (folder / "aborted").exists)


@pytest.mark.slow
async def test_a_lost_replica_is_replaced_and_its_requests_sent_again(vllm_url: str, folder: Path) -> None:
    async with engine_at(vllm_url) as engine:
        requests = [engine.generate(MESSAGES, Sampling(max_tokens=4), seed) for seed in (CRASH, 1, 2)]
        answers = await asyncio.gather(*requests)
    assert [json.loads(answer.text)["seed"] for answer in answers] == [CRASH, 1, 2]
    assert (folder / "crashed").exists()


def test_http_of_vllm_is_passed_on(vllm_url: str) -> None:
    with httpx.Client(timeout=60) as client:
        assert client.get(f"{vllm_url}/health").status_code == 200
        models = client.get(f"{vllm_url}/v1/models?limit=1").json()
        assert models["data"][0]["id"].startswith("m") and models["path"] == "/v1/models?limit=1"
        for body in (b"[", b"[]", b"null", b'{"chat_template_kwargs": 1}'):
            assert client.post(f"{vllm_url}/v1/chat/completions", content=body).status_code == 422
        assert client.put(f"{vllm_url}/v1/models").status_code == 405


@pytest.mark.parametrize(
    ("asked", "given"), [({"date": 1}, {"enable_thinking": False, "date": 1}), ({"enable_thinking": True},) * 2]
)
def test_template_settings_of_a_request_stand_beside_the_apps(vllm_url: str, asked: dict, given: dict) -> None:
    sampling = {"max_tokens": 4, "top_p": 1, "seed": 1}
    request = {"model": 'm {"enable_thinking": false}', "messages": MESSAGES, **sampling, "chat_template_kwargs": asked}
    answer = httpx.post(f"{vllm_url}/v1/chat/completions", json=request, timeout=60).json()
    assert json.loads(answer["choices"][0]["message"]["content"])["chat_template_kwargs"] == given


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/vllm_actor/v1", "{app}-absent/v1"])
async def test_no_app(vllm_url: str, address: str) -> None:
    flags = OpenWeightConfig(api_base=address.replace("{app}", vllm_url))
    with pytest.raises(SetupError, match="serve run vllm_engine_actor:app"):
        async with open_openai_engine(flags):
            pass
