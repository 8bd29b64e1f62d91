"""Recipes of stored answers, in processes of their own, that are killed and go on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from online_parts import ROOT
from waiting import wait_for

from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME


def killed_and_resumed(script: str, train_file: Path, settings: list[str], checkpoint: int) -> tuple[list[float], Path]:
    """Losses by step of a training that is killed once it has saved this checkpoint, and the merged model's folder."""
    folder, merged = train_file.with_name("out"), train_file.with_name("merged")
    knobs = {"PRESET": "cpu", "TRAIN_FILE": str(train_file), "OUTPUT_DIR": str(folder), "PYTHON": sys.executable}
    command, how = ["bash", script, *settings], {"cwd": ROOT, "env": {**os.environ, **knobs}}
    tracker = folder / TRACKER_NAME
    process = subprocess.Popen(command, **how)
    wait_for(lambda: tracker.exists() and int(tracker.read_text()) >= checkpoint)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    subprocess.run(command, **how, check=True)
    subprocess.run(["bash", "scripts/merge_checkpoint.sh", folder, merged], **how, check=True)
    return [row["train/loss"] for row in map(json.loads, (folder / METRICS_FILE).read_text().splitlines())], merged
