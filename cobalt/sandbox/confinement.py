"""What a sandbox shows to programs and how it is closed: the configuration that the zygote is started with."""

import importlib.util
import os
import secrets
import sys
import sysconfig
from pathlib import Path
from typing import Any

from cobalt.sandbox.limits import Limits
from cobalt.sandbox.modes import LANDLOCK, MODES, NAMESPACES, Mode

PACKAGES = ("numpy",)
"""Packages beside the standard library that programs may import, if the server has them."""

NOBODY = 65534
_OWN_USERS = range(1 << 30, 1 << 31)
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_EXTRA_TASKS_OF_USER = 2048

ZYGOTE = Path(__file__).parent / "inside" / "zygote.py"

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # a program that depends on the order of a set gets the same verdict every time
    "PYTHONUTF8": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "LANG": "C.UTF-8",
    "LD_BIND_NOW": "1",  # symbols are looked up once, not in every test
}


def interpreter() -> str:
    """The real path of the Python that runs programs: this one, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def zygote_command(descriptor: int) -> list[str]:
    """Command line of a zygote that talks over ``descriptor``."""
    return [interpreter(), "-S", "-s", "-B", "-W", "ignore", str(ZYGOTE), str(descriptor)]


def zygote_config(mode: Mode, limits: Limits) -> dict[str, Any]:
    """The zygote's configuration, of types that ``marshal`` knows. ``ValueError`` for a mode that does not exist."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    trees, links = _system_trees()
    package_dirs = _package_dirs()
    trees += [path for directory, names in package_dirs.items() for path in _package_trees(directory, names)]
    run_as = _program_user(mode)
    shared_user = mode == LANDLOCK and run_as in (None, NOBODY)
    return {
        "namespaces": mode == NAMESPACES,
        "run_as": run_as,
        "readable": _outermost(trees),
        "listable": sorted(package_dirs),
        "devices": [path for path in DEVICES if os.path.exists(path)],
        "links": links,
        "package_dirs": sorted(package_dirs),
        "cpu_limit_s": limits.cpu_limit_s,
        "memory_bytes": limits.memory_limit_mb << 20,
        "output_bytes": limits.output_limit_mb << 20,
        "max_open_files": limits.max_open_files,
        "max_tasks": limits.max_threads + (_EXTRA_TASKS_OF_USER if shared_user else 2),
    }


def _program_user(mode: Mode) -> int | None:
    """Whom a root server's programs run as; None: as the server itself.

    The kernel counts tasks by user, and apart in each user namespace. Mode ``landlock`` has no namespaces: there each
    sandbox gets a user of its own, if this process may use any.
    """
    if os.getuid() != 0:
        return None
    any_user = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    return secrets.choice(_OWN_USERS) if mode == LANDLOCK and any_user else NOBODY


def _system_trees() -> tuple[list[str], dict[str, str]]:
    """Standard library and shared libraries as ``(real paths, {symbolic link: target})``."""
    trees = [os.path.realpath(path) for path in {sysconfig.get_path("stdlib"), f"{sys.base_prefix}/lib"}]
    links = {}
    for path in _SYSTEM_LIBRARIES:
        if os.path.islink(path):
            links[path] = os.readlink(path)
        if os.path.exists(path):
            trees.append(os.path.realpath(path))
    return trees, links


def _package_dirs() -> dict[str, list[str]]:
    """``{site directory: packages found there}``."""
    found: dict[str, list[str]] = {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found.setdefault(os.path.realpath(Path(spec.origin).parent.parent), []).append(name)
    return found


def _package_trees(directory: str, names: list[str]) -> list[str]:
    """The packages' own directories and those of the shared libraries that their wheels bring."""
    paths = [Path(directory, f"{name}{suffix}") for name in names for suffix in ("", ".libs")]
    return [str(path) for path in paths if path.is_dir()]


def _outermost(paths: list[str]) -> list[str]:
    """Paths without those that lie below another one, shortest first."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        if not any(path == other or path.startswith(f"{other}/") for other in kept):
            kept.append(path)
    return kept
