"""The Ray Serve app ``vllm_actor``: vLLM engines in replicas, reachable by handle and by HTTP.

By handle: ``describe()``, and ``generate_many(requests)``, a stream of answers as they come. By HTTP: POST
``{"messages", "temperature", "top_p", "max_tokens", "seed"}`` gives ``{"text", "prompt_tokens", "completion_tokens",
"finish_reason"}``, a bad body 422, one that the engine gave up or died with 503; GET describes the app;
``http_guard.py`` says who may ask, and how. Requests whose caller goes away are aborted in the engine.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic import ConfigDict, ValidationError
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from cobalt.serving.app_settings import HEALTH, HttpConfig
from cobalt.serving.http_guard import (
    UNAVAILABLE,
    UNPROCESSABLE,
    HttpGuard,
    Refusal,
    guard_of,
    json_response,
)
from cobalt.serving.vllm_engine import ChatRequest, VllmEngine

MAX_ONGOING_REQUESTS = 8192
"""Of a replica; its engine queues what it cannot run. Clients bound what they send by ``describe()``."""

ENGINE_HEALTH: dict[str, Any] = {**HEALTH, "health_check_period_s": 3}
"""A dead engine fails every request until Serve has found it dead three times."""

IN_FLIGHT_PER_SLOT = 1.25
"""Requests that clients are told to keep in flight, by those that the engines run at a time: some are on their way."""

BUNCH_S = 0.02
"""Answers that come within it travel together: a message of Serve costs about a millisecond at both its ends."""

START = "serve run vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor model=Qwen/Qwen3-8B"

Answer = tuple[int, dict[str, Any]]
"""A request's place in its call, and its completion."""


class VllmConfig(HttpConfig):
    """Arguments of the app. Any other ``name=value`` is an option of vLLM's ``AsyncEngineArgs``."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    model: str | None = None
    """Directory or hub name; it must be given."""
    num_replicas: int = 1
    """Engines; each serves requests of its own."""
    tensor_parallel_size: int = 1
    """GPUs of one engine."""
    num_gpus: float | None = None
    """GPUs that a replica reserves in Ray; default: ``tensor_parallel_size``."""
    chat_template_kwargs: str = "{}"
    """JSON, given to the chat template: ``{"enable_thinking": false}`` turns Qwen3's thinking off."""

    def engine_options(self) -> dict[str, Any]:
        """What ``AsyncEngineArgs`` gets; values that read as JSON (numbers, true, objects) are read."""
        extra = {name: _json_or_text(value) for name, value in (self.model_extra or {}).items()}
        return {"model": self.model, "tensor_parallel_size": self.tensor_parallel_size, **extra}


def _json_or_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


class VllmActor:
    """One replica: an engine."""

    async def __init__(
        self, options: dict[str, Any], chat_template_kwargs: dict[str, Any], num_replicas: int, guard: HttpGuard
    ):
        self._engine = VllmEngine(options, chat_template_kwargs)
        self._num_replicas = num_replicas
        self._guard = guard

    async def describe(self) -> dict[str, Any]:
        """``model_id``, ``max_in_flight`` of the whole app, vLLM's version, context length in tokens."""
        own = self._engine.describe()
        in_flight = int(IN_FLIGHT_PER_SLOT * own["max_num_seqs"]) * self._num_replicas
        return {**own, "max_in_flight": in_flight, "num_replicas": self._num_replicas}

    async def generate_many(self, requests: Sequence[dict[str, Any]]) -> AsyncIterator[list[Answer]]:
        """Answer chat requests (fields of ``ChatRequest``): the answers of those that ended, again and again.

        A request that failed has ``{"error": text}`` instead. Closing the stream aborts what still runs.
        """
        chats = [ChatRequest(**request) for request in requests]  # all valid before the first one runs
        running = {asyncio.ensure_future(self._engine.generate(chat)): place for place, chat in enumerate(chats)}
        try:
            while running:
                ended, others = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if others:
                    await asyncio.sleep(BUNCH_S)
                    ended = {task for task in running if task.done()}
                yield [(running.pop(task), _outcome(task)) for task in ended]
        finally:
            for task in running:
                task.cancel()

    async def __call__(self, request: Request) -> Response:
        """HTTP."""
        try:
            self._guard.admit(request)
            if request.method == "GET":
                return json_response(await self.describe())
            chat = ChatRequest.model_validate_json(await self._guard.body(request))
        except Refusal as refusal:
            return refusal.response
        except ValidationError as error:
            return json_response({"detail": str(error)}, UNPROCESSABLE)
        try:
            return json_response(await self._engine.generate(chat))
        except Exception as error:  # whatever it is: the engine gave the request up, or is dead
            return json_response({"detail": _told(error)}, UNAVAILABLE)

    async def check_health(self) -> None:
        """Called by Serve; an exception has the replica replaced."""
        self._engine.check_health()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)  # absent if the model could not be loaded
        if engine is not None:
            engine.close()


def _outcome(ended: "asyncio.Task[dict[str, Any]]") -> dict[str, Any]:
    error = ended.exception()
    return ended.result() if error is None else {"error": _told(error)}


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


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
    template = json.loads(args.chat_template_kwargs)
    return deployment.bind(args.engine_options(), template, args.num_replicas, guard_of(args))
