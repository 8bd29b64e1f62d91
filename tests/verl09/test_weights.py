"""Trainings on one host do not take each other's weights."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

try:
    IS_HERE = version("verl") == "0.9.1"
except PackageNotFoundError:
    IS_HERE = False
if not IS_HERE:
    pytest.skip("needs veRL 0.9.1: bash scripts/setup.sh now", allow_module_level=True)


def test_each_training_sends_its_weights_to_its_own_engine() -> None:
    command = [sys.executable, str(Path(__file__).with_name("weight_sockets.py"))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # with one socket they take each other's, or wait for ever
    assert json.loads(printed.splitlines()[-1]) == [[*map(float, range(20))], [*map(float, range(20, 40))]]
