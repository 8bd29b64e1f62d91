"""The benchmark of whole steps computes responses of the length that it says."""

import json
import shutil
from pathlib import Path

import bench_recipe
import pytest
from verl.utils.model import get_generation_config

from cobalt.errors import InputError, SetupError

ROOT = Path(__file__).parents[2]


def test_a_response_ends_nowhere(tmp_path):
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
    step = dict.fromkeys(bench_recipe.PHASES.values(), 1.0) | {
        "perf/mfu/actor": 0.1,
        "perf/max_memory_allocated_gb": 1.0,
    }
    found = bench_recipe.figures(config, "ours", step | {"prompt_length/mean": 50.2, "response_length/mean": 100.0})
    assert (found["prompt"], found["response"]) == (50, 100)
    with pytest.raises(SetupError, match="responses had 17 tokens on average, not 100"):
        bench_recipe.figures(config, "ours", step | {"prompt_length/mean": 50.2, "response_length/mean": 17.1})


def test_files_that_are_missing_are_named(tmp_path):
    for model, data in (("nowhere", "README.md"), ("assets/minicoder", "nowhere.parquet")):
        config = bench_recipe.RecipeBenchConfig(model=ROOT / model, train_file=ROOT / data, output_dir=tmp_path / "out")
        with pytest.raises(InputError, match=r"nowhere.*no such file"):
            bench_recipe.main(config)
    assert not (tmp_path / "out").exists()


def test_the_releases_run_has_its_values():
    overrides = bench_recipe.release_overrides("paper-qwen3-h200", ["data.train_batch_size=2"])
    policy = "actor_rollout_ref"
    assert set(overrides) == {
        "cobalt.share_prompts=false",
        "reward_model.launch_reward_fn_async=False",
        f"{policy}.actor.fsdp_config.optimizer_offload=True",
        f"{policy}.actor.ppo_max_token_len_per_gpu=16384",
        f"{policy}.actor.use_dynamic_bsz=False",
        f"{policy}.model.use_liger=False",
        f"{policy}.ref.log_prob_max_token_len_per_gpu=16384",
        f"{policy}.ref.log_prob_use_dynamic_bsz=False",
        f"{policy}.rollout.gpu_memory_utilization=0.7",
        f"{policy}.rollout.log_prob_max_token_len_per_gpu=16384",
        f"{policy}.rollout.log_prob_use_dynamic_bsz=False",
    }
    assert "enforce_eager" not in " ".join(overrides), "both sample with CUDA graphs"
    kept = bench_recipe.release_overrides("paper-qwen3-h200", [f"{policy}.rollout.gpu_memory_utilization=0.5"])
    assert not any("gpu_memory_utilization" in override for override in kept)
