"""Who may ask the apps by HTTP, and how much: the guard alone, without a server."""

import asyncio
import json

import pytest
from starlette.requests import Request

from cobalt.errors import InputError
from cobalt.serving.app_settings import TOKEN_VARIABLE, HttpConfig
from cobalt.serving.http_guard import HttpGuard, Refusal, guard_of

HERE, ELSEWHERE = ("127.0.0.1", 1), ("192.0.2.7", 1)


def request(
    method="POST", client=HERE, server=HERE, authorization=None, chunks=(b"{}",), headers=((b"host", b"localhost:80"),)
):
    """A request whose body comes in ``chunks``; after those nothing comes any more."""
    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive():
        if not waiting or waiting[0]["body"] is None:
            await asyncio.sleep(60)
        return waiting.pop(0)

    named = [*headers, *([(b"authorization", authorization)] if authorization else [])]
    scope = {"type": "http", "method": method, "path": "/", "headers": named, "client": client, "server": server}
    return Request(scope, receive)


def status(guard, asked):
    """200, or the status of the refusal."""
    try:
        guard.admit(asked)
    except Refusal as refusal:
        assert json.loads(bytes(refusal.response.body))["detail"]
        return refusal.response.status_code
    return 200


OPEN, CLOSED = HttpGuard(None, 1, 0.1), HttpGuard("secret", 1, 0.1)


@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        (HERE, HERE, 200),
        (("::1", 1), ("::1", 1), 200),
        (("::ffff:127.0.0.1", 1), ("127.0.0.1", 1), 200),
        (ELSEWHERE, HERE, 403),
        (ELSEWHERE, ELSEWHERE, 403),
        (HERE, ELSEWHERE, 403),
        (None, HERE, 403),
        (("unix", 0), HERE, 403),
    ],
)
def test_without_a_token_only_this_machine_is_served(client, server, expected):
    assert status(OPEN, request(client=client, server=server)) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"127.0.0.1:8000", 200),
        (b"LOCALHOST", 200),
        (b"[::1]:8000", 200),
        (b"rebound.example:8000", 403),
        (b"127.0.0.1.rebound.example", 403),
        (b"192.0.2.7", 403),
        (b"", 403),
        (b"[::1", 403),
    ],
)
def test_without_a_token_only_names_of_this_machine_are_served(host, expected):
    """Else a page in a browser could have its own name lead here."""
    assert status(OPEN, request(headers=[(b"host", host)])) == expected
    assert status(CLOSED, request(headers=[(b"host", host)], authorization=b"Bearer secret")) == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(b"origin", b"http://localhost:80"), (b"sec-fetch-site", b"same-origin")], 200),
        ([(b"sec-fetch-site", b"none")], 200),
        ([(b"origin", b"http://evil.example")], 403),
        ([(b"origin", b"http://localhost:3000")], 403),
        ([(b"origin", b"null")], 403),
        ([(b"origin", b"")], 403),
        ([(b"sec-fetch-site", b"cross-site")], 403),
        ([(b"sec-fetch-site", b"same-site")], 403),
    ],
)
def test_without_a_token_pages_from_elsewhere_are_not_served(headers, expected):
    """A browser lets any page post text to this machine."""
    headers = [(b"host", b"localhost:80"), *headers]
    assert status(OPEN, request(headers=headers)) == expected
    assert status(CLOSED, request(headers=headers, authorization=b"Bearer secret")) == 200


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (b"Bearer secret", 200),
        (b"bearer secret", 200),
        (b"Bearer wrong", 401),
        (b"Bearer ", 401),
        (b"Basic secret", 401),
        (b"secret", 401),
        ("Bearer sécret".encode("latin-1"), 401),
        (None, 401),
    ],
)
@pytest.mark.parametrize("client", [HERE, ELSEWHERE])
def test_with_a_token_whoever_brings_it_is_served(authorization, expected, client):
    assert status(CLOSED, request(client=client, server=client, authorization=authorization)) == expected


@pytest.mark.parametrize(("given", "token"), [("abc\n", "abc"), (" \n", None), ("", None)])
def test_the_token_is_what_a_header_brings(given, token, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, given)
    assert guard_of(HttpConfig()).token == token


@pytest.mark.parametrize("token", ["sécret", "a\nb"])
def test_a_token_that_no_header_holds_is_refused(token, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(InputError, match=f"{TOKEN_VARIABLE} may hold"):
        guard_of(HttpConfig())


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(method):
    assert status(OPEN, request(method=method)) == 405


async def body_status(guard, asked):
    """The body, or the status of the refusal."""
    try:
        return await guard.body(asked)
    except Refusal as refusal:
        return refusal.response.status_code


async def test_a_body_comes_whole():
    assert await body_status(OPEN, request(chunks=(b"a", b"b"))) == b"ab"


async def test_a_large_body_is_refused_when_it_is_announced_or_as_it_grows():
    assert await body_status(OPEN, request(headers=[(b"content-length", b"1048577")], chunks=(None,))) == 413
    assert await body_status(OPEN, request(chunks=(b"x" * 600_000,) * 2)) == 413
    assert len(await body_status(OPEN, request(chunks=(b"x" * 524_288,) * 2))) == 1 << 20


async def test_a_body_that_does_not_come_is_refused():
    assert await body_status(OPEN, request(chunks=(b"x", None))) == 408
