"""The recipes' configurations: the paper's values, and every preset composes; the scripts' knobs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import bench_recipe
import pytest
from hydra import compose, initialize_config_module
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from cobalt.errors import InputError
from cobalt.training.online.settings import online_settings
from cobalt.training.scoring import RewardSettings

ROOT = Path(__file__).parents[2]
PRESETS = sorted(path.stem for path in (ROOT / "verl/config/preset").glob("*.yaml"))


def compose_recipe(recipe, preset, *overrides):
    search = f"hydra.searchpath=[file://{ROOT}/verl/config]"
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [search, f"+recipe={recipe}", f"+preset={preset}", *overrides])


POLICY = "actor_rollout_ref"
RELEASE = {path.stem: json.loads(path.read_text()) for path in (ROOT / "tests/data/release").glob("*.json")}
OURS = {
    f"{POLICY}.actor.use_dynamic_bsz": (False, True),
    f"{POLICY}.actor.ppo_max_token_len_per_gpu": (16384, 32768),
    f"{POLICY}.ref.log_prob_use_dynamic_bsz": (False, True),
    f"{POLICY}.ref.log_prob_max_token_len_per_gpu": (16384, 32768),
    f"{POLICY}.rollout.log_prob_use_dynamic_bsz": (False, True),
    f"{POLICY}.rollout.log_prob_max_token_len_per_gpu": (16384, 32768),
    f"{POLICY}.model.use_liger": (False, True),
    "reward_model.launch_reward_fn_async": (False, True),
}
"""Every setting in which the paper's presets are not the release: its value, ours. docs/differences.md says why."""
ONLINE = ("grpo_online", "verpo_online")
MODELS = {"paper-qwen3": "Qwen/Qwen3-8B", "paper-r1-llama": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"}
PAPERS = [preset for preset in PRESETS if preset.startswith("paper")]


@pytest.mark.parametrize("preset", sorted(MODELS))
@pytest.mark.parametrize("recipe", ("multi_turn", "single_turn"))
def test_the_papers_presets_are_the_release_but_for_what_is_listed(recipe, preset):
    assert bench_recipe.differences(recipe, preset) == OURS
    config = compose_recipe(recipe, preset)
    assert (config.actor_rollout_ref.model.path, config.trainer.n_gpus_per_node) == (MODELS[preset], 4)


def test_the_releases_values_are_compared_and_not_left_out():
    """Of the settings that its script names, veRL knows all: each is compared, but for files and names."""
    config = compose_recipe("multi_turn", "paper-qwen3")
    named = RELEASE["multi_turn"]["overrides_in_the_script"]
    assert all(OmegaConf.select(config, name, default=named) is not named for name in named)
    values = bench_recipe.release_values("multi_turn")
    assert (values[f"{POLICY}.rollout.enforce_eager"], values[f"{POLICY}.rollout.max_num_seqs"]) == (False, 1024)
    assert values[f"{POLICY}.actor.use_remove_padding"] is True, "interpolations are resolved"
    changed = bench_recipe.differences("multi_turn", "paper-qwen3-h200")
    assert changed[f"{POLICY}.rollout.gpu_memory_utilization"] == (0.7, 0.45)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("recipe", ("multi_turn", "single_turn"))
def test_every_preset_is_whole(recipe, preset):
    config = compose_recipe(recipe, preset)
    is_papers, policy, reward = preset in PAPERS, config.actor_rollout_ref, config.reward_model
    assert reward.reward_manager == "cobalt"
    assert set(reward.reward_kwargs) == set(RewardSettings.model_fields)
    assert reward.reward_kwargs.lengths == ("o200k_base" if is_papers else "policy"), "as the paper counts them"
    assert policy.model.use_liger == is_papers, "Liger's kernels are those of the GPU environment"
    assert config.cobalt.loss_weights == ("tokens" if preset == "one-gpu-vllm" else "release")
    assert policy.actor.use_dynamic_bsz == (preset != "cpu")
    rows_per_gpu = policy.actor.ppo_mini_batch_size * policy.rollout.n // config.trainer.n_gpus_per_node
    assert rows_per_gpu % policy.actor.ppo_micro_batch_size_per_gpu == 0
    assert config.data.train_batch_size % policy.actor.ppo_mini_batch_size == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("recipe", ONLINE)
def test_online_recipes_differ_from_the_papers_in_what_online_training_needs(recipe, preset):
    online, multi_turn = compose_recipe(recipe, preset), compose_recipe("multi_turn", preset)
    settings = online_settings(online)
    assert (settings.method.method, settings.method.turns) == (recipe.removesuffix("_online"), 3)
    assert settings.model == multi_turn.actor_rollout_ref.model.path
    assert settings.reward.limits == {}
    differing = {"trainer.total_epochs", "trainer.project_name", "reward_model.reward_manager"}
    for name in {*RELEASE["multi_turn"]["overrides_in_the_script"], f"{POLICY}.rollout.enforce_eager"} - differing:
        assert OmegaConf.select(online, name) == OmegaConf.select(multi_turn, name), name


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("cobalt.online.method=ppo", "cobalt.online.method=ppo: Input should be 'grpo' or 'verpo'"),
        ("+cobalt.online.discount=1", "cobalt.online.discount: no such setting; there are method, turns, "),
        ("cobalt.online.turns=many", "cobalt.online.turns=many: Input should be a valid integer"),
        ("cobalt.online.turns=0", "greater than or equal to 1"),
        ("cobalt.online.gamma=2", "less than or equal to 1"),
        ("data.return_raw_chat=false", "cobalt.online needs data.return_raw_chat=True"),
        ("reward_model.reward_manager=cobalt", "reward_manager=cobalt_online, not cobalt"),
        ("actor_rollout_ref.rollout.name=sglang", "not sglang"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=2", "tensor_model_parallel_size=1"),
    ],
)
def test_settings_that_contradict_online_training_are_refused(override, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        online_settings(compose_recipe("grpo_online", "paper-qwen3", override))


def test_the_bandits_recipes_are_not_online():
    assert online_settings(compose_recipe("multi_turn", "cpu")) is None


def test_limits_of_a_local_executor_reach_online_rollouts():
    settings = online_settings(compose_recipe("grpo_online", "cpu", "+reward_model.reward_kwargs.cpu_limit_s=2"))
    assert (settings.reward.limits, settings.reward.require_end) == ({"cpu_limit_s": 2}, True)


def run_recipe(script, *arguments, **environment):
    command = ["bash", f"scripts/{script}", *arguments]
    environment = {**os.environ, "PYTHON": sys.executable, **environment}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


def test_dry_run_prints_the_resolved_configuration_and_starts_nothing(tmp_path):
    done = run_recipe(
        "train_grpo_multi_turn.sh",
        "--dry-run",
        "data.train_batch_size=96",
        PRESET="paper-qwen3",
        MODEL="some/model",
        N_GPUS="8",
        LOGGER="console,wandb",
        OUTPUT_DIR=str(tmp_path / "out"),
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), "there are no data"
    config = OmegaConf.create(done.stdout)
    assert config.data.train_batch_size == 96
    assert config.actor_rollout_ref.model.path == "some/model"
    assert config.trainer.n_gpus_per_node == 8
    assert config.trainer.logger == ["console", "wandb"]
    assert not (tmp_path / "out" / "ray.log").exists()


def test_a_misspelt_override_fails_and_says_which():
    done = run_recipe("train_grpo_single_turn.sh", "--dry-run", "actor_rollout_ref.actor.optim.lrr=1")
    assert done.returncode != 0
    assert "actor_rollout_ref.actor.optim.lrr" in done.stderr


def test_a_misspelt_setting_of_ours_fails():
    with pytest.raises(ConfigCompositionException, match="executer"):
        compose_recipe("single_turn", "cpu", "reward_model.reward_kwargs.executer=local")


def test_any_file_name_reaches_the_configuration(tmp_path):
    name = "lr=1e-4 (a, b) it's back\\slash end\\"
    done = run_recipe(
        "train_grpo_multi_turn.sh",
        "--dry-run",
        PRESET="cpu",
        OUTPUT_DIR=str(tmp_path / name),
        TRAIN_FILE=str(tmp_path / name / "train.parquet"),
        MODEL=f"hub/{name}",
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("train.parquet: no such file\n"), "said by --dry-run, too"
    config = OmegaConf.create(done.stdout)
    assert config.trainer.default_local_dir == str(tmp_path / name)
    assert config.trainer.experiment_name == name
    assert config.data.train_files == str(tmp_path / name / "train.parquet")
    assert config.actor_rollout_ref.model.path == f"hub/{name}"


@pytest.mark.parametrize(
    ("knob", "value", "told"), [("PRESET", "one-gpu", "one-gpu-vllm"), ("ROLLOUT", "hf", "PRESET=cpu")]
)
def test_knobs_of_hugging_face_rollouts_on_gpus_are_refused_in_one_line(knob, value, told):
    done = run_recipe("train_grpo_multi_turn.sh", "--dry-run", **{knob: value})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{knob}" in done.stderr and "was removed" in done.stderr and told in done.stderr
