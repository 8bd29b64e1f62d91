"""What the kernel tells of processes, for tests that count them."""

import os
import time
from pathlib import Path

_IGNORED, _SIGXCPU = "SigIgn:", 24
_PARENT, _START, _STATE = 1, 19, 0


def _text(path: str) -> str:
    """Of a file in /proc; none if there is no such process any more."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """Processes below ``pid``, parents before children."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found = [int(child) for task in tasks for child in _text(f"/proc/{pid}/task/{task}/children").split()]
    return found + [below for child in found for below in children(child)]


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on; none if there is no such process."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def identity(pid: int) -> tuple[int, str]:
    """A process, told apart from a later one of the same number."""
    return pid, (_fields(pid) or [""] * 20)[_START]


def depth(pid: int, top: int) -> int:
    """Generations from ``top`` down to ``pid``."""
    fields = _fields(pid)
    return 0 if pid == top or not fields else 1 + depth(int(fields[_PARENT]), top)


def ignores_its_limit(pid: int) -> bool:
    """Whether the stubborn program has come to where it ignores SIGXCPU."""
    words = _text(f"/proc/{pid}/status").split()
    return bool(words) and bool(int(words[words.index(_IGNORED) + 1], 16) >> (_SIGXCPU - 1) & 1)


def left(identities: list[tuple[int, str]]) -> list[int]:
    """Which of these processes still run."""
    return [pid for pid, start in identities if (f := _fields(pid)) and f[_START] == start and f[_STATE] not in "ZX"]


def wait_until(condition, timeout_s: float = 60.0):
    """The first ``condition()`` that holds, or the last. It is not asked again: it may have held for a moment only."""
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer
