"""Settings of every process that the tests start, for a machine that is busy with other tests."""

import os
import signal
from contextlib import suppress

os.environ["OMP_NUM_THREADS"] = "1"  # the models are small: threads would only wait for each other
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would compile the same modules
# Ray reads these when it is imported. A start on a busy machine takes many times as long.
os.environ["RAY_raylet_start_wait_time_s"] = "300"  # noqa: SIM112 - Ray's spelling
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"

with suppress(ImportError):  # the environments of other stacks lack it
    from hypothesis import settings

    settings.register_profile("any pace", deadline=None)  # else an example that takes 0.2 s is a failure
    settings.load_profile("any pace")

# A shell has what it starts in the background ignore it, and what that starts, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Files with slow tests come first, so that both processes end at about the same time."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
