"""``train-gpu.txt`` and ``train-gpu.metadata.json``, made again from ``train-gpu.in``, and a lock for each light extra.

    python constraints/lock.py            # writes all of them
    python constraints/lock.py --check    # exit code 1 where they are not what this would write

``core.txt``, ``serve.txt`` and so on have the versions of ``train-cpu.txt``, for Python 3.11 and 3.12.

The lock for GPUs is what uv finds among the packages uploaded until ``LAST_DAY`` (UTC), for every Python of ``PYTHONS``
on Linux x86-64. The metadata is what these packages say that they need there; tests/test_constraints.py compares the
two without a network. Pip reads it from the index, which must have a wheel for each Python, or source for those of
``FROM_SOURCE``; wheels are not downloaded. Takes minutes, the network, and ``uv``, ``packaging`` and pip 23.2 beside
this interpreter.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "constraints"
LOCK = FOLDER / "train-gpu.txt"
METADATA = FOLDER / "train-gpu.metadata.json"
INPUT = FOLDER / "train-gpu.in"
OVERRIDES = FOLDER / "train-gpu.overrides.txt"
EXTRAS = ("train", "vllm")
VERIFIED = FOLDER / "train-cpu.txt"
CORE = "core"
LIGHT = (CORE, "serve", "data", "hf", "api")
"""Extras with a lock each, ``CORE`` without any. Those of the others are train-cpu, train-gpu and serve-vllm."""
PYTHONS = ("3.10", "3.11", "3.12")
LAST_DAY = "2025-10-15"
FROM_SOURCE = ("antlr4-python3-runtime", "pylatexenc")
PLATFORMS = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in (5, *range(12, 32))))
"""What Debian 11, Ubuntu 20.04 and later can load: glibc 2.31 and earlier."""
HEADER = f"""\
# The training environment on GPUs: Python {PYTHONS[0]} to {PYTHONS[-1]}, Linux x86-64, as of {LAST_DAY}.
# constraints/lock.py makes it; train-gpu.in gives the reasons for its pins, train-gpu.overrides.txt the exceptions.
# Install with scripts/setup_gpu.sh (or pip --no-deps: with dependencies, pip refuses the exceptions).
"""


class Pin(NamedTuple):
    """A line of the lock."""

    version: str
    extras: frozenset[str]


def read_requirements(path: Path) -> list[Requirement]:
    """The lines of a requirements file that has neither options nor continued lines."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def environment(python: str) -> dict[str, str]:
    """Values of environment markers on Linux x86-64, for a version such as ``3.10``."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }


def applies(requirement: Requirement, python: str, extras: Iterable[str] = ()) -> bool:
    """Whether a package that is wanted with ``extras`` has this requirement on ``python``."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**environment(python), "extra": extra}) for extra in ("", *extras))


def read_pins(path: Path, python: str) -> dict[str, Pin]:
    """By normalized name, the lines of a lock that apply to ``python``."""
    pins = {}
    for requirement in read_requirements(path):
        if applies(requirement, python):
            (version,) = requirement.specifier
            extras = frozenset(canonicalize_name(extra) for extra in requirement.extras)
            pins[canonicalize_name(requirement.name)] = Pin(version.version, extras)
    return pins


def resolve(lock: Path) -> None:
    """Write the lock."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "pyproject.toml",
        str(INPUT),
        "--overrides",
        str(OVERRIDES),
    ]
    for extra in EXTRAS:
        command += ["--extra", extra]
    command += ["--universal", "--python-version", PYTHONS[0], "--exclude-newer", f"{LAST_DAY}T23:59:59Z", "--upgrade"]
    command += ["--quiet", "--no-annotate", "--no-header", "--no-strip-extras", "--output-file", str(lock)]
    subprocess.run(command, cwd=ROOT, check=True)
    lock.write_text(HEADER + lock.read_text())


def lock_of(extra: str) -> Path:
    """The lock of one of ``LIGHT``."""
    return FOLDER / f"{extra}.txt"


def resolve_light(extra: str, lock: Path) -> None:
    """Write the lock of one of ``LIGHT``."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--constraint", str(VERIFIED)]
    command += [] if extra == CORE else ["--extra", extra]
    command += ["--universal", "--python-version", "3.11", "--quiet", "--no-annotate", "--no-header"]
    command += ["--output-file", str(lock)]  # without extras, which pip refuses in constraints
    subprocess.run(command, cwd=ROOT, check=True)
    line = "pip install --constraint constraints/{}.txt -e '{}'".format(extra, "." if extra == CORE else f".[{extra}]")
    lock.write_text(
        f"# {line}\n# Python 3.11 and 3.12; the versions of train-cpu.txt. Made by lock.py.\n{lock.read_text()}"
    )


def read_metadata(lock: Path) -> dict[str, dict[str, Any]]:
    """``requires_python`` and ``requires_dist`` by ``name==version``, of every package of the lock.

    Requirements that apply to none of ``PYTHONS`` are left out, as are those of extras that nothing asks for.
    """
    packages: dict[str, dict[str, Any]] = {}
    for python in PYTHONS:
        pins = read_pins(lock, python)
        for item in _report(pins, python)["install"]:
            said = item["metadata"]
            name = canonicalize_name(said["name"])
            needs = [
                need for need in said.get("requires_dist", []) if applies(Requirement(need), python, pins[name].extras)
            ]
            package = packages.setdefault(f"{name}=={said['version']}", {"requires_dist": []})
            package["requires_python"] = said.get("requires_python", "")
            package["requires_dist"] = sorted({*package["requires_dist"], *needs})
    return dict(sorted(packages.items()))


def _report(pins: dict[str, Pin], python: str) -> dict[str, Any]:
    """What pip would install for ``python``."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-"]
    command += ["--quiet", "--use-feature=fast-deps", "--implementation", "cp", "--python-version", python]
    command += ["--only-binary", ":all:", "--no-binary", ",".join(FROM_SOURCE)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text("".join(f"{name}=={pin.version}\n" for name, pin in pins.items()))
        command += ["--target", folder, "--requirement", str(wanted)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, LOCK.name)
        resolve(made)
        texts = {LOCK: made.read_text(), METADATA: json.dumps(read_metadata(made), indent=1) + "\n"}
        for extra in LIGHT:
            resolve_light(extra, made)
            texts[lock_of(extra)] = made.read_text()
    for path, text in texts.items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"lock.py: error: {path.relative_to(ROOT)} is not what lock.py gives")


if __name__ == "__main__":
    main()
