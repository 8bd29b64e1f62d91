"""The engine behind the Ray Serve app ``vllm_actor`` (``serve run vllm_engine_actor:app``), by handle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from cobalt.errors import InputError
from cobalt.inference.engine import Completion, Engine, Message, Sampling
from cobalt.inference.retry import RetryPolicy, TransientError, with_retries
from cobalt.model_identity import model_identity
from cobalt.serving.handles import app_handle

APP_NAME = "vllm_actor"
START_HINT = (
    "start it with: serve run vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor model=MODEL, "
    "or pass --engine hf --model MODEL"
)

BUNCH_S = 0.02
"""Requests of this long share calls, ..."""

REQUESTS_PER_CALL = 64
"""... at most so many, for a call stays with one replica: Serve gives the next one to a replica with fewer calls."""


@dataclass(frozen=True)
class _Submission:
    request: dict[str, Any]
    answer: "asyncio.Future[Completion]"


class VllmServeEngine:
    """Client of the app. Requests that are submitted together share calls; those lost with a replica are sent again."""

    def __init__(self, handle: Any, model_id: str, max_in_flight: int):
        self._handle, self.model_id, self.max_in_flight = handle, model_id, max_in_flight
        self._submitted: list[_Submission] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``; raises ``InfraError`` if the app stays unreachable."""
        request = {"messages": messages, **asdict(sampling), "seed": seed}
        return await with_retries(lambda: self._submit(request), RetryPolicy())

    def _submit(self, request: dict[str, Any]) -> "asyncio.Future[Completion]":
        loop = asyncio.get_running_loop()
        if not self._submitted:
            loop.call_later(BUNCH_S, self._send)
        self._submitted.append(_Submission(request, loop.create_future()))
        return self._submitted[-1].answer

    def _send(self) -> None:
        submitted, self._submitted = self._submitted, []
        for start in range(0, len(submitted), REQUESTS_PER_CALL):
            call = asyncio.ensure_future(self._call(submitted[start : start + REQUESTS_PER_CALL]))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, submissions: list[_Submission]) -> None:
        """Send requests and hand out the answers as they come, until nobody waits for one."""
        answers = [submission.answer for submission in submissions]
        failure = TransientError("vLLM app: it ended a call without an answer")
        try:
            stream = self._handle.options(stream=True).generate_many.remote([s.request for s in submissions])

            def stop_if_nobody_waits(answer: "asyncio.Future[Completion]") -> None:
                if answer.cancelled() and all(other.done() for other in answers):
                    stream.cancel()

            for answer in answers:
                answer.add_done_callback(stop_if_nobody_waits)
            async for bunch in stream:
                for place, outcome in bunch:
                    _settle(answers[place], outcome)
        except Exception as error:  # whatever it is, callers wait for an answer
            failure = TransientError(f"vLLM app: {_last_line(error)}")
        for answer in answers:
            if not answer.done():
                answer.set_exception(failure)


@asynccontextmanager
async def open_vllm_engine(max_in_flight: int | None, model: str | None = None) -> AsyncIterator[Engine]:
    """Connect to the running app; ``SetupError`` if there is none, ``InputError`` if it serves not ``model``."""
    handle = await asyncio.to_thread(app_handle, APP_NAME, "vLLM app", START_HINT)
    about = await handle.describe.remote()
    if model is not None and not is_model(about["model_id"], model_identity(model)):
        raise InputError(f"--model {model}, but the vLLM app serves {about['model_id']}")
    yield VllmServeEngine(handle, about["model_id"], max_in_flight or about["max_in_flight"])


def _settle(answer: "asyncio.Future[Completion]", outcome: dict[str, Any]) -> None:
    if answer.done():  # its caller has gone
        return
    if "error" in outcome:
        answer.set_exception(TransientError(f"vLLM app: {outcome['error']}"))
    else:
        answer.set_result(Completion(**outcome))


def _last_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[-1]


def is_model(served: str, wanted: str) -> bool:
    """Whether ``served`` names the model ``wanted``; a revision or template settings may follow."""
    return f"{served} ".startswith((f"{wanted} ", f"{wanted}@"))
