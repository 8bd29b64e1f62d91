"""How much memory this process may use, and how many sandboxes fit into it.

Programs are counted at their limit, not at what they use. So a program never meets less memory than its limit says
because others run beside it.
"""

from collections.abc import Iterator
from pathlib import Path

from cobalt.errors import SetupError
from cobalt.sandbox.limits import Limits

_GROUPS = Path("/sys/fs/cgroup")
_LIMIT_FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}
_MOUNTED = {"": ("", "unified"), "memory": ("memory",)}
"""Both by the controllers that a line of /proc/self/cgroup names: version 2 names none."""

_OUTPUTS = 4
"""Held in memory beside a program: standard output and error, its own and those of its problem's checker program. The
two programs share one limit, because the checker runs only when the test that it judges has ended."""

LANES = 2
"""Sandboxes of a worker: a quick one, and one that goes on with long programs."""


def memory_mb() -> int:
    """MiB of this machine, or of the container or control group that this process is in."""
    return min([_machine_bytes(), *_group_limits()]) >> 20


def _machine_bytes() -> int:
    fields = Path("/proc/meminfo").read_text().split()
    return int(fields[fields.index("MemTotal:") + 1]) << 10


def _group_limits() -> Iterator[int]:
    """Limits of the groups around this process, from its own up to the mounted one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for mounted in _MOUNTED.get(controllers, ()):
            group = _GROUPS / mounted / path.lstrip("/")
            for directory in (group, *group.parents):
                file = directory / _LIMIT_FILES[controllers]
                if file.exists() and file.read_text().strip() != "max":
                    yield int(file.read_text())


def affordable_workers(limits: Limits) -> int:
    """Workers whose sandboxes fit; raises ``SetupError`` if not even one's do."""
    each_mb = LANES * (limits.memory_limit_mb + _OUTPUTS * limits.output_limit_mb)
    available_mb = memory_mb()
    if available_mb < each_mb:
        reason = f"{LANES} programs may use {each_mb} MiB (memory and outputs)"
        raise SetupError(f"a worker's {reason}, and there are {available_mb} MiB here")
    return available_mb // each_mb
