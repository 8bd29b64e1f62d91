"""Nothing outlives what it belongs to, however that ends: the server, a worker, a zygote, a program."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from places import Place, report, skip_without_landlock, start_script
from processes import children, depth, identity, ignores_its_limit, left, wait_until

DEPTHS = {"namespaces": 5, "landlock": 4}
"""Generations from the server to a test: worker, zygote (two with namespaces, as one waits outside), program, test."""


@contextmanager
def serving(place: Place) -> Iterator["subprocess.Popen[str]"]:
    """A server with a test that ignores every signal it can."""
    server = start_script("suite_runner.py", *place.arguments, "--scenario", "server")
    assert server.stdin is not None and server.stdout is not None
    try:
        if server.stdout.readline() != "started\n":
            _, errors = server.communicate()
            skip_without_landlock(errors)
            pytest.fail(errors[-2000:])
        assert wait_until(lambda: _stubborn(server.pid, place))
        yield server
    finally:
        server.kill()
        server.communicate()


def _stubborn(top: int, place: Place) -> list[int]:
    """The tests that run, all the way down."""
    return [pid for pid in children(top) if depth(pid, top) == DEPTHS[place.mode] and ignores_its_limit(pid)]


def _close(server: "subprocess.Popen[str]") -> None:
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    assert server.stdout.readline() == "closed\n"


def _expect_the_end(server: "subprocess.Popen[str]", place: Place, end: Callable[..., None]) -> None:
    below = [identity(pid) for pid in children(server.pid)]
    assert len(below) >= DEPTHS[place.mode]
    end(server)
    assert wait_until(lambda: not left(below)), left(below)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_server(place, number):
    with serving(place) as server:
        _expect_the_end(server, place, lambda server: os.kill(server.pid, number))


def test_nothing_outlives_a_process_that_is_killed_within_or_the_executor(place):
    with serving(place) as server:
        for generation in range(1, DEPTHS[place.mode]):
            assert wait_until(lambda: _stubborn(server.pid, place))
            (test,) = _stubborn(server.pid, place)
            victim = next(p for p in children(server.pid) if depth(p, server.pid) == generation and test in children(p))
            below = [identity(pid) for pid in (victim, *children(victim))]
            os.kill(victim, signal.SIGKILL)
            assert wait_until(lambda below=below: not left(below)), f"generation {generation}: {left(below)}"
        assert wait_until(lambda: _stubborn(server.pid, place))
        _expect_the_end(server, place, _close)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_random_kills_cost_no_verdict_and_leave_nothing(place):
    """500 programs, one in ten of which ignores its limits; after every ten that end a process is killed."""
    found = report(*place.arguments, "--scenario", "kills")
    assert found["killed"] > 0
    assert (found["wrong"], found["left"]) == ([], [])
    assert len(found["infra"]) <= 5
