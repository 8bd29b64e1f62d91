"""A Ray of a test module's own, with Serve on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cobalt.serving.ports import free_port

TRIES = 3


@contextmanager
def own_serve(**settings: Any) -> Iterator[str]:
    """The address of its HTTP server; ``settings`` are those of ``ray.init``. All of it ends with the block."""
    import ray
    from ray import serve

    try:
        for tries_left in reversed(range(TRIES)):
            port = free_port()
            ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error", **settings)
            try:
                serve.start(http_options={"host": "127.0.0.1", "port": port})
                break
            except RuntimeError as error:  # Ray has to start before Serve listens: others may take the port meanwhile
                if "Failed to bind" not in str(error) or not tries_left:
                    raise
                ray.shutdown()
        yield f"http://127.0.0.1:{port}"
    finally:
        ray.shutdown()
