"""The engine behind the Ray Serve app ``vllm_actor`` (``serve run vllm_engine_actor:app``), by handle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from cobalt.completion import Completion, Message, Sampling
from cobalt.errors import InputError
from cobalt.inference.engine import Engine
from cobalt.records.identity import model_identity
from cobalt.serving.handles import app_handle
from cobalt.serving.retries import FirstFailure, RetryConfig, TransientError, with_retries
from cobalt.serving.shared_calls import SharedCalls, Submission

APP_NAME = "vllm_actor"
START_HINT = (
    "start it with: serve run vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor model=MODEL, "
    "or pass --engine hf --model MODEL"
)

BUNCH_S = 0.02
"""Requests of this long share calls, ..."""

REQUESTS_PER_CALL = 64
"""... at most so many, for a call stays with one replica: Serve gives the next one to a replica with fewer calls."""


class VllmServeEngine:
    """Client of the app. Requests that are submitted together share calls; those lost with a replica are sent again."""

    def __init__(self, handle: Any, model_id: str, max_in_flight: int):
        self._handle, self.model_id, self.max_in_flight = handle, model_id, max_in_flight
        self._failed = FirstFailure()
        self._calls: SharedCalls[dict[str, Any], Completion] = SharedCalls(self._call, REQUESTS_PER_CALL, BUNCH_S)

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``; raises ``InfraError`` if the app stays unreachable."""
        request = {"messages": messages, **asdict(sampling), "seed": seed}
        return await with_retries(lambda: self._calls.submit(request), RetryConfig(), self._failed)

    async def _call(self, submissions: list[Submission[dict[str, Any], Completion]]) -> None:
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
