"""Recipes, presets and overrides: the paper's values, what composes, and what is refused before Ray is asked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import exit_code
from omegaconf import OmegaConf
from online_parts import compose_recipe
from release_settings import differences, release_values

from cobalt.errors import InputError
from cobalt.records.training_run import TRACKER_NAME
from cobalt.training import hydra_main
from cobalt.training.composition import composed
from cobalt.training.hydra_main import NULL_INTEGERS, REAL, refuse_misspelt, refuse_mistyped
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import MANAGER, TrainingConfig

ROOT = Path(__file__).parents[2]
CONFIG_DIR = ROOT / "verl/config"
PRESETS = sorted(path.stem for path in (CONFIG_DIR / "preset").glob("*.yaml"))
BANDITS = ("multi_turn", "single_turn")
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
    "data.truncation": ("right", "error"),
    "data.filter_overlong_prompts": (False, True),
    "data.filter_overlong_prompts_workers": (1, 8),
}
"""Every setting in which the paper's presets are not the release: its value, ours. docs/differences.md says why."""
VERLS = {
    f"{POLICY}.actor.optim.warmup_style": ("constant", None),  # lr_scheduler_type took its place
    f"{POLICY}.ref.fsdp_config.forward_only": (False, True),
    f"{POLICY}.rollout.mode": ("sync", "async"),
    f"{POLICY}.rollout.max_num_seqs": (1024, 256),
    f"{POLICY}.rollout.calculate_log_probs": (False, True),
    "data.return_raw_chat": (False, True),
}
"""Defaults that veRL 0.9.1 has changed."""
OFFLOADED = {"multi_turn": {}, "single_turn": {f"{POLICY}.ref.fsdp_config.param_offload": (False, True)}}
"""veRL 0.5.0 offloads a reference whatever its setting, and the release sets it for one recipe."""
MODELS = {"paper-qwen3": "Qwen/Qwen3-8B", "paper-r1-llama": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"}
pytestmark = pytest.mark.usefixtures("composed_once")
NSYS = "global_profiler.global_tool_config.nsys"
IN_CPU = ("+recipe=multi_turn", "+preset=cpu")


def run_recipe(script, *arguments, **environment):
    command = ["bash", f"scripts/{script}", *arguments]
    environment = {**os.environ, "PYTHON": sys.executable, **environment}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("preset", sorted(MODELS))
@pytest.mark.parametrize("recipe", BANDITS)
def test_the_papers_presets_are_the_release_but_for_what_is_listed(recipe, preset):
    found = differences(recipe, preset)
    changed = {
        name for name in found if name.startswith("reward_model.") or ".profiler." in name
    }  # moved, or no method
    assert {name: values for name, values in found.items() if name not in changed} == OURS | VERLS | OFFLOADED[recipe]
    config = compose_recipe(recipe, preset)
    assert (config.actor_rollout_ref.model.path, config.trainer.n_gpus_per_node) == (MODELS[preset], 4)


def test_the_releases_values_are_compared_and_not_left_out():
    """Of the settings that its script names, veRL knows all: each is compared, but for files and names."""
    config = compose_recipe("multi_turn", "paper-qwen3")
    named = RELEASE["multi_turn"]["overrides_in_the_script"]
    assert all(OmegaConf.select(config, name, default=named) is not named for name in named)
    values = release_values("multi_turn")
    assert (values[f"{POLICY}.rollout.enforce_eager"], values[f"{POLICY}.rollout.max_num_seqs"]) == (False, 1024)
    assert values[f"{POLICY}.actor.use_remove_padding"] is True, "interpolations are resolved"
    changed = differences("multi_turn", "paper-qwen3-h200")
    assert changed[f"{POLICY}.rollout.gpu_memory_utilization"] == (0.7, 0.45)


@pytest.mark.parametrize(
    ("recipe", "preset"), [*(("multi_turn", preset) for preset in PRESETS), ("single_turn", "paper-qwen3")]
)
def test_every_preset_is_whole(recipe, preset):
    config = compose_recipe(recipe, preset)
    refuse_mistyped(config)
    is_papers, policy, reward = preset.startswith("paper"), config.actor_rollout_ref, config.reward
    assert reward.reward_manager.name == MANAGER and TrainingConfig.of(config).online is None
    limits = {"cpu_limit_s": 1.0, "suite_cpu_limit_s": 4.0} if preset == "one-gpu-coder" else {}
    assert RewardSettings.read(reward.reward_kwargs).limits == limits
    assert set(reward.reward_kwargs) == {*RewardSettings.model_fields, *limits}
    assert reward.reward_kwargs.lengths == ("o200k_base" if is_papers else "policy"), "as the paper counts them"
    assert reward.reward_kwargs.extraction == ("released" if is_papers else "markdown")
    assert policy.model.use_liger == (preset not in ("cpu", "one-gpu-vllm"))
    assert config.cobalt.loss_weights == ("tokens" if preset.startswith("one-gpu") else "release")
    assert policy.actor.use_dynamic_bsz
    compiled = {policy.actor.fsdp_config.use_torch_compile, policy.ref.fsdp_config.use_torch_compile}
    assert compiled == {preset != "cpu"}, "there may be no C++ compiler"
    rows_per_gpu = policy.actor.ppo_mini_batch_size * policy.rollout.n // config.trainer.n_gpus_per_node
    assert rows_per_gpu % policy.actor.ppo_micro_batch_size_per_gpu == 0
    assert config.data.train_batch_size % policy.actor.ppo_mini_batch_size == 0


@pytest.mark.parametrize(
    ("recipe", "preset"),
    [*(("grpo_online", preset) for preset in PRESETS if preset != "paper-qwen3-lora"), ("verpo_online", "cpu")],
)
def test_online_recipes_differ_from_the_papers_in_what_online_training_needs(recipe, preset):
    online, multi_turn = compose_recipe(recipe, preset), compose_recipe("multi_turn", preset)
    refuse_mistyped(online)
    method = TrainingConfig.of(online).online
    assert method is not None and (method.method, method.turns) == (recipe.removesuffix("_online"), 3)
    assert online.actor_rollout_ref.model.path == multi_turn.actor_rollout_ref.model.path
    assert online.reward == multi_turn.reward
    differing = {"trainer.total_epochs"}
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
        ("cobalt.online.gamma=0.9", "cobalt.online.gamma=0.9 is of cobalt.online.trajectory_score=sum"),
        ("cobalt.online.smoothing=2", "cobalt.online.smoothing=2.0 is of cobalt.online.method=verpo"),
        ("reward.reward_manager.name=dapo", "reward.reward_manager.name=StreamingRewardManager, not dapo"),
        ("algorithm.adv_estimator=rloo", "algorithm.adv_estimator=grpo, not rloo"),
        ("algorithm.use_kl_in_reward=true", "algorithm.use_kl_in_reward=False, not True"),
        ("actor_rollout_ref.actor.use_dynamic_bsz=false", "actor_rollout_ref.actor.use_dynamic_bsz=True, not False"),
        ("actor_rollout_ref.actor.shuffle=true", "actor_rollout_ref.actor.shuffle=False, not True"),
    ],
)
def test_settings_that_contradict_online_training_are_refused(override, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        TrainingConfig.of(compose_recipe("grpo_online", "paper-qwen3", override))


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.total_training_steps=two", "an integer"),
        ("trainer.total_training_steps=2.5", "an integer"),
        ("trainer.total_epochs=null", "an integer"),
        ("trainer.nnodes=True", "an integer"),
        ("data.val_batch_size=[1]", "an integer"),
        ("actor_rollout_ref.actor.optim.lr=abc", "a number"),
        ("actor_rollout_ref.actor.optim={lr: abc}", "actor_rollout_ref.actor.optim.lr=abc: expected a number"),
        ("actor_rollout_ref.actor.optim=1", "settings in braces, {NAME: VALUE}"),
        ("actor_rollout_ref.rollout.top_p=most", "a number"),
        ("trainer.val_before_train=no", "true or false"),
        ("trainer.save_freq=after_each_epoch", "an integer"),
        ("trainer.test_freq=after_each_epoch", "an integer"),
    ],
)
def test_a_value_of_another_type_than_verls_is_refused(override, told):
    with pytest.raises(InputError) as refused:
        refuse_mistyped(compose_recipe("multi_turn", "cpu", override))
    assert str(refused.value) == (told if "expected" in told else f"{override}: expected {told}")


def test_what_verl_or_we_take_is_let_through():
    overrides = [
        "trainer.total_training_steps=null",
        "trainer.logger=console",
        "trainer.experiment_name=20260101",
        "global_profiler.steps=[1,2]",
        "actor_rollout_ref.actor.optim.lr=1",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "actor_rollout_ref.rollout.top_p=0.95",
        "+actor_rollout_ref.model.override_config.dropout=0.1",
        "data.train_files=[a.parquet,b.parquet]",
        "hydra.run.dir=elsewhere",
        "+data.seed=1",
        "+data.gen_batch_size=8",
        "+reward.reward_kwargs.cpu_limit_s=9",
        "+reward.custom_reward_function.reward_kwargs.correct_half=0.3",
        "~actor_rollout_ref.rollout.multi_turn",
    ]
    for more in ([], ["trainer.total_training_steps=2", "actor_rollout_ref.actor.optim.lr=5e-5"]):
        refuse_misspelt([*IN_CPU, *overrides, *more], CONFIG_DIR)
        refuse_mistyped(compose_recipe("multi_turn", "cpu", *overrides, *more))


@pytest.mark.parametrize("prefix", ["", "+", "++"])
@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("trainer.total_training_step", "trainer.total_training_steps"),
        ("trainr.nnodes", "trainer.nnodes"),
        ("reward.reward_kwarg.executor", "reward.reward_kwargs.executor"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_one_that_was_meant(prefix, misspelt, meant):
    with pytest.raises(InputError) as refused:
        refuse_misspelt([*IN_CPU, f"{prefix}{misspelt}=2"], CONFIG_DIR)
    assert str(refused.value) == f"'{misspelt}': no such setting; did you mean {meant}?"


def test_the_exceptions_are_settings_of_verl():
    config = OmegaConf.to_container(composed([], None), resolve=True)

    def walk(section):
        for name, value in section.items():
            yield from walk(value) if isinstance(value, dict) else [(name, value)]

    values = list(walk(config))
    integers = [name for name, value in values if value is None and NULL_INTEGERS.fullmatch(name)]
    assert len(set(integers)) == 18 and not any("path" in name for name in integers)
    assert {name for name, value in values if type(value) is int} >= REAL


def test_dry_run_prints_the_resolved_configuration_and_starts_nothing(tmp_path):
    """Any file name reaches the configuration."""
    name = "lr=1e-4 (a, b) it's back\\slash end\\"
    done = run_recipe(
        "train_grpo_multi_turn.sh",
        "--dry-run",
        "data.train_batch_size=96",
        PRESET="cpu",
        MODEL=f"hub/{name}",
        N_GPUS="8",
        LOGGER="console,wandb",
        OUTPUT_DIR=str(tmp_path / name),
        TRAIN_FILE=str(tmp_path / name / "train.parquet"),
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("train.parquet: no such file\n") and done.stderr.count("\n") == 1
    config = OmegaConf.create(done.stdout)
    assert (config.data.train_batch_size, config.trainer.n_gpus_per_node) == (96, 8)
    assert config.trainer.logger == ["console", "wandb"]
    assert config.trainer.default_local_dir == str(tmp_path / name)
    assert config.trainer.experiment_name == name
    assert config.data.train_files == str(tmp_path / name / "train.parquet")
    assert config.actor_rollout_ref.model.path == f"hub/{name}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "knobs", "told"),
    [
        (["--force"], {}, "no argument '--force'"),
        ([], {"EVALUATOR_ARGS": "wrokers=2"}, "EVALUATOR_ARGS: wrokers: no such setting"),
        (["--dry-run"], {"PRESET": "one-gpu"}, "PRESET=one-gpu was removed: use one-gpu-vllm"),
        (["--dry-run"], {"ROLLOUT": "hf"}, "ROLLOUT was removed"),
    ],
)
def test_the_recipe_says_what_is_wrong_in_one_line_and_starts_nothing(tmp_path, arguments, knobs, told):
    files = {"TRAIN_FILE": str(tmp_path / "train.parquet"), "OUTPUT_DIR": str(tmp_path / "out")}
    done = run_recipe("train_grpo_multi_turn.sh", *arguments, **{"PRESET": "cpu", **files, **knobs})
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert ": error: " in line and told in line
    assert not list(tmp_path.iterdir())


@pytest.fixture
def command(capsys):
    """``cobalt train`` on the CPU preset, with other arguments on top: exit code, stdout and stderr."""

    def run(*arguments, preset="cpu", usual=("--config-dir", str(CONFIG_DIR), "+recipe=multi_turn")):
        usual = (*usual, f"+preset={preset}") if usual else ()
        code = exit_code(hydra_main.main, "cobalt train", *usual, *arguments)
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("arguments", "preset", "told"),
    [
        ([], "cpuu", "Could not find 'preset/cpuu' Available options in 'preset': cpu one-gpu-"),
        (["trainer.stepz=1"], "cpu", "'trainer.stepz'"),
        (["reward.reward_kwargs.executer=local"], "cpu", "reward.reward_kwargs.executor"),
        (["--cfg", "job", "trainer.total_training_steps=two"], "cpu", "steps=two: expected an integer"),
        (["actor_rollout_ref.actor.use_torch_compile=false"], "cpu", "give actor_rollout_ref.actor.fsdp_config"),
        ([f"{NSYS}.controller_nsight_options.trace=cuda"], "cpu", "options: the main loop has no process of Ray's"),
        (["trainer.logger=["], "cpu", "trainer.logger=["),
        ([""], "cpu", "mismatched input '<EOF>'"),
        (["+cobalt.online={turns: 2, method: ???}"], "cpu", "missing: cobalt.online.method"),
        (["--multirun"], "cpu", "--multirun"),
        (["--cfg", "all"], "cpu", "--cfg: invalid choice: 'all'"),
        (["--config-dir"], "cpu", "--config-dir/-cd: expected one argument"),
        (["--config-dir", "/nowhere"], "cpu", "--config-dir /nowhere: no such folder"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_in_one_line(command, arguments, preset, told):
    code, out, errors = command("--check", *arguments, preset=preset)
    assert (code, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("cobalt train: error: ") and told in line and "search path" not in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no recipe: give --config-dir verl/config +recipe=multi_turn data.train_files=FILE"),
        (
            ["--config-dir", "verl/config", "+recipe=multi_turn"],
            "missing: data.train_files=FILE, data.val_files=FILE; preproc/verl_preproc_multi_turn.py",
        ),
        (["+recipe=multi_turn"], "+recipe=multi_turn: recipes are looked up in --config-dir, as verl/config"),
    ],
)
def test_what_is_missing_of_a_recipe_is_named(command, arguments, told):
    code, _, errors = command(*arguments, usual=())
    assert (code, errors.count("\n")) == (2, 1) and told in errors


def test_an_interrupted_run_says_whether_it_will_resume(command, tmp_path, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(hydra_main, "train", interrupted)
    folder = f"trainer.default_local_dir={tmp_path}"
    told = "cobalt train: interrupted; the same command "
    assert command(folder) == (130, "", f"{told}starts over, as there is no checkpoint yet\n")
    (tmp_path / TRACKER_NAME).write_text("10")
    assert command(folder) == (130, "", f"{told}resumes from the last checkpoint\n")


def test_the_help_teaches_common_settings_and_each_exists(command):
    code, out, _ = command("--help")
    assert code == 0 and "--check" in out
    config, listed = compose_recipe("multi_turn", "cpu"), out.partition("Common settings")[2].partition("Options:")[0]
    names = [name for name in re.findall(r"([a-z_.]+)=", listed) if "." in name]
    assert len(names) > 10
    for name in names:
        assert OmegaConf.select(config, name, default="absent") != "absent", name
    for group in ("recipe", "preset"):
        files = {path.stem for path in (CONFIG_DIR / group).glob("*.yaml")} - {"grpo", "online"}
        named = re.search(rf"\+{group}=NAME((?: {{2,}}.*\n)+?)  \S", listed)[1]
        assert set(re.findall(r"[\w-]+", named)) == files
