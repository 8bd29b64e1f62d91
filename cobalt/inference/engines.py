"""What the driver needs from a language model, and which one the flags mean."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

from cobalt.completion import Completion, Message, Sampling
from cobalt.errors import InputError
from cobalt.inference.endpoints import open_litellm_engine, open_openai_engine
from cobalt.inference.flags import InferenceConfig, LitellmConfig, SolveConfig
from cobalt.sampler.packages import refuse_missing_packages
from cobalt.sandbox.own_files import is_own, load_own


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
    if flags.fp32 and flags.engine != "hf":
        raise InputError(f"--fp32 needs --engine hf, not {flags.engine}")
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
    try:
        made = load_own(name)(model)
    except ValueError as error:
        raise InputError(f"--engine {name}: {error}") from error
    async with made if hasattr(made, "__aenter__") else nullcontext(made) as engine:
        missing = [part for part in ("model_id", "max_in_flight", "generate") if not hasattr(engine, part)]
        if missing:
            raise InputError(f"--engine {name}: what it makes has no {', '.join(missing)}")
        if max_in_flight is not None:
            engine.max_in_flight = max_in_flight
        if engine.max_in_flight < 1:
            raise InputError(f"--engine {name}: its max_in_flight is {engine.max_in_flight}, not a number above 0")
        yield engine
