"""Each mode under a root server and under an ordinary user's, and what became of the hostile cases there."""

import asyncio
import os

import pytest
from places import PLACES, Place, report
from suite_runner import SCENARIOS

from cobalt.sandbox.confinement import MODES
from cobalt.sandbox.selftest import examine


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where namespaces are refused; the message says why."""
    report = examine("namespaces")
    if report.missing is not None:
        pytest.skip(f"mode namespaces does not hold here: {report.missing}")


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
        return asyncio.run(SCENARIOS["all"](place.mode))
    if place == Place("landlock", "ordinary"):
        return report("--unprivileged", "--without", "namespaces", "--scenario", "all")  # chosen by the self-test
    return report(*place.arguments, "--scenario", "quick")
