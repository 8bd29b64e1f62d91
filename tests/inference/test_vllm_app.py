"""The Ray Serve app over vLLM's server, with a stand-in for vLLM: requests, limits, aborts, lost replicas."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from own_serve import own_serve
from waiting import wait_for

from cobalt.completion import FINISH_CONTEXT, Sampling
from cobalt.errors import InfraError, InputError, SetupError
from cobalt.inference.endpoints import is_model, open_openai_engine
from cobalt.inference.flags import OpenWeightConfig
from cobalt.records.identity import model_identity
from cobalt.serving.http_guard import HttpGuard
from cobalt.serving.vllm_app import VllmActor, VllmConfig, build_app

FAKE_VLLM = Path(__file__).with_name("fake_vllm")
ROOT = Path(__file__).parents[2]
MESSAGES = [{"role": "user", "content": "é"}]
SLOW, CRASH, GIVE_UP = 666, 667, 668
APP = {"model": "m", "max_num_seqs": "8", "num_replicas": 1, "num_gpus": 0}


def search_path() -> str:
    return os.pathsep.join([str(FAKE_VLLM), str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in leaves traces. It is importable in processes that the test starts."""
    monkeypatch.setenv("PYTHONPATH", search_path())
    monkeypatch.setenv("FAKE_VLLM_DIR", str(tmp_path))
    return tmp_path


async def start(**args: Any) -> VllmActor:
    replica = VllmActor.__new__(VllmActor)
    await replica.__init__(VllmConfig.model_validate({"model": "m", **args}), HttpGuard(None, 1, 1))
    return replica


def test_arguments_become_flags_of_vllms_server() -> None:
    with pytest.raises(SystemExit, match="model= is missing; serve run vllm_engine_actor:app"):
        build_app(VllmConfig.model_validate({}))
    given = {"model": "m", "num_replicas": "2", "max_num_seqs": "512", "enforce_eager": "true", "revision": "main"}
    flags = VllmConfig.model_validate({**given, "enable_chunked_prefill": False, "rope": {"a": 1}}).server_flags(5)
    assert " ".join(flags) == (
        "--model m --served-model-name m@main --host 127.0.0.1 --port 5 --tensor-parallel-size 1 --max-num-seqs 512 "
        "--generation-config vllm --uvicorn-log-level warning --enforce-eager --revision main "
        '--no-enable-chunked-prefill --rope {"a": 1}'
    )


async def test_an_unknown_option_is_refused_and_a_dead_engine_is_unhealthy(folder: Path) -> None:
    with pytest.raises(RuntimeError, match=r"has ended \(exit code 2\)"):
        await start(no_such_option=1)
    replica = await start()
    await replica.check_health()
    (folder / "dead").touch()
    with pytest.raises(RuntimeError, match="does not answer"):
        await replica.check_health()
    replica._server.kill()
    replica._server.wait()
    with pytest.raises(RuntimeError, match="has ended"):
        await replica.check_health()


async def test_the_engine_and_its_key_stay_away_from_a_proxy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    replica = await start(start_timeout_s=120)
    await replica.check_health()
    replica._server.kill()


async def test_waiting_for_an_engine_has_an_end(folder: Path) -> None:
    (folder / "dead").touch()
    with pytest.raises(RuntimeError, match=r"does not answer after start_timeout_s=0\.01"):
        await start(start_timeout_s=0.01)


def test_the_server_ends_with_its_replica(folder: Path) -> None:
    code = """
import asyncio, time
from cobalt.serving.http_guard import HttpGuard
from cobalt.serving.vllm_app import VllmActor, VllmConfig
replica = VllmActor.__new__(VllmActor)
asyncio.run(replica.__init__(VllmConfig(model="m"), HttpGuard(None, 1, 1)))
print("up", flush=True)
time.sleep(600)
"""
    replica = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert replica.stdout is not None and replica.stdout.readline() == "up\n"
    server = Path("/proc", (folder / "pid").read_text(), "cmdline")
    assert "api_server" in server.read_text()
    replica.kill()
    replica.wait()
    wait_for(lambda: not server.exists() or not server.read_text())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and scratch folder of the app on a Ray of its own."""
    from ray import serve

    folder = tmp_path_factory.mktemp("fake")
    variables = {"FAKE_VLLM_DIR": str(folder), "PYTHONPATH": search_path()}
    with own_serve(num_cpus=2, runtime_env={"env_vars": variables}) as url:
        args = VllmConfig.model_validate({**APP, "chat_template_kwargs": '{"enable_thinking": false}'})
        serve.run(build_app(args), name="vllm_actor", route_prefix="/vllm_actor")
        yield f"{url}/vllm_actor", folder


def engine_at(served: tuple[str, Path], **flags: Any) -> Any:
    return open_openai_engine(OpenWeightConfig(api_base=f"{served[0]}/v1", **flags))


async def test_requests_and_answers(served: tuple[str, Path]) -> None:
    async with engine_at(served) as engine:
        assert engine.max_in_flight == 10  # a quarter more than it runs at a time
        assert engine.model_id == 'm {"enable_thinking": false}'
        answers = await asyncio.gather(*(engine.generate(MESSAGES, Sampling(0.5, 0.9, 4), seed) for seed in range(20)))
    asked = [json.loads(answer.text) for answer in answers]
    assert [one["seed"] for one in asked] == list(range(20))
    expected = {"messages": MESSAGES, "temperature": 0.5, "top_p": 0.9, "max_tokens": 4}
    assert all(one.items() >= expected.items() for one in asked)
    assert asked[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert answers[0].usage() == {"prompt_tokens": 1, "completion_tokens": 7, "finish_reason": "stop", "cost": None}


async def test_a_response_ends_with_the_context(served: tuple[str, Path]) -> None:
    async with engine_at(served) as engine:
        for length, max_tokens in ((1, 63), (63, 1)):
            answer = await engine.generate([{"role": "user", "content": "é" * length}], Sampling(max_tokens=1000), 1)
            assert (json.loads(answer.text)["max_tokens"], answer.prompt_tokens) == (max_tokens, length)
        answer = await engine.generate([{"role": "user", "content": "é" * 100}], Sampling(), 1)
    assert (answer.text, answer.finish_reason, answer.prompt_tokens) == ("", FINISH_CONTEXT, 100)


async def test_what_is_no_answer_is_an_infra_error(served: tuple[str, Path]) -> None:
    async with engine_at(served) as engine:
        with pytest.raises(InfraError, match="finish reason abort"):
            await engine.generate(MESSAGES, Sampling(max_tokens=4), GIVE_UP)
        with pytest.raises(InfraError, match=r"BadRequestError.*too large"):
            await engine.generate(MESSAGES, Sampling(top_p=7.0, max_tokens=4), 1)


async def test_the_server_must_serve_the_model_asked_for(served: tuple[str, Path]) -> None:
    async with engine_at(served, model="m") as engine:
        assert engine.model_id.startswith("m")
    named = served[0].replace("://", "://me:word@")
    with pytest.raises(InputError, match=r"--model Qwen/Qwen3-8B, but the server at .* serves m") as refused:
        async with engine_at((named, served[1]), model="Qwen/Qwen3-8B"):
            pass
    assert "word" not in str(refused.value)


def test_the_query_of_an_address_is_passed_on(served: tuple[str, Path]) -> None:
    assert httpx.get(f"{served[0]}/v1/models?limit=1").json()["path"] == "/v1/models?limit=1"


def test_a_revision_or_template_settings_may_follow_the_name() -> None:
    served = ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B@main", 'Qwen/Qwen3-8B {"enable_thinking": false}', "Qwen/Qwen3-8B-Base"]
    assert [is_model(name, "Qwen/Qwen3-8B") for name in served] == [True, True, True, False]


def test_a_folder_is_named_with_its_fingerprint_or_without(tmp_path: Path) -> None:
    model = str(tmp_path)
    served = [model, model_identity(model), f"{model}@another", f"{model}-base"]
    assert [is_model(name, model) for name in served] == [True, True, False, False]


async def test_a_cancelled_request_is_aborted_and_leaves_the_others(served: tuple[str, Path]) -> None:
    async with engine_at(served) as engine:
        slow = asyncio.ensure_future(engine.generate(MESSAGES, Sampling(max_tokens=4), SLOW))
        await asyncio.to_thread(wait_for, (served[1] / "slow").exists)
        slow.cancel()
        assert json.loads((await engine.generate(MESSAGES, Sampling(max_tokens=4), 7)).text)["seed"] == 7
        await asyncio.to_thread(wait_for, (served[1] / "aborted").exists)


@pytest.mark.slow
async def test_a_lost_replica_is_replaced_and_its_requests_sent_again(served: tuple[str, Path]) -> None:
    async with engine_at(served) as engine:
        requests = [engine.generate(MESSAGES, Sampling(max_tokens=4), seed) for seed in (CRASH, 1, 2)]
        answers = await asyncio.gather(*requests)
    assert [json.loads(answer.text)["seed"] for answer in answers] == [CRASH, 1, 2]
    assert (served[1] / "crashed").exists()


async def test_http_of_vllm_is_passed_on(served: tuple[str, Path]) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{served[0]}/health")).status_code == 200
        assert (await client.get(f"{served[0]}/v1/models")).json()["data"][0]["id"].startswith("m")
        assert (await client.post(f"{served[0]}/v1/chat/completions", content=b"[")).status_code == 422
        assert (await client.put(f"{served[0]}/v1/models")).status_code == 405


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/vllm_actor/v1", "no-address", "{app}-absent/v1"])
async def test_no_app(served: tuple[str, Path], address: str) -> None:
    flags = OpenWeightConfig(api_base=address.replace("{app}", served[0]))
    with pytest.raises(SetupError, match="serve run vllm_engine_actor:app"):
        async with open_openai_engine(flags):
            pass
