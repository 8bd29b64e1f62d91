"""Where the tests run programs, and scripts that run there: each mode, and who the server is."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest
from suite_runner import ORDINARY_USER

ROOT = Path(__file__).parents[2]
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_VERSION = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"


@dataclass(frozen=True)
class Place:
    """A mode, and who the server is: ``root`` or an ``ordinary`` user."""

    mode: str
    server: str

    @property
    def arguments(self) -> list[str]:
        """For ``suite_runner.py``."""
        return ["--mode", self.mode, *(["--unprivileged"] if self.server == "ordinary" else [])]


LONG_CASES_IN = (Place("namespaces", "root"), Place("landlock", "ordinary"))
PLACES = [Place(mode, server) for mode in ("namespaces", "landlock") for server in ("root", "ordinary")]


def ordinary_python() -> str:
    """A Python of this version that an ordinary user can run; skips the test if there is none."""
    for python in (os.path.realpath(sys.executable), *SYSTEM_PYTHONS):
        try:
            user = {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": []} if os.getuid() == 0 else {}
            done = subprocess.run([python, "-c", _VERSION], check=False, capture_output=True, **user)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip("no Python of this version that an ordinary user could run")


def start_script(name: str, *arguments: str) -> "subprocess.Popen[str]":
    """A script beside this file, by a Python that everybody can read."""
    site = str(Path(numpy.__file__).parents[1])
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join([str(ROOT), site])}
    environment["PYTEST_XDIST_WORKER"] = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    command = [ordinary_python(), str(Path(__file__).with_name(name)), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, cwd="/")


def run_suite_runner(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """``suite_runner.py`` with these arguments and this standard input, to its end."""
    process = start_script("suite_runner.py", *arguments)
    stdout, stderr = process.communicate(given)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def skip_without_landlock(errors: str) -> None:
    """Skip the test if this is what a script says where mode ``landlock`` does not hold."""
    if "Landlock version" in errors:
        pytest.skip(errors.strip().splitlines()[-1])


def report(*arguments: str, given: str = "") -> dict:
    """What ``suite_runner.py`` prints; skips the test if mode ``landlock`` is wanted and does not hold here."""
    done = run_suite_runner(*arguments, given=given)
    skip_without_landlock(done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
