"""The Ray Serve app over vLLM, with a stand-in for the vllm package: requests, limits, aborts, lost replicas."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from own_serve import own_serve
from tiny_model import save_tiny_model
from transformers import AutoTokenizer

from cobalt.completion import FINISH_CONTEXT, Sampling
from cobalt.errors import InputError, SetupError
from cobalt.inference.vllm_serve import APP_NAME, VllmServeEngine, is_model, open_vllm_engine
from cobalt.serving.http_guard import HttpGuard
from cobalt.serving.vllm_app import VllmActor, VllmConfig, build_app

FAKE_VLLM = Path(__file__).with_name("fake_vllm")
ROOT = Path(__file__).parents[2]
MESSAGES = [{"role": "user", "content": "é"}]
SLOW, CRASH, GIVE_UP = 666, 667, 668


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(FAKE_VLLM))
    monkeypatch.setenv("FAKE_VLLM_DIR", str(tmp_path))
    return tmp_path


async def generate(replica: VllmActor, request: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one request."""
    async for bunch in replica.generate_many([request]):
        return bunch[0][1]
    raise AssertionError("no answer")


async def actor(args: VllmConfig) -> VllmActor:
    replica = VllmActor.__new__(VllmActor)
    guard = HttpGuard(None, args.max_body_mb, args.body_timeout_s)
    await replica.__init__(args.engine_options(), json.loads(args.chat_template_kwargs), args.num_replicas, guard)
    return replica


def test_an_app_without_a_model_ends_with_one_line() -> None:
    with pytest.raises(SystemExit, match="model= is missing; serve run vllm_engine_actor:app"):
        build_app(VllmConfig.model_validate({}))


def test_arguments_are_read_as_values() -> None:
    args = VllmConfig.model_validate(
        {
            "model": "m",
            "num_replicas": "2",
            "gpu_memory_utilization": "0.8",
            "enforce_eager": "true",
            "dtype": "bfloat16",
        }
    )
    assert args.num_replicas == 2
    assert args.engine_options() == {
        "model": "m",
        "tensor_parallel_size": 1,
        "gpu_memory_utilization": 0.8,
        "enforce_eager": True,
        "dtype": "bfloat16",
    }


async def test_the_prompt_is_the_chat_template(model: str, fake_vllm: Path) -> None:
    replica = await actor(VllmConfig(model=model))
    answer = await generate(replica, {"messages": MESSAGES, "max_tokens": 1000, "seed": 5})
    prompt = AutoTokenizer.from_pretrained(model).apply_chat_template(MESSAGES, add_generation_prompt=True)
    assert json.loads(answer["text"]) == {"prompt": prompt, "max_tokens": 64 - len(prompt), "seed": 5}
    length = len(AutoTokenizer.from_pretrained(model)(answer["text"])["input_ids"]) + 1  # the stop token counts
    assert (answer["prompt_tokens"], answer["completion_tokens"]) == (len(prompt), length)
    assert answer["finish_reason"] == "stop"


async def test_template_settings_reach_prompt_and_model_id(model: str, fake_vllm: Path) -> None:
    plain = await actor(VllmConfig(model=model))
    off = await actor(
        VllmConfig(model=model, chat_template_kwargs='{"add_generation_prompt_": false, "enable_thinking": false}')
    )
    assert (await off.describe())["model_id"].startswith((await plain.describe())["model_id"])
    assert '"enable_thinking": false' in (await off.describe())["model_id"]


async def test_a_prompt_over_the_context_is_an_empty_answer(model: str, fake_vllm: Path) -> None:
    replica = await actor(VllmConfig(model=model))
    answer = await generate(replica, {"messages": [{"role": "user", "content": "é" * 100}]})
    assert (answer["text"], answer["finish_reason"]) == ("", FINISH_CONTEXT)


async def test_a_request_that_the_engine_gave_up_is_no_answer(model: str, fake_vllm: Path) -> None:
    replica = await actor(VllmConfig(model=model))
    assert "finish reason error" in (await generate(replica, {"messages": MESSAGES, "seed": GIVE_UP}))["error"]


async def test_answers_come_as_they_end(model: str, fake_vllm: Path) -> None:
    replica = await actor(VllmConfig(model=model))
    stream = replica.generate_many([{"messages": MESSAGES, "seed": seed} for seed in (SLOW, GIVE_UP, 1)])
    answers: dict[int, dict[str, Any]] = {}
    while len(answers) < 2:
        answers.update(await anext(stream))
    assert "error" in answers[1]
    assert json.loads(answers[2]["text"])["seed"] == 1
    await stream.aclose()
    await asyncio.sleep(0)
    assert (fake_vllm / "aborted").exists()


async def test_an_unknown_option_is_refused(model: str, fake_vllm: Path) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        await actor(VllmConfig.model_validate({"model": model, "no_such_option": 1}))


async def test_a_dead_engine_is_unhealthy(model: str, fake_vllm: Path) -> None:
    replica = await actor(VllmConfig(model=model))
    await replica.check_health()
    replica._engine._engine.errored = True
    with pytest.raises(RuntimeError, match="engine has died: engine dead"):
        await replica.check_health()


def test_an_engine_ends_with_its_process(model: str, fake_vllm: Path) -> None:
    start = f"""
import time
from cobalt.serving.vllm_engine import VllmEngine
engine = VllmEngine({{"model": {model!r}}}, {{}})
print("up", flush=True)
time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FAKE_VLLM), str(ROOT)])}
    pipe = subprocess.PIPE
    replica = subprocess.Popen([sys.executable, "-c", start], env=environment, stdout=pipe, text=True)
    assert replica.stdout is not None and replica.stdout.readline() == "up\n"
    engine = Path("/proc", (fake_vllm / "pid").read_text())
    assert (engine / "cmdline").read_text().startswith("sleep")
    replica.kill()
    replica.wait()
    deadline = time.monotonic() + 20
    while engine.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_cancelling_aborts_in_the_engine(model: str, fake_vllm: Path) -> None:
    replica = await actor(VllmConfig(model=model))
    request = asyncio.ensure_future(generate(replica, {"messages": MESSAGES, "seed": SLOW}))
    await asyncio.sleep(0.5)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.sleep(0)
    assert (fake_vllm / "aborted").exists()


@pytest.fixture(scope="module")
def served(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and scratch folder of the app on a Ray of its own."""
    from ray import serve

    folder = tmp_path_factory.mktemp("fake")
    variables = {
        "FAKE_VLLM_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(FAKE_VLLM), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
    }
    with own_serve(num_cpus=2, runtime_env={"env_vars": variables}) as url:
        args = VllmConfig.model_validate({"model": model, "num_gpus": 0, "max_num_seqs": "8"})
        serve.run(build_app(args), name=APP_NAME, route_prefix="/vllm_actor")
        yield f"{url}/vllm_actor", folder


async def test_client_by_handle(served: tuple[str, Path]) -> None:
    async with open_vllm_engine(None) as engine:
        assert engine.max_in_flight == 10  # a quarter more than it runs at a time
        assert engine.model_id.startswith("model")
        answers = await asyncio.gather(*(engine.generate(MESSAGES, Sampling(0.5, 0.9, 4), seed) for seed in range(20)))
    assert [json.loads(answer.text)["seed"] for answer in answers] == list(range(20))
    assert all(json.loads(answer.text)["max_tokens"] == 4 for answer in answers)


async def test_a_request_that_the_engine_gave_up_is_sent_again(served: tuple[str, Path]) -> None:
    async with open_vllm_engine(None) as engine:
        answer = await engine.generate(MESSAGES, Sampling(), GIVE_UP)
    assert (served[1] / "gave_up").exists()
    assert (json.loads(answer.text)["seed"], answer.finish_reason) == (GIVE_UP, "stop")


async def test_the_app_must_serve_the_model_asked_for(served: tuple[str, Path], model: str) -> None:
    async with open_vllm_engine(None, model) as engine:
        assert engine.model_id.startswith("model")
    with pytest.raises(InputError, match="--model Qwen/Qwen3-8B, but the vLLM app serves model"):
        async with open_vllm_engine(None, "Qwen/Qwen3-8B"):
            pass


@pytest.mark.parametrize(
    ("served_model", "same"),
    [
        ("Qwen/Qwen3-8B", True),
        ("Qwen/Qwen3-8B@main", True),
        ('Qwen/Qwen3-8B {"enable_thinking": false}', True),
        ("Qwen/Qwen3-8B-Base", False),
    ],
)
def test_a_revision_or_template_settings_may_follow_the_name(served_model: str, same: bool) -> None:
    assert is_model(served_model, "Qwen/Qwen3-8B") is same


async def test_a_cancelled_client_frees_the_engine(served: tuple[str, Path]) -> None:
    _, folder = served
    async with open_vllm_engine(None) as engine:
        request = asyncio.ensure_future(engine.generate(MESSAGES, Sampling(), SLOW))
        await asyncio.sleep(1)
        request.cancel()
        for _ in range(100):
            await asyncio.sleep(0.1)
            if (folder / "aborted").exists():
                return
    pytest.fail("the request was not aborted")


async def test_a_cancelled_request_leaves_the_others_of_its_call(served: tuple[str, Path]) -> None:
    async with open_vllm_engine(None) as engine:
        slow, other = (asyncio.ensure_future(engine.generate(MESSAGES, Sampling(), seed)) for seed in (SLOW, 7))
        await asyncio.sleep(0)
        slow.cancel()
        assert json.loads((await other).text)["seed"] == 7


async def test_an_answer_that_cannot_be_read_is_asked_for_again() -> None:
    good = {"text": "x", "prompt_tokens": 1, "completion_tokens": 1, "finish_reason": "stop"}
    outcomes = iter([{"surprise": 1}, good])

    class Handle:
        def options(self, stream: bool) -> "Handle":
            return self

        @property
        def generate_many(self) -> "Handle":
            return self

        async def remote(self, requests: list[dict[str, Any]]) -> AsyncIterator[list[tuple[int, dict[str, Any]]]]:
            yield [(0, next(outcomes))]

    answer = await VllmServeEngine(Handle(), "model", 1).generate(MESSAGES, Sampling(), 1)
    assert answer.text == "x"


@pytest.mark.slow
async def test_a_lost_replica_is_replaced_and_its_requests_sent_again(served: tuple[str, Path]) -> None:
    async with open_vllm_engine(None) as engine:
        requests = [engine.generate(MESSAGES, Sampling(), seed) for seed in (CRASH, 1, 2)]
        answers = await asyncio.gather(*requests)
    assert [json.loads(answer.text)["seed"] for answer in answers] == [CRASH, 1, 2]
    assert (served[1] / "crashed").exists()


async def test_http(served: tuple[str, Path]) -> None:
    address, _ = served
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(address)).json()["max_model_len"] == 64
        answer = await client.post(address, json={"messages": MESSAGES, "seed": 3, "max_tokens": 5})
        assert json.loads(answer.json()["text"])["seed"] == 3
        for bad in ({}, {"messages": MESSAGES, "max_tokens": 0}, {"messages": MESSAGES, "other": 1}):
            assert (await client.post(address, json=bad)).status_code == 422
        (served[1] / "gave_up").unlink(missing_ok=True)
        given_up = await client.post(address, json={"messages": MESSAGES, "seed": GIVE_UP})
        assert (given_up.status_code, "finish reason error" in given_up.json()["detail"]) == (503, True)


async def test_no_app(served: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cobalt.inference.vllm_serve.APP_NAME", "absent")
    with pytest.raises(SetupError, match="serve run vllm_engine_actor:app"):
        async with open_vllm_engine(None):
            pass
