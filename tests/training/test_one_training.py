"""One training writes in a folder, and none outlives the recipe that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.records.jsonl import is_taken
from cobalt.records.training_run import LOCK_NAME, hold_folder

ROOT = Path(__file__).parents[2]
PROGRAM = """#!/usr/bin/env bash
case "$(basename "$0") $*" in
  python*socket*) exec @REAL@ "$@" ;;
  ray*--head*) what=ray ;;
  *train*--log*) what=training ;;
  ray*status) echo " 1 node_0" && exit ;;
  *) exit ;;
esac
echo $$ >"$FOLDER/$what.pid.new"
mv "$FOLDER/$what.pid.new" "$FOLDER/$what.pid"
exec sleep 60
"""
"""In place of Ray and Python: Ray and the training say their process and wait."""


def start(folder):
    """The recipe, with programs that only wait."""
    for name in ("ray", "python"):
        (folder / name).write_text(PROGRAM.replace("@REAL@", sys.executable))
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": "python", "FOLDER": str(folder)}
    environment |= {"PRESET": "cpu", "EXECUTOR": "local", "OUTPUT_DIR": str(folder / "out")}
    command = ["bash", "scripts/train_grpo_multi_turn.sh"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=pipe, text=True)


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def running(tmp_path):
    recipe = start(tmp_path)
    files = [tmp_path / "ray.pid", tmp_path / "training.pid"]
    wait_for(lambda: all(file.exists() for file in files))
    pids = [int(file.read_text()) for file in files]
    yield recipe, pids
    recipe.kill()
    recipe.communicate()
    for pid in filter(is_alive, pids):
        os.kill(pid, signal.SIGKILL)


def test_a_second_training_in_a_folder_names_the_first(tmp_path):
    refusal = pytest.raises(InputError, match=rf"process {os.getpid()} on \S+ is training")
    with hold_folder(tmp_path), refusal, hold_folder(tmp_path):
        pytest.fail("it trains")
    with hold_folder(tmp_path):
        pass


def test_a_training_holds_the_folder_that_its_recipe_has_locked(tmp_path):
    refusal = pytest.raises(InputError, match=str(os.getpid()))
    with open(tmp_path / LOCK_NAME, "w+") as recipe:
        assert not is_taken(recipe)
        with hold_folder(tmp_path, os.dup(recipe.fileno())), refusal, hold_folder(tmp_path):
            pytest.fail("it trains")


def test_a_second_recipe_starts_nothing(tmp_path, running):
    recipe, pids = running
    for name in ("ray.pid", "training.pid"):
        (tmp_path / name).unlink()
    second = start(tmp_path)
    _, errors = second.communicate(timeout=30)
    assert second.returncode == 2
    told = f"train_grpo_multi_turn.sh: error: {tmp_path}/out: process {recipe.pid} on "
    assert errors.startswith(told) and errors.count("\n") == 1
    assert not list(tmp_path.glob("*.pid"))
    assert all(map(is_alive, pids))


def test_ray_and_the_training_end_with_a_killed_recipe(tmp_path, running):
    recipe, pids = running
    recipe.kill()
    wait_for(lambda: not any(map(is_alive, pids)))
    with hold_folder(tmp_path / "out"):
        pass
