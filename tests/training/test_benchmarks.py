"""The benchmarks of training: what they refuse, that their paths compute the same, and that their pages are theirs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from verl.utils.model import get_generation_config

from benchmarks import bench_recipe, bench_step
from cobalt.errors import InputError, SetupError

ROOT = Path(__file__).parents[2]
POLICY = "actor_rollout_ref"


def run_benchmark(name, *flags, **environment):
    command = [sys.executable, f"benchmarks/{name}.py", *flags]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"lengths": ("40",)}, "--lengths 40: tokens of a prompt and of a response are wanted, such as 4096x2048"),
        ({"shape": "8b"}, "--shape 8b needs a GPU; without one there is --shape tiny"),
    ],
)
def test_what_a_step_cannot_measure_is_refused_before_a_model_is_made(monkeypatch, flags, told):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(bench_step, "Bench", None)
    with pytest.raises((InputError, SetupError)) as refused:
        bench_step.main(bench_step.BenchConfig(**flags))
    assert str(refused.value) == told


def test_verls_own_passes_shared_prompts_and_trees_give_the_same_step(tmp_path):
    """On the contexts of four trajectories, which begin alike."""
    model, batch = ["--shape", "tiny", "--layers", "1"], ["--lengths", "8x4", "--samples", "4", "--max_tokens", "40"]
    flags = [*model, *batch, "--turns", "3", "--online", "--rounds", "1", "--output_file", str(tmp_path / "step.json")]
    done = run_benchmark("bench_step", *flags, HOME=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads((tmp_path / "step.json").read_text())
    paths = [(row["phase"], row["path"]) for row in result["phases"]]
    assert paths[:3] == [("old log-probs", "verl"), ("old log-probs", "shared"), ("old log-probs", "tree")]
    assert all(row["seconds"] > 0 for row in result["phases"])
    differences = result["differences"]
    for path in ("shared", "tree"):
        assert differences[f"old log-probs, {path}"]["most"] < 1e-4
        assert differences[f"entropies, {path}"]["most"] < 1e-4
        assert differences[f"gradient norm, {path}"] == pytest.approx(differences["gradient norm, verl"], rel=1e-4)


def test_a_response_of_a_whole_step_ends_nowhere(tmp_path):
    model = tmp_path / "minicoder"
    shutil.copytree(ROOT / "assets/minicoder", model)
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0}))
    for _ in range(2):  # a second run finds the folder of the first
        folder = bench_recipe.endless(model, tmp_path / "endless")
    assert {file.name for file in folder.iterdir()} == {file.name for file in model.iterdir()}
    read = get_generation_config(str(folder))  # as veRL's rollouts do
    assert (read.eos_token_id, read.pad_token_id) == (1048, 0)
    assert json.loads((model / "generation_config.json").read_text())["eos_token_id"] == 2


def test_shorter_responses_are_no_figures(tmp_path):
    config = bench_recipe.RecipeBenchConfig(model=ROOT / "assets/minicoder", train_file=tmp_path, response=100)
    step = dict.fromkeys([*bench_recipe.PHASES.values(), "perf/mfu/actor", "perf/max_memory_allocated_gb"], 1.0)
    step["prompt_length/mean"] = 50.2
    found = bench_recipe.figures(config, "ours", step | {"response_length/mean": 100.0})
    assert (found["prompt"], found["response"]) == (50, 100)
    with pytest.raises(SetupError, match="responses had 17 tokens on average, not 100"):
        bench_recipe.figures(config, "ours", step | {"response_length/mean": 17.1})


def test_files_that_are_missing_are_named(tmp_path):
    for model, data in (("nowhere", "README.md"), ("assets/minicoder", "nowhere.parquet")):
        config = bench_recipe.RecipeBenchConfig(model=ROOT / model, train_file=ROOT / data, output_dir=tmp_path / "out")
        with pytest.raises(InputError, match=r"nowhere.*no such file"):
            bench_recipe.main(config)
    assert not (tmp_path / "out").exists()


def test_the_releases_run_has_its_values():
    """Both sample with CUDA graphs, so ``enforce_eager`` is not among them."""
    overrides = bench_recipe.release_overrides("paper-qwen3-h200", ["data.train_batch_size=2"])
    assert set(overrides) == {
        "cobalt.share_prompts=false",
        "reward_model.launch_reward_fn_async=False",
        f"{POLICY}.actor.fsdp_config.optimizer_offload=True",
        f"{POLICY}.actor.ppo_max_token_len_per_gpu=16384",
        f"{POLICY}.actor.use_dynamic_bsz=False",
        f"{POLICY}.model.use_liger=False",
        f"{POLICY}.ref.log_prob_max_token_len_per_gpu=16384",
        f"{POLICY}.ref.log_prob_use_dynamic_bsz=False",
        f"{POLICY}.rollout.gpu_memory_utilization=0.7",
        f"{POLICY}.rollout.log_prob_max_token_len_per_gpu=16384",
        f"{POLICY}.rollout.log_prob_use_dynamic_bsz=False",
    }
    kept = bench_recipe.release_overrides("paper-qwen3-h200", [f"{POLICY}.rollout.gpu_memory_utilization=0.5"])
    assert not any("gpu_memory_utilization" in override for override in kept)
