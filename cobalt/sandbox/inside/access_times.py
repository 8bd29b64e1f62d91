"""Times of last access, in mode ``landlock`` a note that one program could leave for another on any file it may read.

The kernel writes such a time when it is older than a day, or than the file's last change (mount option ``relatime``).
Reading every file more often than that leaves programs nothing to write. Behind read-only mounts there is no need.
"""

import os

PERIOD_S = 12 * 3600.0
"""How often; well below the kernel's day."""


def refresh(paths):
    """Read a byte of every file, list every directory."""
    for path in paths:
        if os.path.isdir(path):
            refresh([entry.path for entry in os.scandir(path)])
        else:
            _read_a_byte(path)


def _read_a_byte(path):
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # programs cannot read it either
        return
    try:
        os.read(descriptor, 1)
    finally:
        os.close(descriptor)
