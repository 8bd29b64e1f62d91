"""What a sandbox shows to programs and how it is closed: its two modes, and the configuration of a zygote.

What programs may read is named file by file, so that nothing else comes along: a directory of the standard library may
hold ``site-packages``, and ``/usr/lib`` holds tens of thousands of files that no program needs.
"""

import importlib.util
import os
import resource
import secrets
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any, Literal, get_args

from cobalt.sandbox.limits import Limits, tasks_of

Mode = Literal["namespaces", "landlock"]
MODES: tuple[Mode, ...] = get_args(Mode)  # the stronger one first
NAMESPACES, LANDLOCK = MODES

PACKAGES = ("numpy", "sortedcontainers")  # beside the standard library programs may import them, if the server has them
DEVICES = ("/dev/null", "/dev/urandom", "/dev/random")
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # a program that depends on the order of a set gets the same verdict every time
    "PYTHONUTF8": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "LD_BIND_NOW": "1",  # symbols are looked up once, not in every test
}

_NOBODY = 65534
_OWN_USERS = range(1 << 30, 1 << 31)
_EXTRA_TASKS_OF_USER = 2048
_EXTENSION_DIRECTORY = "lib-dynload"
_WITHOUT_LIBRARIES = ("_tkinter",)  # there is no screen, and its libraries are many
_LOADED_LATER = ("libgcc_s.so.1",)  # by glibc, when a thread ends
TIME_ZONES = "/usr/share/zoneinfo"
_OTHERS = ("/etc/ld.so.cache", "/usr/lib/locale/C.utf8", TIME_ZONES)
_LIBRARY_LINKS = ("/lib", "/lib64")


def resolve_mode(name: str) -> Mode | Literal["auto"]:
    """The mode of that name, or ``auto`` (the first that holds); raises ``ValueError`` for any other."""
    known: dict[str, Mode | Literal["auto"]] = {"auto": "auto", **{mode: mode for mode in MODES}}
    if name not in known:
        raise ValueError(f"mode must be one of auto, {', '.join(MODES)}, not {name!r}")
    return known[name]


def zygote_config(mode: Mode, limits: Limits) -> dict[str, Any]:
    """The zygote's configuration, of types that ``marshal`` knows."""
    # Whom a root server's programs run as; None: as the server itself. The kernel counts tasks and pages in pipes by
    # user. So each sandbox gets a user of its own, if this process may use any.
    run_as = None
    if os.getuid() == 0:
        any_user = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
        run_as = secrets.choice(_OWN_USERS) if any_user else _NOBODY
    max_tasks = limits.max_threads + 2
    if mode == LANDLOCK and run_as in (None, _NOBODY):  # a user who has other tasks, too
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        max_tasks += tasks_of(os.getuid() if run_as is None else run_as) + _EXTRA_TASKS_OF_USER
        max_tasks = max_tasks if hard == resource.RLIM_INFINITY else min(max_tasks, hard)
    packages = _packages()
    readable: dict[str, None] = {}  # without what lies below another path, shortest first
    for path in sorted({*modules().values(), *_other_paths()}, key=lambda path: (len(path), path)):
        if not any(str(parent) in readable for parent in Path(path).parents):
            readable[path] = None
    return {
        "namespaces": mode == NAMESPACES,
        "run_as": run_as,
        "modules": modules(),
        "readable": list(readable),
        "devices": [path for path in DEVICES if os.path.exists(path)],
        "links": {path: os.readlink(path) for path in _LIBRARY_LINKS if os.path.islink(path)},
        # the directories of packages can be neither read nor listed themselves
        "package_dirs": sorted({str(path.parent) for path in packages.values()}),
        "output_bytes": limits.output_limit_mb << 20,
        "max_open_files": limits.max_open_files,
        "max_tasks": max_tasks,
    }


def interpreter() -> str:
    """The real path of the Python that runs programs: this one, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@cache
def modules() -> dict[str, str]:
    """``{top-level module: its file, or its directory}``: the standard library and the allowed packages."""
    directories = [sysconfig.get_path("stdlib"), *(path for path in sys.path if path.endswith(_EXTENSION_DIRECTORY))]
    modules = {}
    for directory in map(os.path.realpath, directories):
        for entry in os.scandir(directory) if os.path.isdir(directory) else ():
            suffix = next((suffix for suffix in all_suffixes() if entry.name.endswith(suffix)), None)
            if suffix is not None or os.path.exists(f"{entry.path}/__init__.py"):
                modules[entry.name.removesuffix(suffix or "")] = entry.path
    return modules | {name: str(path) for name, path in _packages().items()}


def _packages() -> dict[str, Path]:
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    origins = {name: spec.origin for name, spec in specs.items() if spec is not None}
    return {name: Path(os.path.realpath(Path(origin).parent)) for name, origin in origins.items() if origin is not None}


@cache
def _other_paths() -> list[str]:
    """What modules need beside themselves: compiled code, shared libraries, locale; files and directories."""
    # the libraries that the interpreter and its extension modules load, asked of the dynamic loader (ld.so(8))
    extensions = [path for path in modules().values() if path.endswith(".so")]
    extensions = [path for path in extensions if not os.path.basename(path).startswith(_WITHOUT_LIBRARIES)]
    extensions += [str(path) for package in _packages().values() for path in package.rglob("*.so")]
    question = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join([*extensions, *_LOADED_LATER])}
    traced = subprocess.run([interpreter()], env=question, capture_output=True, text=True, check=True)
    named = (line.partition(" => ")[2].rpartition(" (")[0] for line in traced.stdout.splitlines())
    libraries = {
        os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in named if path
    }
    caches = {f"{os.path.dirname(path)}/__pycache__" for path in modules().values() if path.endswith(".py")}
    libraries_of_wheels = {f"{path}.libs" for path in _packages().values()}
    return sorted(path for path in {*caches, *libraries_of_wheels, *_OTHERS, *libraries} if os.path.exists(path))
