"""What programs may read: Python's own modules, the allowed packages, and the shared libraries that these load.

Named one by one, so that nothing else comes along: a directory of the standard library may hold ``site-packages``, and
``/usr/lib`` holds tens of thousands of files that no program needs.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path

PACKAGES = ("numpy",)
"""Packages beside the standard library that programs may import, if the server has them."""

_EXTENSION_DIRECTORY = "lib-dynload"
_WITHOUT_LIBRARIES = ("_tkinter",)  # there is no screen, and its libraries are many
_LOADED_LATER = ("libgcc_s.so.1",)  # by glibc, when a thread ends
_OTHERS = ("/etc/ld.so.cache", "/usr/lib/locale/C.utf8")
_LIBRARY_LINKS = ("/lib", "/lib64")


def interpreter() -> str:
    """The real path of the Python that runs programs: this one, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@cache
def modules() -> dict[str, str]:
    """``{top-level module: its file, or its directory}``: the standard library and the allowed packages."""
    directories = [sysconfig.get_path("stdlib"), *(path for path in sys.path if path.endswith(_EXTENSION_DIRECTORY))]
    found = {name: path for directory in directories for name, path in _modules_in(os.path.realpath(directory))}
    return found | {name: str(path) for name, path in _packages().items()}


def _modules_in(directory: str) -> list[tuple[str, str]]:
    """Modules of a directory, by its files and its packages; other directories are none."""
    found = []
    for entry in os.scandir(directory) if os.path.isdir(directory) else ():
        suffix = next((suffix for suffix in all_suffixes() if entry.name.endswith(suffix)), None)
        if suffix is not None or os.path.exists(f"{entry.path}/__init__.py"):
            found.append((entry.name.removesuffix(suffix or ""), entry.path))
    return found


def _packages() -> dict[str, Path]:
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    origins = {name: spec.origin for name, spec in specs.items() if spec is not None}
    return {name: Path(os.path.realpath(Path(origin).parent)) for name, origin in origins.items() if origin is not None}


def package_dirs() -> list[str]:
    """The directories that hold the allowed packages; they themselves can be neither read nor listed."""
    return sorted({str(path.parent) for path in _packages().values()})


@cache
def other_paths() -> list[str]:
    """What modules need beside themselves: compiled code, shared libraries, locale; files and directories."""
    caches = {f"{os.path.dirname(path)}/__pycache__" for path in modules().values() if path.endswith(".py")}
    own_libraries = {f"{path}.libs" for path in map(str, _packages().values())}  # of wheels
    paths = {*caches, *own_libraries, *_OTHERS, *_shared_libraries()}
    return sorted(path for path in paths if os.path.exists(path))


def _shared_libraries() -> set[str]:
    """The libraries that the interpreter and its extension modules load, asked of the dynamic loader (ld.so(8))."""
    extensions = [path for path in modules().values() if path.endswith(".so")]
    extensions = [path for path in extensions if not os.path.basename(path).startswith(_WITHOUT_LIBRARIES)]
    extensions += [str(path) for package in _packages().values() for path in package.rglob("*.so")]
    question = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join([*extensions, *_LOADED_LATER])}
    traced = subprocess.run([interpreter()], env=question, capture_output=True, text=True, check=True)
    named = (line.partition(" => ")[2].rpartition(" (")[0] for line in traced.stdout.splitlines())
    return {os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in named if path}


def links() -> dict[str, str]:
    """``{symbolic link: target}`` on the way to the libraries."""
    return {path: os.readlink(path) for path in _LIBRARY_LINKS if os.path.islink(path)}
