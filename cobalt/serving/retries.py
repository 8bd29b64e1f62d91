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

from cobalt.cli.console import say
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


class FirstFailure:
    """Says what failed first, at once: retries may take minutes. Later failures are silent."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, error: object) -> None:
        if not self._said:
            say(f"a request failed, more may without a word: {error}")
        self._said = True


async def with_retries(
    send: Callable[[], Awaitable[Answer]], config: RetryConfig, failed: Callable[[Exception], None] | None = None
) -> Answer:
    """``send()`` until it does not raise ``TransientError``; raises ``InfraError`` after the last attempt.

    ``failed`` is told of each failure.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(TransientError), stop=stop_after_attempt(config.attempts), wait=config.wait_s
    )

    async def attempt() -> Answer:  # tenacity awaits coroutine functions only
        try:
            return await send()
        except (TransientError, InfraError) as error:
            if failed is not None:
                failed(error)
            raise

    try:
        return await retrying(attempt)
    except RetryError as error:
        raise InfraError(f"{error.last_attempt.exception()} ({config.attempts} attempts)") from None
