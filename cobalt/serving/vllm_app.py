"""The Ray Serve app ``vllm_actor``: vLLM's own OpenAI server in each replica, behind one address.

``/vllm_actor/v1/chat/completions`` and vLLM's other paths are passed on as they are. ``http_guard.py`` says who may
ask. A request whose caller goes away is dropped, and vLLM aborts it. Only flags that vLLM 0.8.5 and later share.
"""

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from typing import Any

import httpx
from pydantic import ConfigDict, Field, Json, model_validator
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from cobalt.records.identity import model_identity
from cobalt.serving.app_settings import HEALTH, IN_FLIGHT_HEADER, HttpConfig
from cobalt.serving.http_client import ManyRequests
from cobalt.serving.http_guard import UNAVAILABLE, UNPROCESSABLE, HttpGuard, Refusal, guard_of, json_response
from cobalt.serving.ports import free_port

MAX_ONGOING_REQUESTS = 8192
"""Requests at a replica; its engine queues what it cannot run."""
ENGINE_HEALTH: dict[str, Any] = {**HEALTH, "health_check_period_s": 3}
"""A dead engine fails every request until Serve has found it dead three times."""
IN_FLIGHT_PER_SLOT = 1.25
"""Requests that clients should keep in flight for each that the engines run: some are always on their way."""
START = "serve run vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor model=Qwen/Qwen3-8B"


OF_THE_APP = frozenset({"host", "port", "uds", "ssl_keyfile", "ssl_certfile", "api_key", "served_model_name"})
"""Options of ``vllm serve`` by which the app finds its servers, and its clients the model."""


class VllmConfig(HttpConfig):
    """Arguments of the app. Any other ``name=value`` is an option of ``vllm serve``: ``max_model_len=16384``."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    model: str | None = None
    """Directory or hub name; it must be given."""
    num_replicas: int = 1
    """Engines; each serves requests of its own."""
    tensor_parallel_size: int = 1
    """GPUs of one engine."""
    num_gpus: float | None = None
    """GPUs that a replica reserves in Ray; default: ``tensor_parallel_size``."""
    max_num_seqs: int = 256
    """Requests that one engine runs at a time."""
    start_timeout_s: float = Field(3600, gt=0)
    """Seconds that an engine may take to load its model, a download included."""
    chat_template_kwargs: Json[dict[str, Any]] = Field({})
    """JSON, given to the chat template: ``{"enable_thinking": false}`` turns Qwen3's thinking off."""

    @model_validator(mode="after")
    def _leaves_the_apps_own_options(self) -> "VllmConfig":
        for name in self.model_extra or {}:
            if name.replace("-", "_") in OF_THE_APP:
                raise ValueError(f"{name} is set by the app: leave it out")
        return self

    def model_id(self) -> str:
        """The model's identity, with the template settings if there are any."""
        settings = self.chat_template_kwargs
        identity = model_identity(self.model or "", (self.model_extra or {}).get("revision"))
        return f"{identity} {json.dumps(settings, sort_keys=True)}" if settings else identity

    def server_flags(self, port: int) -> list[str]:
        """Flags of vLLM's server. ``true`` and ``false`` become ``--name`` and ``--no-name``."""
        options = {
            "model": self.model,
            "served_model_name": self.model_id(),
            "host": "127.0.0.1",
            "port": port,
            "tensor_parallel_size": self.tensor_parallel_size,
            "max_num_seqs": self.max_num_seqs,
            "generation_config": "vllm",  # else the model's own file adds settings such as top_k
            "uvicorn_log_level": "warning",
            **(self.model_extra or {}),
        }
        flags = []
        for name, value in options.items():
            flag, text = name.replace("_", "-"), value if isinstance(value, str) else json.dumps(value)
            switch = {"true": [f"--{flag}"], "false": [f"--no-{flag}"]}
            flags += switch.get(text.lower(), [f"--{flag}", text])
        return flags


class VllmActor:
    """One replica: a server of vLLM's, and what passes requests on to it."""

    async def __init__(self, args: VllmConfig, guard: HttpGuard):
        self._guard, self._template = guard, args.chat_template_kwargs
        in_flight = int(IN_FLIGHT_PER_SLOT * args.max_num_seqs) * args.num_replicas
        self._headers = {IN_FLIGHT_HEADER: str(in_flight)}
        port = free_port()
        key = secrets.token_hex()  # other users of this machine have to come through the guard
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *args.server_flags(port)]
        self._server = subprocess.Popen(command, env={**os.environ, "VLLM_API_KEY": key}, start_new_session=True)
        # Ray kills replicas without warning, and the server would go on with its GPU memory. This shell reads a pipe
        # that ends with this process, and then kills all of the server's processes.
        wait_and_kill = ["sh", "-c", 'read -r _; kill -9 "-$1"', "sh", str(self._server.pid)]
        self._warden = subprocess.Popen(wait_and_kill, stdin=subprocess.PIPE, start_new_session=True)
        self._client = ManyRequests(
            base_url=f"http://127.0.0.1:{port}",
            headers={"authorization": f"Bearer {key}"},
            timeout=None,
            trust_env=False,  # the key must not reach a proxy
        )
        deadline_s = time.monotonic() + args.start_timeout_s
        while not await self._answers():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"vLLM's server does not answer after start_timeout_s={args.start_timeout_s:g}")
            await asyncio.sleep(0.5)

    async def _answers(self) -> bool:
        """Whether the server does; ``RuntimeError`` once it has ended."""
        if self._server.poll() is not None:
            raise RuntimeError(f"vLLM's server has ended (exit code {self._server.returncode}); its log says why")
        try:
            return (await self._client.get("/health")).is_success
        except httpx.HTTPError:
            return False

    async def __call__(self, request: Request) -> Response:
        try:
            self._guard.admit(request)
            body = await self._guard.body(request)
            if self._template and body:
                asked = {"chat_template_kwargs": None, **json.loads(body)}
                asked["chat_template_kwargs"] = {**self._template, **(asked["chat_template_kwargs"] or {})}
                body = json.dumps(asked).encode()
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            path += f"?{request.url.query}" if request.url.query else ""
            answer = await self._client.request(request.method, path, content=body, headers=_content_type(request))
        except Refusal as refusal:
            return refusal.response
        except (ValueError, TypeError) as error:
            return json_response({"detail": f"the body is not a JSON object: {error}"}, UNPROCESSABLE)
        except httpx.HTTPError as error:
            return json_response({"detail": f"vLLM's server does not answer: {type(error).__name__}"}, UNAVAILABLE)
        return Response(answer.content, answer.status_code, {**self._headers, **_content_type(answer)})

    async def check_health(self) -> None:
        """Called by Serve; an exception has the replica replaced."""
        if not await self._answers():
            raise RuntimeError("vLLM's server does not answer: its engine has died")

    def __del__(self) -> None:
        if hasattr(self, "_warden"):  # absent if the server could not be started
            self._warden.communicate()  # ends its pipe


def _content_type(message: Request | httpx.Response) -> dict[str, str]:
    return {"content-type": message.headers.get("content-type", "application/json")}


def build_app(args: VllmConfig) -> serve.Application:
    """The app, from ``serve run vllm_engine_actor:app model=Qwen/Qwen3-8B num_replicas=2 max_model_len=16384``."""
    if args.model is None:
        raise SystemExit(f"vllm_engine_actor: error: model= is missing; {START}")
    deployment = serve.deployment(
        VllmActor,
        name="VllmActor",
        num_replicas=args.num_replicas,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        **ENGINE_HEALTH,
        ray_actor_options={"num_gpus": args.tensor_parallel_size if args.num_gpus is None else args.num_gpus},
    )
    return deployment.bind(args, guard_of(args))  # pyright: ignore[reportFunctionMemberAccess] - Ray's decorator
