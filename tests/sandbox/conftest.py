"""Sandboxes for the tests: each mode under a root server and under an ordinary user's."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest
from hostile import ALL
from suite_runner import ORDINARY_USER, run_everything

from cobalt.sandbox.confinement import MODES
from cobalt.sandbox.selftest import examine

ROOT = Path(__file__).parents[2]
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_VERSION = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"


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
    command = [ordinary_python(), str(Path(__file__).with_name(name)), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, cwd="/")


def run_suite_runner(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """``suite_runner.py`` with these arguments, to its end."""
    process = start_script("suite_runner.py", *arguments)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where namespaces are refused; the message says why."""
    report = examine("namespaces")
    if report.missing is not None:
        pytest.skip(f"mode namespaces does not hold here: {report.missing}")


@dataclass(frozen=True)
class Place:
    """A mode, and who the server is: ``root`` or an ``ordinary`` user."""

    mode: str
    server: str

    @property
    def arguments(self) -> list[str]:
        """For ``suite_runner.py`` and ``lifetimes.py``."""
        return ["--mode", self.mode, *(["--unprivileged"] if self.server == "ordinary" else [])]


LONG_CASES_IN = (Place("namespaces", "root"), Place("landlock", "ordinary"))
PLACES = [Place(mode, server) for mode in ("namespaces", "landlock") for server in ("root", "ordinary")]


@pytest.fixture(scope="session", params=PLACES, ids=lambda place: f"{place.mode}-{place.server}")
def place(request: pytest.FixtureRequest) -> Place:
    """Each mode under each server in turn; skips those that this machine has not."""
    if request.param.server == "root" and os.getuid() != 0:
        pytest.skip("needs root")
    if request.param.mode == "namespaces":
        request.getfixturevalue("namespaces")
    return request.param


@pytest.fixture(scope="session", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Each mode in turn."""
    return request.param


@pytest.fixture(scope="session")
def outcomes(place: Place) -> dict:
    """The hostile cases and probes, run once in this place; what takes long in one place per mode."""
    if place == Place("namespaces", "root"):
        return asyncio.run(run_everything(place.mode, ALL))
    if place == Place("landlock", "ordinary"):
        return report("--all", "--without", "namespaces", "--unprivileged")  # chosen by the self-test
    return report(*place.arguments)


def skip_without_landlock(errors: str) -> None:
    """Skip the test if this is what a script says where mode ``landlock`` does not hold."""
    if "Landlock version" in errors:
        pytest.skip(errors.strip().splitlines()[-1])


def report(*arguments: str) -> dict:
    """What ``suite_runner.py`` prints; skips the test if mode ``landlock`` is wanted and does not hold here."""
    done = run_suite_runner(*arguments)
    skip_without_landlock(done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
