"""The cost model fits what was measured, and its page shows what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_OFF = 20  # per cent


def scale_model(*flags):
    command = [sys.executable, "benchmarks/scale_model.py", *flags]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else pytest.fail(done.stderr)


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_measured_phase_is_predicted():
    offs = {(where, phase): int(off.rstrip("%")) for where, phase, _, _, off in cells(scale_model("--check"))}
    assert len(offs) == 25
    assert all(abs(off) <= MOST_OFF for off in offs.values()), offs


@pytest.mark.parametrize("flag", ["--check", "--tables"])
def test_the_page_shows_the_models_tables(flag):
    page = (ROOT / "docs/scale.md").read_text()
    for table in scale_model(flag).split("\n\n"):
        assert table in page


def test_more_gpus_make_a_step_shorter_and_an_example_dearer():
    def step(gpus):
        values = dict(cells(scale_model("--gpus", str(gpus))))
        return float(values["step"]), float(values["GPU-seconds per example"])

    (few, cheap), (many, dear) = step(4), step(64)
    assert many < few
    assert dear > cheap
