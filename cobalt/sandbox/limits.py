"""What one program may use. Defaults: the paper's 4 seconds per test and its release's 27 seconds per suite."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one program. Times are CPU time of the program itself unless they say ``wall``."""

    cpu_limit_s: float = 4.0
    """CPU seconds per test; a test that used more is ``time_limit`` even if it ended by itself."""

    suite_cpu_limit_s: float = 27.0
    """CPU seconds of one program over all its tests; tests not reached are ``time_limit``, passed ones stay passed."""

    wall_limit_s: float = 40.0
    """Backstop for a test that sleeps: wall seconds, ten times the CPU limit. A test that computes reaches it only on
    a machine that gives it less than a tenth of a core."""

    suite_wall_limit_s: float = 160.0
    """The same backstop over all tests of one program."""

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
