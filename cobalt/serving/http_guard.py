"""What the apps ask of an HTTP request before they use it: a method they know, the token, a body of bounded size, soon.

The token is in the environment of whoever starts the app (``COBALT_HTTP_TOKEN``), and in the ``Authorization: Bearer``
header of every request. Without one, only requests that come from this machine, to its loopback address and under a
name of it, are served. A page in a browser can have another name lead to this address (DNS rebinding), or post to it
from its own; the browser then says so.
Calls by handle go through Ray, which has a token of its own (``RAY_AUTH_MODE=token``).
"""

import asyncio
import hmac
import json
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cobalt.serving.app_settings import TOKEN_VARIABLE, HttpConfig, http_token

METHODS = ("GET", "POST")

UNAUTHORIZED, FORBIDDEN, NOT_ALLOWED, TIMED_OUT, TOO_LARGE, UNPROCESSABLE = 401, 403, 405, 408, 413, 422
"""HTTP statuses of refusals; the last one is for a body that cannot be used."""
UNAVAILABLE = 503
"""For a request that was not answered, and may be sent again."""


def json_response(content: Any, status_code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """ASCII, so that texts of programs and tests that are no Unicode (lone surrogates) come through."""
    return Response(json.dumps(content), status_code, headers, media_type="application/json")


class Refusal(Exception):
    """A request that is not served; ``response`` says why."""

    def __init__(self, status_code: int, detail: str, headers: dict[str, str] | None = None):
        super().__init__(detail)
        self.response = json_response({"detail": detail}, status_code, headers)


@dataclass(frozen=True)
class HttpGuard:
    """The checks of one app."""

    token: str | None
    max_body_mb: int
    body_timeout_s: float

    def admit(self, request: Request) -> None:
        """Raises ``Refusal`` for a method that the apps do not know, or a caller who may not ask."""
        if request.method not in METHODS:
            raise Refusal(NOT_ALLOWED, f"use {' or '.join(METHODS)}", {"Allow": ", ".join(METHODS)})
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise Refusal(NOT_ALLOWED, "there are no WebSockets here")
        if self.token is None:
            ends = (request.scope.get("client"), request.scope.get("server"))
            if not all(end is not None and is_loopback(end[0]) for end in ends):
                raise Refusal(FORBIDDEN, f"start the app with {TOKEN_VARIABLE} to serve other machines")
            try:
                host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
            except ValueError:
                host = ""
            if not is_loopback(host):
                raise Refusal(FORBIDDEN, f"without {TOKEN_VARIABLE}, use the address 127.0.0.1 or the name localhost")
            if _is_of_another_page(request):
                raise Refusal(FORBIDDEN, f"start the app with {TOKEN_VARIABLE} to serve pages in browsers")
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            raise Refusal(UNAUTHORIZED, "the bearer token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def body(self, request: Request) -> bytes:
        """The body. Raises ``Refusal`` if it is too large, or has not come in time."""
        most = self.max_body_mb << 20
        too_large = Refusal(TOO_LARGE, f"the body is larger than {self.max_body_mb} MiB (max_body_mb)")

        async def read() -> bytes:
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
            return bytes(body)

        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > most:
            raise too_large
        try:
            return await asyncio.wait_for(read(), self.body_timeout_s)
        except (TimeoutError, ClientDisconnect):
            raise Refusal(TIMED_OUT, f"the body has not come within {self.body_timeout_s:g} s") from None


def guard_of(args: HttpConfig) -> HttpGuard:
    """The checks of an app with these arguments, and with the token of this process's environment, if it has one."""
    return HttpGuard(http_token(), args.max_body_mb, args.body_timeout_s)


def _is_of_another_page(request: Request) -> bool:
    """Whether a browser sends it for a page that is not from here."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
    is_own = origin is None or origin.rpartition("/")[2].lower() == request.headers.get("host", "").lower()
    return not is_own or site.lower() not in ("none", "same-origin")


def is_loopback(host: str) -> bool:
    """Whether it is a loopback address, or their name."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
