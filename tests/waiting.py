"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    """Look until ``condition`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
