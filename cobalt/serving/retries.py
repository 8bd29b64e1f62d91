"""Asking a service again, by ``tenacity``: growing pauses with jitter, never shorter than the server asks for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential_jitter,
)

from cobalt.errors import InfraError

Answer = TypeVar("Answer")


class TransientError(Exception):
    """A request that may succeed when sent again; ``wait_s``: the pause that the server asked for."""

    def __init__(self, message: str, wait_s: float = 0.0):
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class RetryConfig:
    """How often and after which pauses a request is sent again. The defaults last about two minutes."""

    attempts: int = 8
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0

    def wait_s(self, state: RetryCallState) -> float:
        """The pause after the attempts so far: doubling, with up to ``first_wait_s`` more at random."""
        growing = wait_exponential_jitter(self.first_wait_s, self.longest_wait_s, jitter=self.first_wait_s)
        error = state.outcome.exception() if state.outcome is not None else None
        return max(growing(state), error.wait_s if isinstance(error, TransientError) else 0.0)


async def with_retries(send: Callable[[], Awaitable[Answer]], config: RetryConfig) -> Answer:
    """``send()`` until it does not raise ``TransientError``; raises ``InfraError`` after the last attempt."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(TransientError), stop=stop_after_attempt(config.attempts), wait=config.wait_s
    )

    async def attempt() -> Answer:  # tenacity awaits coroutine functions only
        return await send()

    try:
        return await retrying(attempt)
    except RetryError as error:
        raise InfraError(f"{error.last_attempt.exception()} ({config.attempts} attempts)") from None
