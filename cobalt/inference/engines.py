"""What the driver needs from a language model, and which one the flags mean."""

import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import fields
from typing import Any, Protocol

from cobalt.completion import Completion, Message, Sampling
from cobalt.errors import CobaltError, InputError, raised
from cobalt.inference.endpoints import open_litellm_engine, open_openai_engine
from cobalt.inference.flags import InferenceConfig, LitellmConfig, OpenWeightConfig, SolveConfig
from cobalt.sampler.packages import refuse_missing_packages
from cobalt.sandbox.own_files import OwnFile, is_own

FLAGS_OF = {"vllm": ("api_base", "request_timeout_s"), "hf": ("batch_size", "fp32")}
"""Flags of ``OpenWeightConfig`` that one engine alone reads."""


class Engine(Protocol):
    """A language model. Each call of ``generate`` answers one chat request; many calls run at once.

    The engine itself does the batching and the retries.
    """

    model_id: str
    """The model as the engine itself reports it; part of what a resumed run compares."""

    @property
    def max_in_flight(self) -> int:
        """How many requests keep it busy. It may change while the engine learns what it takes."""
        ...

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``. Raises ``InfraError`` once its own retries are used up."""
        ...


def open_engine(flags: InferenceConfig | SolveConfig) -> AbstractAsyncContextManager[Engine]:
    """The engine that the flags name. Raises ``InputError`` if they name none, ``SetupError`` without its packages."""
    if isinstance(flags, LitellmConfig):
        return open_litellm_engine(flags)
    usual = {field.name: field.default for field in fields(OpenWeightConfig)}
    for engine, names in FLAGS_OF.items():
        for name in names:
            if engine != flags.engine and getattr(flags, name) != usual[name]:
                raise InputError(f"--{name} needs --engine {engine}, not {flags.engine}")
    if flags.engine == "vllm":
        return open_openai_engine(flags)
    if is_own(flags.engine):
        return open_own_engine(flags.engine, flags.model, flags.max_in_flight)
    if flags.engine != "hf":
        raise InputError(f"--engine must be vllm, hf or FILE.py:NAME, not {flags.engine}")
    if flags.model is None:
        raise InputError("--engine hf needs --model")
    refuse_missing_packages()
    from cobalt.inference.huggingface import open_huggingface_engine  # brings torch

    return open_huggingface_engine(flags.model, flags.batch_size, flags.max_in_flight, flags.fp32)


@asynccontextmanager
async def open_own_engine(name: str, model: str | None, max_in_flight: int | None) -> AsyncIterator[Engine]:
    """The engine that the user's function or class makes of ``--model``; an asynchronous context manager is entered."""
    async with AsyncExitStack() as stack:
        with _naming(name):
            try:
                made = OwnFile.read(name).load()(model)
            except ValueError as error:  # a complaint about --model
                raise InputError(f"--engine {name}: {error}") from error
            engine = await stack.enter_async_context(made) if hasattr(made, "__aenter__") else made
        missing = [part for part in ("model_id", "max_in_flight", "generate") if not hasattr(engine, part)]
        if missing:
            raise InputError(f"--engine {name}: what it makes has no {', '.join(missing)}")
        if max_in_flight is not None:
            engine.max_in_flight = max_in_flight
        if not isinstance(engine.max_in_flight, int) or engine.max_in_flight < 1:
            raise InputError(f"--engine {name}: its max_in_flight is {engine.max_in_flight}, not a number above 0")
        yield OwnEngine(engine, name)


class OwnEngine:
    """The user's engine. An error in it ends the run with one line."""

    def __init__(self, engine: Any, name: str):
        self.model_id, self._engine, self._name = engine.model_id, engine, name

    @property
    def max_in_flight(self) -> int:
        return self._engine.max_in_flight

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        with _naming(self._name):
            answer = self._engine.generate(messages, sampling, seed)
            if not inspect.isawaitable(answer):
                raise InputError(f"--engine {self._name}: its generate must be async")
            completion = await answer
            if not isinstance(completion, Completion):
                given = type(completion).__name__
                raise InputError(f"--engine {self._name}: it gave no Completion, but a value of type {given}")
            return completion


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """An error of the user's code names the engine. ``SystemExit`` would end the run as if it were done."""
    try:
        yield
    except CobaltError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"--engine {name}: {raised(error)}") from error
