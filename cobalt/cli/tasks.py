"""Many pieces of work: a bounded number of coroutines at a time, or lists of a bounded size."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


class Slots:
    """An asynchronous context manager: at most ``at_once()`` bodies run at a time. That number may change meanwhile."""

    def __init__(self, at_once: Callable[[], int]):
        self._at_once, self._taken, self._freed = at_once, 0, asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._freed:
            await self._freed.wait_for(lambda: self._taken < self._at_once())
            self._taken += 1

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1  # before the first await: a cancelled body gives its slot back, too
        async with self._freed:
            self._freed.notify(max(0, self._at_once() - self._taken))


async def for_each(
    items: Iterable[Item], work: Callable[[Item], Coroutine[Any, Any, None]], at_once: Callable[[], int]
) -> None:
    """Do ``work`` on every item, started in order, at most ``at_once()`` at a time. That number may change meanwhile.

    ``items`` is read lazily. The first exception cancels the rest and is raised.
    """
    running: set[asyncio.Task[None]] = set()

    async def wait_for_one() -> None:
        nonlocal running
        done, pending = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        running = pending  # not before: of several that failed together, all are looked at below

    try:
        for item in items:
            while len(running) >= at_once():
                await wait_for_one()
            running.add(asyncio.ensure_future(work(item)))
        while running:
            await wait_for_one()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of up to ``size`` items (``itertools.batched`` needs Python 3.12)."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
