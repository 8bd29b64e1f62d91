"""Every hostile program, in both modes, under both servers: the right verdict, and the next one is served as ever."""

import json
import subprocess
import sys

import pytest
from hostile import ALL, EXHAUSTION
from places import LONG_CASES_IN
from suite_runner import ANSWERS

from cobalt.sandbox.probe_program import PROBES
from cobalt.sandbox.selftest import PROBE_PROGRAM, canaries


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_case(case, place, outcomes):
    if case in EXHAUSTION and place not in LONG_CASES_IN:
        pytest.skip("run in another place of this mode")
    outcome = outcomes["cases"][case.name]
    assert outcome["infra"] is None
    pairs = list(zip(outcome["verdicts"], case.verdicts, strict=True))
    assert all(found in allowed.split("|") for found, allowed in pairs), pairs
    assert outcome["next"] == ["passed"]


@pytest.mark.parametrize("name", PROBES)
def test_probe_is_contained(name, outcomes):
    assert outcomes["probes"][name] == {"outcome": "contained", "next": ["passed"]}


def test_outcomes_are_of_their_mode(place, outcomes):
    assert outcomes["mode"] == place.mode


def test_nothing_that_python_does_not_need_can_be_read(outcomes):
    (needed, offered), (read, others) = outcomes["reading"]["offered"], outcomes["reading"]["read"]
    assert (needed, len(read)) == (2, 2)
    assert offered > 100
    assert others == []


@pytest.mark.parametrize("kind", ["own", "program"])
def test_no_program_can_choose_what_becomes_of_its_checker(kind, outcomes):
    """Where the checker fails on an answer, that is wrong; where it fails on the expected one, nothing is known."""
    assert outcomes["checkers"][kind] == [*ANSWERS.values(), "infra_error"]


def test_a_test_waits_no_longer_than_it_lives(outcomes):
    assert outcomes["waves"] <= 0


HARMLESS_OUTSIDE = [
    "read_secret_file", "path_socket", "abstract_socket", "fork", "raw_clone", "raw_clone3", "tcp_socket", "udp_socket",
    "signal_outside", "inherited_environment", "anonymous_file", "open_process", "datagram_pair_to_path", "spawn",
    "execute", "netlink_socket", "read_account_file", "list_processes", "list_home_directories", "signal_everybody",
    "signal_thread", "change_personality", "raise_memory_limit",
]  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS_OUTSIDE)
def test_probe_escapes_where_nothing_holds_it(name):
    """A probe that reported containment for any other reason would prove nothing."""
    with canaries() as laid_out:
        done = subprocess.run(
            [sys.executable, str(PROBE_PROGRAM)], input=json.dumps({"names": [name], **laid_out}),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert f"{name}: ESCAPED" in done.stdout
