"""Trainings on one host do not take each other's weights."""

import json
import subprocess
import sys
from pathlib import Path

from omegaconf import OmegaConf
from online_parts import compose

from cobalt.training.cluster import process_variables
from cobalt.training.config import completed


def test_each_training_sends_its_weights_to_its_own_engine():
    config = completed(compose())
    model, rollout = (OmegaConf.to_container(config.actor_rollout_ref[name]) for name in ("model", "rollout"))
    variables = [process_variables(config) for _ in range(2)]
    trainings = {"modules": model["external_lib"], "rollout": rollout, "variables": variables}
    command = [sys.executable, str(Path(__file__).with_name("weight_sockets.py")), json.dumps(trainings)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # with one socket they take each other's, or wait for ever
    assert json.loads(printed.splitlines()[-1]) == [[*map(float, range(20))], [*map(float, range(20, 40))]]
