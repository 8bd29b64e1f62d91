"""The HTTP client of many requests at a time, against a server in the same event loop."""

import asyncio
import cProfile
from contextlib import asynccontextmanager

import pytest

from cobalt.serving.http_client import ManyRequests


class Server:
    """Answers once ``together`` requests have come, so that so many are in flight. Counts its connections."""

    def __init__(self, together):
        self.opened = self.closed = 0
        self._barrier = asyncio.Barrier(together)

    async def serve(self, reader, writer):
        self.opened += 1
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            await self._barrier.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        self.closed += 1
        writer.close()


@asynccontextmanager
async def served(together):
    server = Server(together)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024) as listening:
        host, port = listening.sockets[0].getsockname()
        yield server, f"http://{host}:{port}"


async def test_connections_are_used_again_and_closed_at_the_end():
    async with served(together=20) as (server, url):
        async with ManyRequests(base_url=url) as client:
            for _ in range(3):
                answers = await asyncio.gather(*(client.get("/") for _ in range(20)))
                assert [answer.text for answer in answers] == ["ok"] * 20
            assert (server.opened, server.closed) == (20, 0)
        while server.closed < 20:
            await asyncio.sleep(0)


async def test_what_a_request_costs_does_not_depend_on_how_many_are_in_flight():
    async def calls(together):
        """Calls of functions for each request, which the machine's pace does not change."""
        async with served(together) as (_, url), ManyRequests(base_url=url) as client:
            await asyncio.gather(*(client.get("/") for _ in range(together)))  # connects
            with cProfile.Profile() as profile:
                await asyncio.gather(*(client.get("/") for _ in range(together)))
        return sum(entry.callcount for entry in profile.getstats()) / together

    assert await calls(50) == pytest.approx(await calls(10), rel=0.3)
