"""The HTTP server of ``cobalt sandbox serve``: uvicorn, for many callers at once and for silent ones.

uvicorn by itself answers 503 above a number of connections, and waits for ever for a request's first bytes. Here
connections that are too many wait in the kernel's queue, and those that send no headers in time are closed.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_CONNECTIONS = 4096
_SPARE_FILES = 128  # for what opens files beside connections: workers that start, imports
_FEWEST_CONNECTIONS = 16
_PAUSE_S = 0.1  # after an error of accept, which would be the same at once


def raise_open_files() -> int:
    """Raise the soft limit of open files as far as connections need it; how many connections it leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) + _SPARE_FILES
    wanted = MAX_CONNECTIONS + used
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else soft - used
    return max(min(room, MAX_CONNECTIONS), _FEWEST_CONNECTIONS)


class _Connection(AutoHTTPProtocol):
    """A connection. It is closed if a request's headers have not come ``patience_s`` after it, or they, began."""

    cycle: Any  # of uvicorn: the request that is being answered
    transport: asyncio.Transport

    def __init__(self, patience_s: float, on_end: Callable[[], None], **settings: Any):
        super().__init__(**settings)
        self._patience_s, self._on_end = patience_s, on_end
        self._giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._giving_up is None and self._is_idle:
            self._expect_headers()
        super().data_received(data)
        if not self._is_idle:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)
        self._on_end()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_headers(self) -> None:
        self._giving_up = asyncio.get_running_loop().call_later(self._patience_s, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


class _Server(uvicorn.Server):
    """uvicorn's, with ``_Connection``s. Once a signal ends it, it takes no more of them and waits for those it has."""

    def __init__(self, app: ASGIApp, listening: socket.socket, patience_s: float, on_start: Callable[[], None]):
        super().__init__(uvicorn.Config(app, lifespan="off", ws="none", access_log=False, log_level="error"))
        self._listening, self._patience_s, self._on_start = listening, patience_s, on_start

    async def main_loop(self) -> None:
        self._on_start()
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(self._accept())
            await super().main_loop()
            accepting.cancel()
        self._listening.close()  # who comes now is refused

    async def _accept(self) -> None:
        slots, loop = asyncio.Semaphore(raise_open_files()), asyncio.get_running_loop()
        shared: dict[str, Any] = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        while True:
            await slots.acquire()
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError:
                slots.release()
                await asyncio.sleep(_PAUSE_S)
                continue
            await loop.connect_accepted_socket(
                lambda: _Connection(self._patience_s, slots.release, **shared), connection
            )


async def serve_http(app: ASGIApp, listening: socket.socket, patience_s: float, on_start: Callable[[], None]) -> None:
    """Serve until a signal ends it. ``patience_s``: seconds for a request's headers. ``on_start``: once it serves."""
    listening.setblocking(False)
    await _Server(app, listening, patience_s, on_start).serve(sockets=[])
