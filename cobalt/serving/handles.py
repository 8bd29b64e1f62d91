"""Finding a running Ray Serve app by name."""

import logging
import os
import socket
from typing import Any

from cobalt.errors import SetupError

PROBE_TIMEOUT_S = 5.0


def app_handle(app_name: str, what: str, hint: str) -> Any:
    """The app's handle; connects to the Ray cluster of this machine or of ``RAY_ADDRESS``.

    Raises ``SetupError`` with ``what`` it is and ``hint`` (how to start it) if there is no cluster or no such app.
    """
    import ray
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        if not ray.is_initialized():
            _probe(os.environ.get("RAY_ADDRESS", ""))
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        return serve.get_app_handle(app_name)
    except (OSError, RayError, RayServeException, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise SetupError(f"no {what} ({reason}); {hint}") from None


def _probe(address: str) -> None:
    """Raise ``OSError`` at once if nothing listens at ``host:port``; ``ray.init`` would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), PROBE_TIMEOUT_S).close()
        except OSError as error:
            raise OSError(f"no Ray cluster at {address}: {error.strerror or error}") from None
