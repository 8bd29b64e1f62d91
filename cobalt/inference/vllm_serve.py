"""The engine behind the Ray Serve app ``vllm_actor`` (``serve run vllm_engine_actor:app``), by handle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
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


class VllmServeEngine:
    """Client of the app. Requests in flight at a replica that dies are sent again."""

    def __init__(self, handle: Any, model_id: str, max_in_flight: int):
        self._handle, self.model_id, self.max_in_flight = handle, model_id, max_in_flight

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``; raises ``InfraError`` if the app stays unreachable."""
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        request = {"messages": messages, **asdict(sampling), "seed": seed}

        async def send() -> Completion:
            response = self._handle.generate.remote(request)
            try:
                return Completion(**await response)
            except asyncio.CancelledError:
                response.cancel()  # Serve does not do it by itself
                raise
            except (RayError, RayServeException, ConnectionError) as error:
                last_line = f"{type(error).__name__}: {error}".strip().splitlines()[-1]
                raise TransientError(f"vLLM app: {last_line}") from None

        return await with_retries(send, RetryPolicy())


@asynccontextmanager
async def open_vllm_engine(max_in_flight: int | None, model: str | None = None) -> AsyncIterator[Engine]:
    """Connect to the running app; ``SetupError`` if there is none, ``InputError`` if it serves not ``model``."""
    handle = await asyncio.to_thread(app_handle, APP_NAME, "vLLM app", START_HINT)
    about = await handle.describe.remote()
    if model is not None and not is_model(about["model_id"], model_identity(model)):
        raise InputError(f"--model {model}, but the vLLM app serves {about['model_id']}")
    yield VllmServeEngine(handle, about["model_id"], max_in_flight or about["max_in_flight"])


def is_model(served: str, wanted: str) -> bool:
    """Whether ``served`` names the model ``wanted``; a revision or template settings may follow."""
    return f"{served} ".startswith((f"{wanted} ", f"{wanted}@"))
