"""Trying again: growing pauses with jitter, never shorter than the server asks for."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from cobalt.errors import InfraError

Answer = TypeVar("Answer")


class TransientError(Exception):
    """A request that may succeed when sent again; ``wait_s``: the pause that the server asked for."""

    def __init__(self, message: str, wait_s: float = 0.0):
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class RetryPolicy:
    """How often and after which pauses a request is sent again. The defaults last about two minutes."""

    attempts: int = 8
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0

    def wait_s(self, failed: int) -> float:
        """The pause after ``failed`` attempts: between half and all of a doubling bound."""
        bound = min(self.first_wait_s * 2 ** (failed - 1), self.longest_wait_s)
        return bound * random.uniform(0.5, 1)


async def with_retries(send: Callable[[], Awaitable[Answer]], policy: RetryPolicy) -> Answer:
    """``send()`` until it does not raise ``TransientError``; raises ``InfraError`` after the last attempt."""
    for failed in range(1, policy.attempts + 1):
        try:
            return await send()
        except TransientError as error:
            if failed == policy.attempts:
                raise InfraError(f"{error} ({failed} attempts)") from None
            await asyncio.sleep(max(policy.wait_s(failed), error.wait_s))
    raise AssertionError("a policy has at least one attempt")
