"""Each mode under a root server and under an ordinary user's, and what became of the hostile cases there."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from places import PLACES, Place, report
from suite_runner import SCENARIOS

from cobalt.sandbox import ExecutionResult, Executor
from cobalt.sandbox.confinement import MODES
from cobalt.sandbox.selftest import examine


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where namespaces are refused; the message says why."""
    report = examine("namespaces")
    if report.missing is not None:
        pytest.skip(f"mode namespaces does not hold here: {report.missing}")


class Sandbox:
    """One executor, in an event loop of its own, for all tests that need no other settings."""

    def __init__(self) -> None:
        self._runner, self.executor = asyncio.Runner(), Executor(workers=1)
        self.wait(self.executor.start())

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine returns."""
        return self._runner.run(work)

    def run(self, code: Any, tests: Any) -> ExecutionResult:
        """As ``Executor.run``."""
        return self.wait(self.executor.run(code, tests))

    def run_many(self, programs: list[tuple[str, Any]]) -> list[ExecutionResult]:
        """As ``Executor.run_many``."""
        return self.wait(self.executor.run_many(programs))

    def close(self) -> None:
        self.wait(self.executor.close())
        self._runner.close()


@pytest.fixture(scope="session")
def sandbox(namespaces) -> Iterator[Sandbox]:
    """Default settings, one worker."""
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


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
