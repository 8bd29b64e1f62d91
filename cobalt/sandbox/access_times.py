"""Times of last access, in mode ``landlock`` a note that one program could leave for another on any file it may read.

The kernel writes such a time when it is older than a day, or than the file's last change (mount option ``relatime``).
Reading every file more often than that leaves programs nothing to write. Behind read-only mounts there is no need.
"""

import os
import time
from collections.abc import Iterable

PERIOD_S = 8 * 3600.0
"""How often, and from what age on: twice this is well below the kernel's day."""


def refresh(paths: Iterable[str]) -> None:
    """Read a byte of every file, and list every directory, whose next reader would change its time of access."""
    for path in paths:
        if os.path.isdir(path):
            refresh([entry.path for entry in os.scandir(path)])
        elif _is_stale(os.stat(path)):
            _read_a_byte(path)


def _is_stale(status: os.stat_result) -> bool:
    changed = max(status.st_mtime, status.st_ctime)
    return status.st_atime <= changed or status.st_atime < time.time() - PERIOD_S


def _read_a_byte(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # programs cannot read it either
        return
    try:
        os.read(descriptor, 1)
    finally:
        os.close(descriptor)
