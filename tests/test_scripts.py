"""Every script explains itself and does nothing else; arguments that none knows are refused before anything runs."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), *ROOT.glob("scripts/slurm/*")])
NO_PROGRAMS = "/bin:/usr/bin"
"""Neither python nor ray of an environment: whatever a script would start fails."""


def call(script, *arguments, folder=ROOT, **environment):
    environment = {**os.environ, "PATH": NO_PROGRAMS, **environment}
    return subprocess.run(["bash", script, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_help(script, flag, tmp_path):
    if flag == "-h" and script.suffix == ".sbatch":
        pytest.skip("sbatch takes it for itself")
    done = call(script, flag, folder=tmp_path, RUN=str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (0, "")
    first = script.read_text().splitlines()[1].removeprefix("# ")
    assert done.stdout.startswith(first)
    assert not list(tmp_path.iterdir())


def test_the_recipes_help_lists_their_knobs():
    done = call(ROOT / "scripts" / "train_grpo_multi_turn.sh", "--help")
    assert "PRESET=paper-qwen3" in done.stdout and "Exit codes: 0 done" in done.stdout


@pytest.mark.parametrize("argument", ["--steps", "60", "stepz", "-x=1"])
def test_an_argument_that_is_no_override_does_not_block_the_folder(argument, tmp_path):
    done = call("scripts/quickstart.sh", argument, RUN=str(tmp_path / "run"), SETUP="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quickstart.sh: error: no argument '{argument}'")
    assert not list(tmp_path.iterdir())
