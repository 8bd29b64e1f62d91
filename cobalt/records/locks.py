"""Files that one process at a time may write."""

import fcntl
from typing import IO, Any


def is_taken(file: IO[Any]) -> bool:
    """Lock ``file`` until it is closed, by all processes that inherited it; True if another holder has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False
