"""The step's benchmark runs, and its paths compute the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench_step(home, *flags):
    command = [sys.executable, "benchmarks/bench_step.py", *flags]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (["--lengths", "40"], 2, "--lengths 40: tokens of a prompt and of a response are wanted, such as 4096x2048"),
        (["--shape", "8b"], 3, "--shape 8b needs a GPU; without one there is --shape tiny"),
    ],
)
def test_what_it_cannot_measure_is_refused_before_a_model_is_made(tmp_path, flags, code, told):
    done = bench_step(tmp_path, *flags)
    assert (done.returncode, done.stderr) == (code, f"bench_step.py: error: {told}\n")


def test_verls_own_passes_and_shared_prompts_give_the_same_step(tmp_path):
    model, batch = ["--shape", "tiny", "--layers", "1"], ["--lengths", "8x4", "--samples", "4", "--max_tokens", "20"]
    flags = [*model, *batch, "--rounds", "1", "--output_file", str(tmp_path / "step.json")]
    done = bench_step(tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads((tmp_path / "step.json").read_text())
    assert [(row["phase"], row["path"]) for row in result["phases"]][:2] == [
        ("old log-probs", "verl"),
        ("old log-probs", "shared"),
    ]
    assert all(row["seconds"] > 0 for row in result["phases"])
    differences = result["differences"]
    assert differences["old log-probs, shared"]["most"] < 1e-4
    assert differences["entropies, shared"]["most"] < 1e-4
    assert differences["gradient norm, shared"] == pytest.approx(differences["gradient norm, verl"], rel=1e-4)
