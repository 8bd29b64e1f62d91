"""Studies at their smallest, through the public commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tables_of(name: str, folder: Path, *flags: str) -> dict:
    command = [sys.executable, "-m", "research", "study", name, "--size", "cpu", "--output_dir", str(folder), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads((folder / "report" / "report.json").read_text())


SMALLER = ("--steps", "1", "--turns", "1", "--train_samples", "2", "--max_tokens", "160")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_policies_under_wrong_feedback(tmp_path):
    tables = tables_of("hacking", tmp_path, "--arms", "augmented", *SMALLER)["tables"]
    policies = ["base", "Cobalt + perturbation"]
    for key in ("pass1_clean", "pass1_perturbed", "hacking"):
        assert [row["run"] for row in tables[key]["rows"]] == policies
    assert [row["run"] for row in tables["cost"]["rows"]] == policies[1:]
    (fully_specified,) = {row["problems"] for row in tables["hacking"]["rows"]}
    assert 0 < fully_specified < 12


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_bound_of_a_base_and_of_two_steps_along_a_training(tmp_path):
    tables = tables_of("theory", tmp_path)
    rows = tables["gap"]["rows"]
    assert [row["policy"] for row in rows] == ["base", "cobalt-0-step-1", "cobalt-0-step-2"]
    base, *trained = (row["eta (nats)"] for row in rows)
    assert base == 0 and min(trained) > 0
    assert [row["in"] for row in tables["slopes"]["rows"]] == ["eta", "T - 1", "T - 1"]
    assert {row["turn"] for row in tables["distance"]["rows"]} == {0, 1, 2}
