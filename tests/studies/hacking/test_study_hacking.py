"""The study at its smallest, through the public commands: three policies, one report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_study_runs_on_a_cpu_and_reports_three_policies(tmp_path):
    command = [sys.executable, "-m", "cobalt", "study", "hacking", "--size", "cpu", "--output_dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    tables = json.loads((tmp_path / "report" / "report.json").read_text())["tables"]
    policies = ["base", "Cobalt", "Cobalt + perturbation"]
    for key in ("pass1_clean", "pass1_perturbed", "hacking"):
        assert [row["run"] for row in tables[key]["rows"]] == policies
    assert [row["run"] for row in tables["cost"]["rows"]] == policies[1:]
    (fully_specified,) = {row["problems"] for row in tables["hacking"]["rows"]}
    assert 0 < fully_specified < 12
