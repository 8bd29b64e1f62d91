"""Ports for servers that are started a while after their port is chosen."""

import random
import socket
from contextlib import suppress

from cobalt.errors import SetupError

TRIES = 100


def free_port() -> int:
    """A port that nothing listens on now, below those that the kernel gives to connections: one might take it."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), TRIES):  # no seed: others choose at the same time
        with suppress(OSError), socket.socket() as found:
            found.bind(("", port))
            return port
    raise SetupError(f"none of {TRIES} ports from 20000 to 31999 can be listened on")
