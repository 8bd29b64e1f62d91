"""A Ray of a test module's own, with Serve on it."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


def free_port() -> int:
    """A port that nothing listens on now, below those that the kernel gives to connections: one might take it."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", port))
            return port


@contextmanager
def own_serve(**settings: Any) -> Iterator[str]:
    """The address of its HTTP server; ``settings`` are those of ``ray.init``. All of it ends with the block."""
    import ray
    from ray import serve

    port = free_port()
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error", **settings)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}"
        serve.shutdown()
    finally:
        ray.shutdown()
