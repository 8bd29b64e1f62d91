"""The real evaluator app is killed in the middle of a batch: the benchmark of it, at its smallest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cobalt.sandbox.selftest import examine

ROOT = Path(__file__).parents[2]
RESPONSES = 64


def number(row, output):
    """The number in a row of the benchmark's table."""
    return float(re.search(rf"{row}\D*([\d.]+)", output)[1])


@pytest.mark.slow
@pytest.mark.ci
def test_a_killed_evaluator_costs_time_and_no_sample():
    if examine("namespaces").missing is not None and examine("landlock").missing is not None:
        pytest.skip("no sandbox here")
    command = [sys.executable, "benchmarks/bench_rewards.py", "--interrupt_s", "1"]
    command += ["--responses", str(RESPONSES), "--tests", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert number("replicas killed", done.stdout) == 1
    assert number("kept away for 1 s", done.stdout) > 1
    assert number("infra failures", done.stdout) == 0
    assert number("right pass rates", done.stdout) == RESPONSES
