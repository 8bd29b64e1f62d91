"""What a sandbox shows to programs and how it is closed: the configuration that the zygote is started with."""

import os
import secrets
from pathlib import Path
from typing import Any

from cobalt.sandbox import readable
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.modes import LANDLOCK, MODES, NAMESPACES, Mode

NOBODY = 65534
_OWN_USERS = range(1 << 30, 1 << 31)
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_EXTRA_TASKS_OF_USER = 2048

INSIDE = Path(__file__).parent / "inside"
_START = "import sys; sys.path[0] = sys.argv.pop(); import zygote; zygote.main()"
"""By import, so that compiled code can be cached: compiling it leaves holes in memory that every fork would carry."""

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # a program that depends on the order of a set gets the same verdict every time
    "PYTHONUTF8": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "LANG": "C.UTF-8",
    "LD_BIND_NOW": "1",  # symbols are looked up once, not in every test
}


def zygote_command(descriptor: int) -> list[str]:
    """Command line of a zygote that talks over ``descriptor`` and ends with this process."""
    arguments = [str(descriptor), str(os.getpid()), str(INSIDE)]
    return [readable.interpreter(), "-S", "-s", "-W", "ignore", "-c", _START, *arguments]


def zygote_config(mode: Mode, limits: Limits) -> dict[str, Any]:
    """The zygote's configuration, of types that ``marshal`` knows. ``ValueError`` for a mode that does not exist."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    run_as = _program_user()
    shared_user = mode == LANDLOCK and run_as in (None, NOBODY)
    return {
        "namespaces": mode == NAMESPACES,
        "run_as": run_as,
        "modules": readable.modules(),
        "readable": _outermost([*readable.modules().values(), *readable.other_paths()]),
        "devices": [path for path in DEVICES if os.path.exists(path)],
        "links": readable.links(),
        "package_dirs": readable.package_dirs(),
        "cpu_limit_s": limits.cpu_limit_s,
        "memory_bytes": limits.memory_limit_mb << 20,
        "output_bytes": limits.output_limit_mb << 20,
        "max_open_files": limits.max_open_files,
        "max_tasks": limits.max_threads + (_EXTRA_TASKS_OF_USER if shared_user else 2),
    }


def _program_user() -> int | None:
    """Whom a root server's programs run as; None: as the server itself.

    The kernel counts tasks and pages in pipes by user. So each sandbox gets a user of its own, if this process may use
    any.
    """
    if os.getuid() != 0:
        return None
    any_user = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    return secrets.choice(_OWN_USERS) if any_user else NOBODY


def _outermost(paths: list[str]) -> list[str]:
    """Paths without those that lie below another one, shortest first."""
    kept: dict[str, None] = {}
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        if not any(str(parent) in kept for parent in Path(path).parents):
            kept[path] = None
    return list(kept)
