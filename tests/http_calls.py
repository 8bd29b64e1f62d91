"""Calls of an app by HTTP, well formed or not."""

import json
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit


def post(url: str, body: object) -> tuple[int, dict]:
    """Status and decoded answer. Bytes are sent as they are, without saying that they are JSON."""
    if isinstance(body, bytes):
        request = urllib.request.Request(url, data=body)
    else:
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def status_of(url: str) -> dict:
    """What GET tells."""
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def connect(url: str) -> socket.socket:
    """A connection."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), 30)


def first_line(connection: socket.socket) -> bytes:
    """Of the answer."""
    return connection.recv(1 << 16).partition(b"\r\n")[0]
