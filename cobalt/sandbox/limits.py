"""What one program may use. Defaults: the paper's 4 seconds per test and its release's 27 seconds per suite."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one program. Times are CPU time of the program itself unless they say ``wall``."""

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
            if value <= 0:
                raise ValueError(f"{name} must be positive, not {value}")

    @property
    def wall_limit_s(self) -> float:
        """Wall seconds per test, beside those that it waits for a core."""
        return self.wall_factor * self.cpu_limit_s

    @property
    def suite_wall_limit_s(self) -> float:
        """The same over all tests of one program."""
        return self.wall_factor * self.suite_cpu_limit_s
