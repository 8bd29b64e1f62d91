"""What one program may use, and how many sandboxes fit into memory with that.

Programs are counted at their limit, not at what they use. So a program never meets less memory than its limit says
because others run beside it.
"""

import math
import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cobalt.sandbox.errors import SetupError

LANES = 2  # sandboxes of a worker: a quick one, and one that goes on with long programs
# Held in memory beside a program: standard output and error, its own and those of its problem's checker program. The
# two programs share one limit, because the checker runs only when the test that it judges has ended.
_OUTPUTS = 4
_SOCKETS_IN_A_MB = 4  # if nobody reads them: by default the kernel keeps 208 KiB for one, and one message more
TOO_MANY_TASKS = "this user or container has too many processes and threads to start another one"
_GROUPS = Path("/sys/fs/cgroup")
# both by the controllers that a line of /proc/self/cgroup names: version 2 names none
_LIMIT_FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}
_MOUNTED = {"": ("", "unified"), "memory": ("memory",)}


LEAST = {"memory_limit_mb": 32, "max_open_files": 8}
"""With less, Python itself does not start or import a module, and right programs fail."""


@dataclass(frozen=True)
class Limits:
    """Limits of one program: 4 CPU seconds per test as in the paper, 27 per suite as in its release.

    Times are CPU time of the program itself unless they say ``wall``.
    """

    cpu_limit_s: float = 4.0
    """CPU seconds per test; a test that used more is ``time_limit`` even if it ended by itself."""
    suite_cpu_limit_s: float = 27.0
    """CPU seconds of one program over all its tests; tests not reached are ``time_limit``, passed ones stay passed."""
    wall_factor: float = 3.0
    """Wall seconds per CPU second of the two limits above, for programs that sleep. Time that a test is ready to run
    and has no core to run on does not count, so a loaded machine makes no test late."""
    memory_limit_mb: int = 1024
    """Address space of a test's process, MiB. A program cannot start processes, so this bounds its whole tree."""
    output_limit_mb: int = 16
    """Bytes on stdout, and on stderr, MiB; at this size the verdict is ``output_limit``."""
    max_threads: int = 64
    """Threads of a test; in mode ``landlock`` held only under a root server (``docs/sandbox.md``)."""
    max_open_files: int = 64
    """Open files of a test."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {value}")
            if value < LEAST.get(name, 0):
                raise ValueError(f"{name} must be at least {LEAST[name]}, which Python itself needs, not {value}")

    @property
    def wall_limit_s(self) -> float:
        """Wall seconds per test, beside those that it waits for a core."""
        return self.wall_factor * self.cpu_limit_s

    @property
    def suite_wall_limit_s(self) -> float:
        """The same over all tests of one program."""
        return self.wall_factor * self.suite_cpu_limit_s


def refuse_low_limits(limits: Limits) -> None:
    """Raise ``SetupError`` if this process may not give programs what ``limits`` says."""
    tasks = tasks_of(os.getuid()) if os.getuid() else 0  # those of a root server run as other users
    for name, needed in (
        ("AS", limits.memory_limit_mb << 20),
        ("FSIZE", limits.output_limit_mb << 20),
        ("NOFILE", limits.max_open_files),
        ("NPROC", tasks + limits.max_threads),
    ):
        _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        if hard != resource.RLIM_INFINITY and hard < needed:
            reason = f" beside the {tasks} tasks that this user has" if name == "NPROC" and tasks else ""
            may = needed - tasks if reason else needed
            raise SetupError(
                f"the hard limit RLIMIT_{name} here is {hard}, and programs may use {may}{reason}: see ulimit"
            )


def tasks_of(user: int) -> int:
    """Processes and threads of a user, as many as this process can see."""
    tasks = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
            tasks += int(fields["Threads"]) if int(fields["Uid"].split()[0]) == user else 0
    return tasks


def default_workers(limits: Limits | None = None) -> int:
    """One per core that this process may use, if so many fit into memory; ``SetupError`` if not even one does."""
    return min(len(os.sched_getaffinity(0)), affordable_workers(limits or Limits()))


def affordable_workers(limits: Limits) -> int:
    """Workers whose sandboxes fit into memory; raises ``SetupError`` if not even one's do."""
    in_sockets_mb = limits.max_open_files // _SOCKETS_IN_A_MB
    each_mb = LANES * (limits.memory_limit_mb + _OUTPUTS * limits.output_limit_mb + in_sockets_mb)
    available_mb = memory_mb()
    if available_mb < each_mb:
        reason = f"{LANES} programs may use {each_mb} MiB (memory, outputs and sockets)"
        raise SetupError(f"a worker's {reason}, and there are {available_mb} MiB here")
    return available_mb // each_mb


def memory_mb() -> int:
    """MiB of this machine, or of the container or control group that this process is in."""
    fields = Path("/proc/meminfo").read_text().split()
    found_bytes = [int(fields[fields.index("MemTotal:") + 1]) << 10]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for mounted in _MOUNTED.get(controllers, ()):
            group = _GROUPS / mounted / path.lstrip("/")
            for directory in (group, *group.parents):  # from the process's own up to the mounted one
                file = directory / _LIMIT_FILES[controllers]
                if file.exists() and file.read_text().strip() != "max":
                    found_bytes.append(int(file.read_text()))
    return min(found_bytes) >> 20
