"""What is refused before anything starts."""

import json

import pytest
from test_preflight import BATCH_SIZE, write_rows
from test_recipes import compose_recipe

from cobalt.errors import InputError, SetupError
from cobalt.records.training_run import TRACKER_NAME
from cobalt.training import launch, preflight


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    monkeypatch.setattr(launch, "_connect", lambda *_arguments: pytest.fail("it started"))


def test_a_missing_data_file_is_named(tmp_path):
    config = compose_recipe("multi_turn", "cpu", f"data.train_files={tmp_path}/train.parquet", "data.val_files=[]")
    with pytest.raises(InputError, match=r"train\.parquet: no such file"):
        launch.train(config)


@pytest.mark.parametrize(
    ("override", "error", "told"),
    [
        ("actor_rollout_ref.rollout.name=hf", InputError, r"needs cobalt\.backend=cpu"),
        ("actor_rollout_ref.rollout.free_cache_engine=False", InputError, "older weights"),
        ("cobalt.backend=tpu", SetupError, r"cobalt\.backend=tpu: choose one of verl, cpu"),
        ("cobalt.backend=hf", InputError, r"cobalt\.backend=hf was removed: use verl"),
    ],
)
def test_backends_and_rollouts_that_do_not_sample_from_the_policy_are_refused(override, error, told):
    with pytest.raises(error, match=told):
        launch.train(compose_recipe("multi_turn", "paper-qwen3", override))


def test_another_version_of_verl_is_refused(monkeypatch):
    monkeypatch.setattr(launch, "version", lambda _package: "0.4.0")
    with pytest.raises(
        SetupError, match=r"veRL 0\.4\.0 is installed, and cobalt train is for veRL 0\.5\.0 and 0\.9\.1 only"
    ):
        launch.train(compose_recipe("multi_turn", "paper-qwen3"))


@pytest.mark.parametrize(
    "override",
    ["model.use_remove_padding=false", "model.use_fused_kernels=true", "actor.ulysses_sequence_parallel_size=2"],
)
def test_settings_under_which_prompts_cannot_be_shared_are_refused(override):
    with pytest.raises(InputError, match=override.split("=")[0]):
        launch.train(compose_recipe("multi_turn", "paper-qwen3", f"actor_rollout_ref.{override}"))
    if "remove_padding" not in override:
        with pytest.raises(InputError, match=override.split("=")[0]):
            launch.train(compose_recipe("multi_turn", "cpu", f"actor_rollout_ref.{override}"))


@pytest.mark.parametrize(
    ("preset", "override"),
    [
        ("paper-qwen3", "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"),
        ("paper-qwen3", "actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov"),
        ("paper-qwen3", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null"),
        ("one-gpu-vllm", "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"),
        ("cpu", "cobalt.loss_weights=rows"),
    ],
)
def test_settings_under_which_tokens_cannot_be_weighed_are_refused(preset, override):
    name, value = override.removeprefix("actor_rollout_ref.actor.").split("=")
    with pytest.raises(InputError, match=rf"{name}.*{value if value != 'null' else ''}"):
        launch.train(compose_recipe("multi_turn", preset, override))


class Started(Exception):
    """Training went on to Ray."""


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A folder with a checkpoint; a function that composes the run that made it, with other overrides on top."""

    def start(*_arguments):
        raise Started

    monkeypatch.setenv("WANDB_MODE", "offline")  # no key is asked for
    monkeypatch.setattr(launch, "_connect", start)
    monkeypatch.setattr(preflight, "refuse_missing_model", lambda *_arguments: None)
    for index, name in enumerate(("train", "test", "other")):
        write_rows(tmp_path / f"{name}.parquet", BATCH_SIZE + index)
    (tmp_path / "reward.py").write_text("one reward")

    def run(*overrides):
        files = [f"data.train_files={tmp_path}/train.parquet", f"data.val_files={tmp_path}/test.parquet"]
        files += [f"trainer.default_local_dir={tmp_path}/out", f"custom_reward_function.path={tmp_path}/reward.py"]
        launch.train(compose_recipe("multi_turn", "cpu", *files, *overrides))

    with pytest.raises(Started):
        run()
    (tmp_path / "out" / TRACKER_NAME).write_text("3")
    return run


@pytest.mark.parametrize(
    "override",
    [
        "trainer.total_training_steps=9",
        "trainer.total_epochs=9",
        "trainer.logger=[console,wandb]",
        "reward_model.reward_kwargs.executor=local",
        "reward_model.reward_kwargs.max_infra_rate=0.5",
    ],
)
def test_a_run_resumes_with_other_steps_logging_and_execution(checkpoint, override):
    with pytest.raises(Started):
        checkpoint(override)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.train_files={folder}/other.parquet", "data.train_files"),
        ("actor_rollout_ref.model.path=another/model", "actor_rollout_ref.model.path"),
        ("reward_model.reward_kwargs.require_end=false", "reward_model.reward_kwargs.require_end: True -> False"),
        ("+reward_model.reward_kwargs.cpu_limit_s=9", "reward_model.reward_kwargs.cpu_limit_s: None -> 9"),
        ("+custom_reward_function.reward_kwargs.correct_half=0.3", "custom_reward_function"),
    ],
)
def test_a_checkpoint_of_other_data_model_or_reward_is_not_resumed(checkpoint, tmp_path, override, named):
    before = (tmp_path / "out" / "training.manifest.json").read_text()
    with pytest.raises(InputError, match="was made with other settings") as refused:
        checkpoint(override.format(folder=tmp_path))
    assert named in str(refused.value)
    assert (tmp_path / "out" / "training.manifest.json").read_text() == before


def test_an_online_run_resumes_with_the_same_method_only(tmp_path, monkeypatch):
    asked = []

    def start(config, _settings, online):
        asked.append((config.actor_rollout_ref.rollout.n, config.trainer.balance_batch, online.method.turns))
        raise Started

    monkeypatch.setattr(launch, "_connect", start)
    for name in ("train", "test"):
        write_rows(tmp_path / f"{name}.parquet", BATCH_SIZE)
    files = [f"data.train_files={tmp_path}/train.parquet", f"data.val_files={tmp_path}/test.parquet"]
    files += [f"trainer.default_local_dir={tmp_path}/out", "actor_rollout_ref.rollout.n=4"]
    for _ in range(2):
        with pytest.raises(Started):
            launch.train(compose_recipe("grpo_online", "cpu", *files))
        (tmp_path / "out" / TRACKER_NAME).write_text("3")
    assert asked == [(12, True, 3)] * 2  # a row for each turn
    with pytest.raises(InputError, match=r"cobalt\.online"):
        launch.train(compose_recipe("grpo_online", "cpu", *files, "cobalt.online.turns=2"))


def test_an_edited_reward_or_data_file_is_noticed(checkpoint, tmp_path):
    (tmp_path / "reward.py").write_text("another reward")
    with pytest.raises(InputError, match="custom_reward_function"):
        checkpoint()
    (tmp_path / "reward.py").write_text("one reward")
    write_rows(tmp_path / "train.parquet", 2 * BATCH_SIZE)
    with pytest.raises(InputError, match=r"data\.train_files"):
        checkpoint()


def test_anything_goes_where_nothing_is_resumed(checkpoint, tmp_path):
    with pytest.raises(Started):
        checkpoint("trainer.resume_mode=disable", "reward_model.reward_kwargs.require_end=false")
    assert not json.loads((tmp_path / "out" / "training.manifest.json").read_text())["content"][
        "reward_model.reward_kwargs.require_end"
    ]
