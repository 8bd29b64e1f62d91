"""The study at its smallest, through the public commands: a base, two KL coefficients, one step along a training."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_study_runs_on_a_cpu_and_reports_four_policies(tmp_path):
    command = [sys.executable, "-m", "cobalt", "study", "theory", "--size", "cpu", "--output_dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    tables = json.loads((tmp_path / "report" / "report.json").read_text())
    rows = tables["gap"]["rows"]
    assert [row["policy"] for row in rows] == ["base", "kl+1e-3-0-step-1", "kl+1e-3-0", "kl+1e-1-0"]
    base, *trained = (row["eta (nats)"] for row in rows)
    assert base == 0 and min(trained) > 0
    assert {row["turn"] for row in tables["distance"]["rows"]} == {0, 1, 2}
