"""A bounded number of requests in flight, the most urgent first."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class PrioritySlots:
    """At most ``limit()`` holders at a time; a free slot goes to the waiter with the smallest priority."""

    def __init__(self, limit: Callable[[], int]):
        self._limit = limit
        self._order = itertools.count()
        self._queue: list[tuple[tuple[int, ...], int, asyncio.Future[None]]] = []
        self.active = 0

    @property
    def waiting(self) -> int:
        """How many ask for a slot."""
        return len(self._queue)

    @asynccontextmanager
    async def hold(self, priority: tuple[int, ...]) -> AsyncIterator[None]:
        """Wait for a slot and keep it for the body."""
        await self._acquire(priority)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, priority: tuple[int, ...]) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (priority, next(self._order), ready))
        self._hand_out()
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        self.active -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and self.active < self._limit():
            *_, ready = heapq.heappop(self._queue)
            if not ready.cancelled():
                self.active += 1
                ready.set_result(None)
