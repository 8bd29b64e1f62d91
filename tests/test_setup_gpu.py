"""``scripts/setup_gpu.sh`` says in one line what is wrong, before anything is installed."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from test_constraints import ROOT, pins

SCRIPT = ROOT / "scripts" / "setup_gpu.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """First on PATH: no GPU, and the compiler of CUDA 13."""
    for name, script in {
        "nvidia-smi": "exit 9",
        "nvcc": "echo 'Cuda compilation tools, release 13.0, V13.0.88'",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "knobs", "exit_code", "reason"),
    [
        ([], {}, 3, "no NVIDIA GPU"),
        ([], {"FLASH_ATTN": "source"}, 3, "the compiler of CUDA 12"),
        ([], {"PYTHON": "python-of-nobody"}, 3, "no 'python-of-nobody' here"),
        ([], {"CHECK_MACHINE": "yes"}, 2, "CHECK_MACHINE is 0 or 1, not 'yes'"),
        (["--force"], {}, 2, "no argument '--force'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    programs: Path, arguments: list[str], knobs: dict[str, str], exit_code: int, reason: str
) -> None:
    venv = programs / "venv"
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", SCRIPT, *arguments],
        env={**os.environ, "PATH": path, "VENV": str(venv), **knobs},
        capture_output=True,
        text=True,
    )
    assert done.returncode == exit_code
    assert done.stdout == ""
    assert re.fullmatch(rf"setup_gpu\.sh: error: .*{re.escape(reason)}.*\n", done.stderr)
    assert not venv.exists()


def test_the_wheel_of_flash_attn_is_for_the_locked_torch() -> None:
    (of_wheel,) = re.findall(r"%2Bcu12torch([\d.]+?)cxx11abi", SCRIPT.read_text())
    assert pins("train-gpu", "3.12")["torch"].startswith(f"{of_wheel}.")
