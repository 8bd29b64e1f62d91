"""Sandboxes for the tests: mode ``namespaces`` here, ``landlock`` in a process without privileges and namespaces."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from suite_runner import ORDINARY_USER, run_everything

from cobalt.sandbox.modes import MODES
from cobalt.sandbox.selftest import examine

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("suite_runner.py")
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


def run_suite_runner(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """``suite_runner.py`` by a Python that everybody can read."""
    site = str(Path(numpy.__file__).parents[1])
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join([str(ROOT), site])}
    command = [ordinary_python(), str(RUNNER), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd="/")


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where namespaces are refused; the message says why."""
    report = examine("namespaces")
    if report.missing is not None:
        pytest.skip(f"mode namespaces does not hold here: {report.missing}")


@pytest.fixture(scope="session", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Each mode in turn."""
    return request.param


@pytest.fixture(scope="session")
def outcomes(mode: str, request: pytest.FixtureRequest) -> dict:
    """Every hostile case and probe, run once in this mode."""
    if mode == "landlock":
        return landlock_report("--unprivileged", "--without", "namespaces")
    request.getfixturevalue("namespaces")
    return asyncio.run(run_everything(mode))


def landlock_report(*arguments: str) -> dict:
    """What ``suite_runner.py`` prints; skips the test if mode ``landlock`` does not hold here."""
    done = run_suite_runner(*arguments)
    if "Landlock version" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
