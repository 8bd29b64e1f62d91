"""Ports for servers that are started a while after their port is chosen."""

import random
import socket
from contextlib import suppress
from pathlib import Path

from cobalt.errors import SetupError

TRIES = 100
KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that nothing listens on now, not one of those that the kernel gives to connections: one might take it."""
    first, last = map(int, KERNELS.read_text().split())
    ports = [port for port in range(10_000, 61_000) if not first <= port <= last]
    for port in random.SystemRandom().sample(ports, min(TRIES, len(ports))):  # no seed: others choose at the same time
        with suppress(OSError), socket.socket() as found:
            found.bind(("", port))
            return port
    raise SetupError(f"no port from 10000 to 60999 outside {KERNELS} ({first} to {last}) can be listened on")
