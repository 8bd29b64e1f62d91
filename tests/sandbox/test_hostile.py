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
    assert all(found in allowed.split("|") for found, allowed in pairs), (pairs, outcome["shown"])
    assert outcome["next"] == ["passed"]


@pytest.mark.parametrize("name", PROBES)
def test_probe_is_contained(name, outcomes):
    outcome = outcomes["probes"][name]
    assert (outcome["verdict"], outcome["next"]) == ("passed", True), outcome["shown"]


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


def test_compiling_is_cut_short_by_its_turn_and_ended_by_its_limit(outcomes):
    assert outcomes["compiling"] == ["TurnOver", "CompileFailure"]


def test_a_test_waits_no_longer_than_it_lives(outcomes):
    assert outcomes["waves"] <= 0


def test_programs_are_run_for_what_they_print(outcomes):
    """Their whole output, and the files in their working folder."""
    found = dict(outcomes["unjudged"])
    assert found.pop("left") == [], "files go with their program"
    printed = "some words 5 ['data', 'helper.py'] {}\nnot written\nnot written\n"
    assert [output[:4] for output in found["files"]] == [["passed", printed.format(text), "", 0] for text in "12"]
    assert [output[1] for output in found["no files"]] == ["False\n"]
    assert [output[:2] for output in found["one turn"]] == [["passed", "a" * 1000 + "\n"]]
    assert [(output[0], output[3]) for output in found["alone"]] == [("time_limit", -9)]
    loud = ["runtime_error", "x" * (3 << 20) + "\n", "y", 3]
    assert [output[:4] for output in found["loud"]] == [loud, loud], "until they have printed what one test may"
    assert [(output[0], output[3]) for output in found["memory"]] == [("memory_limit", 137)]
    for name in ("no text", "control characters"):
        assert [(output[0], len(output[1])) for output in found[name]] == [("output_limit", 1 << 16)]
    assert [output[0] for output in found["much text"]] == ["passed"]
    assert found["refused"] == ["no files: File name too long", True]
    assert [(output[0], output[3]) for output in found["no Python"]] == [("compile_error", 1)] * 2
    assert "SyntaxError" in found["no Python"][1][2]


HARMLESS_OUTSIDE = [
    "read_secret_file", "path_socket", "abstract_socket", "fork", "raw_clone", "raw_clone3", "tcp_socket", "udp_socket",
    "signal_outside", "inherited_environment", "anonymous_file", "open_process", "datagram_pair_to_path", "spawn",
    "netlink_socket", "read_account_file", "list_processes", "list_home_directories", "signal_everybody",
    "signal_thread", "change_personality", "raise_memory_limit", "execute",  # which ends the process
]  # fmt: skip


def test_probes_escape_where_nothing_holds_them():
    """A probe that reported containment for any other reason would prove nothing."""
    with canaries() as laid_out:
        question = json.dumps({"names": HARMLESS_OUTSIDE, **laid_out})
        command = [sys.executable, str(PROBE_PROGRAM)]
        done = subprocess.run(command, input=question, capture_output=True, text=True, check=True)
    escaped = [line.partition(": ESCAPED")[0] for line in done.stdout.splitlines() if ": ESCAPED" in line]
    assert escaped == HARMLESS_OUTSIDE
