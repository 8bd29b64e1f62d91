"""How much of a test's wall time was the machine's doing: what the kernel says about waiting for a core."""

from contextlib import suppress
from pathlib import Path

_NS_PER_S = 1e9


def waited_s(ancestor: int) -> float:
    """Seconds that the last descendant of process ``ancestor`` has spent ready to run, without a core to run on.

    Between a zygote and the test that it runs each process has one child, so the last one is the test; its threads are
    summed up. Time that a test sleeps is no part of it. 0 if the test has ended meanwhile.
    """
    total = 0
    for task in Path(f"/proc/{_last_descendant(ancestor)}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(task.read_text().split()[1])
    return total / _NS_PER_S


def _last_descendant(pid: int) -> int:
    while True:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return pid
        if not children:
            return pid
        pid = int(children[-1])
