"""A replica of the vLLM app, without Ray, with a stand-in for vLLM: its flags, its health, its end."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from waiting import wait_for

from cobalt.inference.endpoints import is_model
from cobalt.records.identity import model_identity
from cobalt.serving.http_guard import HttpGuard
from cobalt.serving.vllm_app import VllmActor, VllmConfig, build_app

FAKE_VLLM = Path(__file__).with_name("fake_vllm")
ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("port", 8000, "port is set by the app"),
        ("served-model-name", "m", "served-model-name is set by the app"),
        ("chat_template_kwargs", "{enable_thinking: false}", "Invalid JSON"),  # a shell took the quotes
        ("chat_template_kwargs", "[1]", "valid dictionary"),
    ],
)
def test_arguments_that_the_app_cannot_use_are_refused(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        VllmConfig.model_validate({"model": "m", name: value})


async def test_an_unknown_option_is_refused_and_a_dead_engine_is_unhealthy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine and its key stay away from a proxy."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(RuntimeError, match=r"has ended \(exit code 2\)"):
        await start(no_such_option=1)
    replica = await start(start_timeout_s=120)
    await replica.check_health()
    (folder / "dead").touch()
    with pytest.raises(RuntimeError, match="does not answer"):
        await replica.check_health()
    replica._server.kill()
    replica._server.wait()
    with pytest.raises(RuntimeError, match="has ended"):
        await replica.check_health()


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


def test_a_revision_or_template_settings_may_follow_the_name() -> None:
    served = ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B@main", 'Qwen/Qwen3-8B {"enable_thinking": false}', "Qwen/Qwen3-8B-Base"]
    assert [is_model(name, "Qwen/Qwen3-8B") for name in served] == [True, True, True, False]


def test_a_folder_is_named_with_its_fingerprint_or_without(tmp_path: Path) -> None:
    model = str(tmp_path)
    served = [model, model_identity(model), f"{model}@another", f"{model}-base"]
    assert [is_model(name, model) for name in served] == [True, True, False, False]
