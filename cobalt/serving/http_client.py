"""An HTTP client for hundreds of requests at a time."""

import asyncio
from typing import Any

import httpx

IDLE_S = 2
"""An idle connection is not used again after so long: vLLM closes it after 5 s."""


class ManyRequests(httpx.AsyncClient):
    """Each request in flight has a client, and so a pool, of its own. ``settings`` are those of ``httpx.AsyncClient``.

    At every request httpx looks several times at all connections of a pool. With 640 that takes over 10 ms.
    """

    def __init__(self, **settings: Any):
        context = httpx.create_ssl_context()  # to make one takes longer than a request
        self._settings = {**settings, "verify": context, "limits": httpx.Limits(keepalive_expiry=IDLE_S)}
        self._free: list[httpx.AsyncClient] = []
        super().__init__(**self._settings)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As ``httpx.AsyncClient.send``, but the read timeout is for the whole answer, not for each piece of it."""
        client = self._free.pop() if self._free else httpx.AsyncClient(**self._settings)
        try:
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                return await client.send(request, **options)
        except TimeoutError:
            raise httpx.ReadTimeout("the answer was not complete in time", request=request) from None
        finally:
            self._free.append(client)

    async def aclose(self) -> None:
        """Close all connections, once no request is in flight."""
        for client in self._free:
            await client.aclose()
        await super().aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
