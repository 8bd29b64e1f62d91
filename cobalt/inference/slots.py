"""A bounded number of requests in flight, the most urgent first."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class PrioritySlots:
    """At most ``limit()`` holders at a time; a free slot goes to the waiter with the smallest priority.

    ``limit`` is asked at every hand-over, because an engine's limit may change. Holders above a lowered limit finish.
    """

    def __init__(self, limit: Callable[[], int]):
        self._limit = limit
        self._order = itertools.count()  # equal priorities: first come, first served; futures have no order
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
            # A slot may have been handed over, and its waiter cancelled before it ran again. Then nobody else gives the
            # slot back. A waiter without a slot stays in the queue: ``_hand_out`` passes over it.
            if ready.done() and not ready.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        self.active -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        """Give the free slots away. They are counted here, not when the waiter runs: later calls must not see them."""
        while self._queue and self.active < self._limit():
            *_, ready = heapq.heappop(self._queue)
            if not ready.cancelled():
                self.active += 1
                ready.set_result(None)
