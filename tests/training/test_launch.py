"""What a run would fail on is said before anything starts, in one line; and what a run may resume."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf
from online_parts import MODEL, ROOT, compose_recipe
from transformers import AutoTokenizer
from verl.plugin.platform import PlatformRegistry
from verl.utils.tracking import Tracking

from cobalt.errors import InputError, SetupError
from cobalt.prompts import COBALT, described
from cobalt.records import TestCases, write_jsonl
from cobalt.records.manifest import manifest_path
from cobalt.records.training_run import LOST_FILE, METRICS_FILE, TRACKER_NAME, read_metrics
from cobalt.sampler import packages
from cobalt.training import launch, preflight, runner
from cobalt.training.cluster import process_variables
from cobalt.training.resume import RANKS_FILE
from cobalt.training.settings import TrainingConfig

POLICY = "actor_rollout_ref"
BATCH_SIZE = 16
"""Of the preset cpu."""
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info, correct_half=0.2):
    return {}
"""
"""A reward function of the user's."""


class Started(Exception):
    """Training went on to Ray."""


def write_rows(path, count, **changes):
    row = {
        "data_source": "code",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"style": "rule", "ground_truth": TestCases(("1",), ("1",)).to_json()},
        **changes,
    }
    kept = {name: value for name, value in row.items() if value is not None}
    pq.write_table(pa.Table.from_pylist([kept] * max(count, 1)).slice(0, count), path)


def checkpoint(folder, step):
    shards = folder / f"global_step_{step}" / "actor"
    shards.mkdir(parents=True, exist_ok=True)
    (shards / RANKS_FILE).write_text(json.dumps({"world_size": 2, "FSDP_version": 2}))
    (folder / TRACKER_NAME).write_text(str(step))


def public_tests(tests):
    return {"index": 0, "tools_kwargs": {"public_test_cases": tests}}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Trains with good files on the CPU and overrides on top, up to Ray."""

    def connect(config, _variables):
        raise Started(config)

    monkeypatch.setattr(runner, "connect_and_prepare", connect)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write_rows(tmp_path / "train.parquet", BATCH_SIZE)
    write_rows(tmp_path / "test.parquet", 1)

    def run(*overrides, recipe="multi_turn", preset="cpu", act=launch.train):
        files = [OURS, f"data.train_files={tmp_path}/train.parquet", f"data.val_files={tmp_path}/test.parquet"]
        folder = f"trainer.default_local_dir={tmp_path}/out"
        return act(compose_recipe(recipe, preset, *files, folder, *overrides))

    return run


def alone(config):
    """A check of settings, files and machine without all that a run is made of."""
    preflight.refuse_unusable(config, TrainingConfig.of(config))


@pytest.fixture
def complaint(start):
    """One line with which a run is refused."""

    def run(*overrides, error=InputError, **more):
        with pytest.raises(error) as refused:
            start(*overrides, **more)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    return run


def test_a_check_of_a_good_run_writes_nothing(start, tmp_path):
    before = sorted(tmp_path.iterdir())
    start(act=launch.checked)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("start")
def test_verl_is_imported_with_the_variables_of_a_training(tmp_path):
    """As it is imported it chooses its platform. A check does without it, which would take as long as all else."""
    settings = [f"data.{name}_files={tmp_path}/{file}.parquet" for name, file in (("train", "train"), ("val", "test"))]
    command = [sys.executable, Path(__file__).with_name("imported_late.py"), "--config-dir", ROOT / "verl/config"]
    command += ["+recipe=multi_turn", "+preset=cpu", OURS, *settings, f"trainer.default_local_dir={tmp_path}/out"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()[-2:]) == (0, ["cpu", "cobalt.training.cpu"]), ended.stderr


def test_the_variables_of_a_training_on_cpu_cores_name_its_platform(monkeypatch):
    monkeypatch.setattr(PlatformRegistry, "_platforms", {})
    variables = process_variables(compose_recipe("multi_turn", "cpu"))
    monkeypatch.delitem(sys.modules, variables["VERL_USE_EXTERNAL_MODULES"], raising=False)
    import_module(variables["VERL_USE_EXTERNAL_MODULES"])
    assert PlatformRegistry.registered_names() == (variables["VERL_PLATFORM"],)


def test_the_loggers_are_those_of_verl():
    assert list(preflight.LOGGERS) == Tracking.supported_backend


@pytest.mark.parametrize(
    ("name", "count", "changes", "told"),
    [
        *(
            ("test", 1, {column: None}, f"missing column '{column}'")
            for column in ("prompt", "data_source", "reward_model")
        ),
        ("train", BATCH_SIZE, {"reward_model": {"style": "rule"}}, "column 'reward_model' has no field 'ground_truth'"),
        ("train", BATCH_SIZE - 1, {}, "data.train_batch_size=16, but data.train_files hold only 15 rows"),
        ("test", 0, {}, "data.val_files hold no rows"),
    ],
)
def test_data_that_cannot_be_used(complaint, tmp_path, name, count, changes, told):
    write_rows(tmp_path / f"{name}.parquet", count, **changes)
    assert complaint().endswith(told)


def test_online_data_of_two_prompt_sets_is_refused_by_a_check(complaint, tmp_path):
    """The policy would be shown the feedback of one set after problems of another."""
    files = [tmp_path / "train.parquet", tmp_path / "more.parquet"]
    for number, path in enumerate(files):
        write_rows(path, BATCH_SIZE, extra_info=public_tests(TestCases(("1",), ("1",)).to_json()))
        origin = {"prompts": described(replace(COBALT, no_program=f"No program: {number}"))}
        manifest_path(path).write_text(json.dumps({"origin": origin}))
    usual = ["actor_rollout_ref.rollout.n=4", f"data.train_files=[{files[0]},{files[1]}]"]
    told = complaint(*usual, recipe="grpo_online", act=launch.checked)
    assert told.endswith("more.parquet: was made with another prompt set than the other input")


def test_another_model_or_checker_than_the_data_was_made_with_is_told(start, tmp_path, capsys):
    origin = {"model_id": "reference@1", "checker": "exact"}
    manifest_path(tmp_path / "train.parquet").write_text(json.dumps({"origin": origin}))
    usual = "reward.reward_kwargs.executor=local"
    start(usual, act=launch.checked)
    assert "the checker" not in (told := capsys.readouterr().err) and "here, and was reference@1 where" in told
    start(usual, "+reward.reward_kwargs.checker=unordered", act=launch.checked)
    assert "the checker is unordered here, and was exact where" in capsys.readouterr().err


def test_a_file_that_is_no_parquet_or_is_missing(complaint, tmp_path):
    (tmp_path / "train.parquet").write_text("{}")
    told = complaint()
    assert "train.parquet: not a parquet file, or damaged: " in told and "; preproc/verl_preproc_multi_turn.py" in told
    (tmp_path / "train.parquet").unlink()
    assert complaint().endswith("train.parquet: no such file")


def test_a_damaged_page_is_told_before_anything_starts(complaint, tmp_path):
    path = tmp_path / "train.parquet"
    write_rows(path, BATCH_SIZE, prompt=[{"role": "user", "content": "apples"}])
    path.write_bytes(path.read_bytes().replace(b"apples", b"\xff" * 6))
    assert "train.parquet: not a parquet file, or damaged: " in complaint(act=launch.checked)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, "missing"),
        ({"extra_info": public_tests(None)}, "missing"),
        ({"extra_info": public_tests("")}, "missing"),
        ({"extra_info": public_tests('{"inputs": [], "outputs": []}')}, "there are no tests"),
        ({"extra_info": public_tests('{"inputs": ["1"], "outputs": ["1"], "checker": "x"}')}, "checker must be one of"),
    ],
)
def test_online_training_needs_public_tests_for_feedback(complaint, tmp_path, row, told):
    write_rows(tmp_path / "train.parquet", BATCH_SIZE, **row)
    assert f"row 1: extra_info.tools_kwargs.public_test_cases: {told}" in complaint(recipe="grpo_online")


def test_contexts_are_not_for_online_training_even_with_public_tests(complaint, start, tmp_path):
    asks, answers = ({"role": role, "content": "?"} for role in ("user", "assistant"))
    extra = {"extra_info": public_tests(TestCases(("1",), ("1",)).to_json())}
    write_rows(tmp_path / "first.parquet", BATCH_SIZE, **extra)
    write_rows(tmp_path / "train.parquet", BATCH_SIZE, prompt=[asks, answers, asks], **extra)
    files = f"data.train_files=[{tmp_path}/first.parquet,{tmp_path}/train.parquet]"
    told = complaint(files, "actor_rollout_ref.rollout.n=4", recipe="grpo_online")
    assert "train.parquet: row 1: prompt: goes on with a conversation, and trajectories of cobalt.online begin" in told
    start(files, "reward.reward_kwargs.executor=local", act=launch.checked)  # the bandit's own recipe


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (f"{POLICY}.actor.ppo_mini_batch_size=32", "ppo_mini_batch_size=32 is more than"),
        (f"{POLICY}.actor.ppo_mini_batch_size=12", "size=16 is no multiple of ppo_mini_ba"),
        ("trainer.n_gpus_per_node=3", "cannot be shared by 3 GPUs"),
        ("trainer.n_gpus_per_node=0", "trainer.n_gpus_per_node=0 is less than 1"),
        (f"{POLICY}.rollout.n=0", "actor_rollout_ref.rollout.n=0 is less than 1"),
        ("trainer.total_training_steps=0", "trainer.total_training_steps=0 is less than 1"),
        (f"{POLICY}.actor.optim.lr=nan", "lr=nan is no learning rate"),
        (f"{POLICY}.actor.ppo_epochs=0", "actor_rollout_ref.actor.ppo_epochs=0 is less than"),
        (f"{POLICY}.rollout.val_kwargs.n=0", "rollout.val_kwargs.n=0 is less than 1"),
        ("data.val_batch_size=0", "data.val_batch_size=0 is less than 1"),
        (f"{POLICY}.rollout.temperature=0", "rollout.temperature=0: must be above 0 in"),
        ("algorithm.adv_estimator=grppo", "algorithm.adv_estimator=grppo: choose grpo, grpo_passk, "),
        (f"{POLICY}.actor.kl_loss_type=k9", "kl_loss_type=k9: choose kl, k1, abs, mse, "),
        ("algorithm.kl_penalty=full", "algorithm.kl_penalty=full: choose kl, k1, abs, mse, "),
        ("algorithm.kl_ctrl.type=foo", "algorithm.kl_ctrl.type=foo: choose fixed, adaptive"),
        (f"{POLICY}.actor.optim.optimizer=foo", "optimizer=foo: module 'torch.optim' has no"),
        (f"{POLICY}.actor.optim.optimizer_impl=foo", "optimizer=AdamW: No module named 'foo"),
        ("trainer.checkpoint_callback_class=foo", "checkpoint_callback_class=foo: give MODULE.CLASS"),
        ("trainer.checkpoint_callback_class=foo.Foo", "of a module that is here"),
        (f"{POLICY}.actor.loss_agg_mode=foo", "loss_agg_mode=foo: choose token-mean, "),
        (f"{POLICY}.actor.policy_loss.loss_mode=foo", "loss_mode=foo: choose vanilla, dppo"),
        (f"{POLICY}.actor.optim.lr_scheduler_type=foo", "choose constant, cosine"),
        (f"{POLICY}.rollout.tensor_model_parallel_size=3", "takes 3 GPUs (actor_rollout_ref"),
        (f"{POLICY}.model.lora_adapter_path=/none", "lora_adapter_path=/none: no adapter, "),
        (f"{POLICY}.model.path=/no/such/model", "/no/such/model: no such folder"),
        (f"{POLICY}.model.path=verl", "holds no model"),
        ("reward.custom_reward_function.path=/no/reward.py", "/no/reward.py: no such file"),
        ("+cobalt.UNKNOWN=1", "cobalt.UNKNOWN: no such setting; there are backend, seed, "),
        ("cobalt.seed=first", "cobalt.seed=first: Input should be a valid integer"),
        ("cobalt.loss_weights=rows", "cobalt.loss_weights=rows: Input should be 'release' or "),
        ("trainer.default_local_dir=README.md/runs", "README.md: is a file, not a folder"),
        ("trainer.logger=[console,json]", "LOGGER names json: choose wandb, mlflow, "),
        (f"{POLICY}.actor.checkpoint.save_contents=[]", "contents=[]: model is missing"),
        (f"{POLICY}.actor.checkpoint.save_contents=[optimizer]", "[optimizer]: model is mi"),
        (f"+{POLICY}.actor.checkpoint.save_lora_only=true", "cobalt merge needs the whole"),
        (f"{POLICY}.model.use_fused_kernels=true", "model.use_fused_kernels=False, not"),
        (f"{POLICY}.actor.ulysses_sequence_parallel_size=2", "parallel_size=1, not 2"),
        (f"{POLICY}.ref.ulysses_sequence_parallel_size=2", "ref.ulysses_sequence_parallel_s"),
        (f"{POLICY}.ref.log_prob_use_dynamic_bsz=false", "dynamic_bsz=True, not False"),
        # with which a row would have no room in a micro-batch
        (f"{POLICY}.actor.ppo_max_token_len_per_gpu=1183", "no room for a row of data.max"),
        (f"{POLICY}.rollout.log_prob_max_token_len_per_gpu=9", "rollout.log_prob_max_to"),
        (f"{POLICY}.ref.log_prob_max_token_len_per_gpu=9", "ref.log_prob_max_token_len_p"),
    ],
)
def test_settings_that_contradict_each_other(complaint, override, told):
    assert told in complaint(override, act=alone)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("cobalt.backend=hf", "cobalt.backend=hf: Input should be 'verl' or 'cpu'"),
        # under which prompts cannot be shared
        (f"{POLICY}.model.use_remove_padding=false", "use_remove_padding=True, not"),
        # under which tokens cannot be weighed
        (f"{POLICY}.actor.ppo_micro_batch_size_per_gpu=null", "needs actor_rollout"),
    ],
)
def test_settings_for_gpus_that_contradict_each_other(complaint, override, told):
    assert told in complaint(override, preset="paper-qwen3", act=alone)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.nnodes=2", "needs a Ray cluster"),
        ("trainer.logger=[console,mlflow]", "mlflow, which is not installed"),
        (f"{POLICY}.model.use_liger=true", "liger-kernel is not installed"),
    ],
)
def test_settings_that_this_machine_cannot_meet(complaint, override, told):
    assert told in complaint(override, error=SetupError, act=alone)


def test_groups_are_filtered_by_a_metric_that_the_reward_has(complaint, start):
    metric, on = "algorithm.filter_groups.metric", "algorithm.filter_groups.enable=true"
    assert complaint(on, f"{metric}=foo").startswith(f"{metric}=foo: choose reward, acc, pass_rate, reward_correct, ")
    start(on, f"{metric}=acc", "reward.reward_kwargs.executor=local", act=launch.checked)


def test_rows_without_shared_prompts_fill_their_micro_batches(complaint):
    own = ("cobalt.share_prompts=false", "cobalt.loss_weights=tokens")
    told = complaint(*own, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=7")
    assert "ppo_micro_batch_size_per_gpu=7 does not divide the " in told


def test_names_of_losses_may_come_of_a_users_module(start):
    start(
        *("actor_rollout_ref.actor.policy_loss.loss_mode=mine", "cobalt.loss_weights=tokens"),
        *("actor_rollout_ref.model.external_lib=json", "reward.reward_kwargs.executor=local"),
        act=launch.checked,
    )


def test_an_adapter_to_go_on_from_is_the_one_that_is_asked_for(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 8, "lora_alpha": 32}))
    model = {"lora_adapter_path": str(tmp_path), "lora_rank": 8, "lora_alpha": 32}
    preflight.refuse_unusable_adapter(OmegaConf.create(model), "model.")
    for name, other in (("lora_rank", 0), ("lora_alpha", 16)):
        with pytest.raises(InputError, match=rf"needs model\.{name}={model[name]}, the adapter's, not {other}"):
            preflight.refuse_unusable_adapter(OmegaConf.create(model | {name: other}), "model.")


LONG = [{"role": "user", "content": "much to read " * 40}]
TOKENS = len(AutoTokenizer.from_pretrained(MODEL).apply_chat_template(LONG, add_generation_prompt=True).input_ids)
"""Of the prompt ``LONG``."""


def add_long_prompts(path, count):
    rows = pq.read_table(path)
    write_rows(path, count, prompt=LONG)
    pq.write_table(pa.concat_tables([rows, pq.read_table(path)]), path)


def test_overlong_prompts_are_left_out_counted_and_said(start, tmp_path, capsys):
    """One token more, and they would fit."""
    add_long_prompts(tmp_path / "train.parquet", 3)
    filters = []
    for most, left_out in ((TOKENS - 1, 3), (TOKENS, 0)):
        with pytest.raises(Started) as started:
            start(f"data.max_prompt_length={most}")
        filters.append(started.value.args[0].data.filter_overlong_prompts)
        manifest = json.loads((tmp_path / "out" / "training.manifest.json").read_text())
        assert manifest["counts"]["overlong_prompts_left_out"] == {"train_files": left_out, "val_files": 0}
        assert ("3 prompts of data.train_files are left out" in capsys.readouterr().err) == bool(left_out)
    assert filters == [True, False], "veRL's own filter, only where it has something to do"


def test_prompts_are_never_cut(complaint):
    assert complaint("data.truncation=right").startswith("data.truncation=right would cut prompts: take error")


def test_overlong_prompts_are_refused_if_asked_or_if_too_few_are_left(complaint, tmp_path):
    write_rows(tmp_path / "train.parquet", BATCH_SIZE, prompt=LONG)
    most = f"data.max_prompt_length={TOKENS - 1}"
    told = f"16 of 16 prompts of data.train_files have more than {most} tokens"
    assert complaint(most, "data.filter_overlong_prompts=false").startswith(f"{told}: allow more, or leave them out")
    assert complaint(most) == f"{told}, which leaves too few"


@pytest.mark.parametrize(("name", "length", "other"), [("prompt_length", 1024, 1023), ("response_length", 160, 161)])
def test_rollouts_have_the_lengths_of_the_data(complaint, name, length, other):
    setting = f"actor_rollout_ref.rollout.{name}={other}"
    assert complaint(setting) == f"{setting}: leave it at data.max_{name}={length}"


def test_a_bar_counts_the_prompts_that_are_left(start, tmp_path):
    write_rows(tmp_path / "train.parquet", 2 * BATCH_SIZE - 1)
    add_long_prompts(tmp_path / "train.parquet", 1)
    steps = start(f"data.max_prompt_length={TOKENS - 1}", "trainer.total_epochs=3", act=preflight.total_steps)
    assert steps == 3


def test_a_model_without_a_chat_template(complaint, tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    told = f"actor_rollout_ref.model.path={tmp_path}: its tokenizer has no chat template"
    assert complaint(f"actor_rollout_ref.model.path={tmp_path}") == told


SOURCE = "reward.reward_manager.source=register"
OURS = "reward.custom_reward_function.path=verl/code_reward_func_think.py"
MODEL_ALONE = "actor_rollout_ref.actor.checkpoint.save_contents=[model]"
WEIGHT = "+reward.custom_reward_function.reward_kwargs"


@pytest.mark.parametrize(
    ("free_mb", "override", "is_refused"),
    [
        (30, "trainer.save_freq=1", True),  # 2.6 million weights and twice as much of the optimizer, in fp32
        (32, "trainer.save_freq=1", False),
        (1, "trainer.save_freq=-1", False),
        (20, MODEL_ALONE, False),
    ],
)
def test_a_disk_without_room_for_a_checkpoint_is_told_before_training(
    start, complaint, monkeypatch, free_mb, override, is_refused
):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free_mb * 1e6))
    if is_refused:
        told = complaint(override, error=SetupError, act=launch.checked)
        assert told.startswith("a checkpoint takes more than 0.0308 GB, and 0.03 GB are free on the disk of ")
    else:
        start(override, act=launch.checked)


def test_a_training_that_has_a_checkpoint_goes_on_or_is_done_whatever_the_disk_has(start, monkeypatch, tmp_path):
    with pytest.raises(Started):
        start()
    checkpoint(tmp_path / "out", 4)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=0))
    start(act=launch.checked)


def test_damaged_weights_are_told_before_training(complaint, tmp_path):
    shutil.copytree(MODEL, tmp_path / "model")
    os.truncate(tmp_path / "model/model.safetensors", 1_000_000)
    told = complaint(f"actor_rollout_ref.model.path={tmp_path}/model", act=launch.checked)
    assert "model.safetensors: not a safetensors file, or damaged: " in told


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((OURS, f"{WEIGHT}.improve_scal=0.2"), "improve_scal: no such setting; there are "),
        ((OURS, f"{WEIGHT}.correct_half=abc"), "correct_half=abc: Input should be a valid"),
        ((OURS, f"{WEIGHT}.repeat_times=2.5"), "repeat_times=2.5: Input should be a valid"),
        ((OURS, "reward.reward_manager.name=prime", SOURCE), "leave reward.reward_manager as it is in the recipe"),
        (("reward.custom_reward_function.path=null",), "missing: reward.custom_reward_function.path=FILE; ours is"),
        ((OURS, "reward.custom_reward_function.name=score_it"), "name=score_it: there is no such function in "),
        (("reward.custom_reward_function.path=README.md",), "custom_reward_function.path=README.md: SyntaxError"),
        (("+reward.reward_kwargs.improve_scal=0.2",), "improve_scal: no such setting; there are executor, "),
        (("+reward.reward_kwargs.workers=2",), "workers: a setting of executor=local"),
        (("trainer.resume_mode=resume_path",), "trainer.resume_from_path=None: no such checkpoint"),
        (("trainer.resume_mode=resume_path", "trainer.resume_from_path=a/global_step_2"), "and a has none"),
        (("trainer.resume_from_path=a/global_step_2",), "needs trainer.resume_mode=resume_path, not auto"),
        (("trainer.resume_mode=always",), "trainer.resume_mode=always: choose auto, disable, resume_path"),
    ],
)
def test_what_would_only_fail_in_training_or_do_nothing_there(complaint, overrides, told):
    assert told in complaint(*overrides)


def test_a_penalty_on_answers_to_contexts_is_refused_online(complaint, start, tmp_path):
    write_rows(tmp_path / "train.parquet", BATCH_SIZE, extra_info=public_tests(TestCases(("1",), ("1",)).to_json()))
    assert "with cobalt.online there is none" in complaint(f"{WEIGHT}.hard_coding=0.5", recipe="grpo_online")
    start(f"{WEIGHT}.hard_coding=0", recipe="grpo_online", act=launch.checked)


def test_weights_of_our_reward_are_taken_as_configurations_hold_them(start, complaint, tmp_path):
    weights = ["correct_half=1", "improvement=false", "keywords=[wait,but]"]
    start(OURS, *(f"{WEIGHT}.{weight}" for weight in weights), act=launch.checked)
    (tmp_path / "reward.py").write_text(REWARD)
    users = f"reward.custom_reward_function.path={tmp_path}/reward.py"
    assert "reward_kwargs.correct_hlaf: compute_score in " in complaint(users, f"{WEIGHT}.correct_hlaf=1")


@pytest.mark.parametrize(("version", "more"), [("0.4.0", ""), ("0.5.0", ": python -m cobalt.training.verl05 --help")])
def test_another_version_of_verl_is_refused(monkeypatch, version, more):
    monkeypatch.setattr(launch, "version", lambda _package: version)
    with pytest.raises(SetupError) as refused:
        launch.refuse_other_verl()
    assert str(refused.value) == f"veRL {version} is installed, and cobalt train is for veRL 0.9.1{more}"


def test_no_flash_attn_or_one_without_what_makes_verl_fast(start, complaint, tmp_path, monkeypatch):
    verls_own = ["cobalt.share_prompts=false", "cobalt.loss_weights=tokens"]
    verls_own.append("actor_rollout_ref.model.use_remove_padding=true")
    assert "need flash-attn, which is not installed" in complaint(*verls_own, error=SetupError)
    monkeypatch.syspath_prepend(tmp_path)
    kernels = tmp_path / "flash_attn/ops/triton"
    kernels.mkdir(parents=True)
    (tmp_path / "flash_attn/__init__.py").touch()
    assert "need flash-attn's ops/triton/cross_entropy.py" in complaint(*verls_own, error=SetupError)
    (kernels / "cross_entropy.py").touch()
    start(*verls_own, act=launch.checked)


def test_an_output_folder_that_cannot_be_written(complaint, monkeypatch):
    monkeypatch.setattr("os.access", lambda _path, mode: mode != os.W_OK)  # root may write anywhere
    assert "no permission to write" in complaint()


def test_a_machine_with_fewer_gpus_an_older_transformers_or_a_cluster_that_is_gone(complaint, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setattr(packages, "version", lambda _name: "4.51.3")
        assert "transformers 4.57 or later, but 4.51.3 is installed" in complaint(error=SetupError)
        changed.setattr(packages, "version", lambda _name: "6.0.0")
        assert "transformers below 6, but 6.0.0 is installed" in complaint(error=SetupError)
    with monkeypatch.context() as changed:
        changed.setenv("RAY_ADDRESS", "127.0.0.1:1")
        assert complaint(error=SetupError) == "no Ray cluster at 127.0.0.1:1"
    small = ["data.train_batch_size=16", "actor_rollout_ref.actor.ppo_mini_batch_size=16"]
    small.append("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=128")
    assert "vllm is not installed: scripts/setup_gpu.sh" in complaint(*small, preset="one-gpu-vllm", error=SetupError)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(preflight, "find_spec", lambda _name: True)  # vLLM, too
    told = "GPUs asked for (N_GPUS, trainer.n_gpus_per_node): 1, on this machine: 0"
    assert told in complaint(*small, preset="one-gpu-vllm", error=SetupError)


def test_weights_and_biases_without_a_key(start, complaint, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert "WANDB_MODE=offline" in complaint("trainer.logger=[wandb]", error=SetupError)
    monkeypatch.setenv("WANDB_MODE", "offline")
    start("trainer.logger=[wandb]", act=launch.checked)


@pytest.fixture
def resume(start, tmp_path, monkeypatch):
    """Goes on from a checkpoint, with other overrides than those of the run that made it."""
    monkeypatch.setenv("WANDB_MODE", "offline")  # no key is asked for
    write_rows(tmp_path / "other.parquet", BATCH_SIZE + 2)
    (tmp_path / "reward.py").write_text(REWARD.format(1))

    def run(*overrides):
        local = "reward.reward_kwargs.executor=local"
        start(f"reward.custom_reward_function.path={tmp_path}/reward.py", local, *overrides)

    with pytest.raises(Started):
        run()
    checkpoint(tmp_path / "out", 3)
    return run


def test_a_run_resumes_with_other_steps_logging_saving_execution_and_gpus(resume):
    with pytest.raises(Started):
        resume(
            "trainer.total_training_steps=9",
            "trainer.total_epochs=9",
            "cobalt.budget={responses: 9}",
            "trainer.logger=[console,wandb]",
            "trainer.experiment_name=other",
            "trainer.save_freq=3",
            "trainer.n_gpus_per_node=1",
            "reward.reward_kwargs.executor=local",
            "reward.reward_kwargs.max_infra_rate=0.5",
            "actor_rollout_ref.rollout.gpu_memory_utilization=0.5",
            "actor_rollout_ref.rollout.agent.num_workers=3",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=9999",
        )


@pytest.mark.parametrize(
    ("saved", "told"),
    [
        ('{"world_size": 2, "FSDP_version": 1}', "was saved by 2 GPUs, with actor.strategy=fsdp, .*; 1 cannot go on"),
        (None, "fsdp_config.json: no such file; .* is no whole checkpoint"),
    ],
)
def test_checkpoints_that_cannot_be_loaded_are_refused(resume, tmp_path, saved, told):
    file = tmp_path / "out/global_step_3/actor" / RANKS_FILE
    file.unlink() if saved is None else file.write_text(saved)
    with pytest.raises(InputError, match=told):
        resume("trainer.total_training_steps=9", "trainer.n_gpus_per_node=1")


def test_settings_that_verl_would_not_take_over_are_refused_in_one_line(resume):
    with pytest.raises(InputError) as refused:
        resume(
            "actor_rollout_ref.actor.optim.lr=1e-3",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
            "actor_rollout_ref.rollout.n=4",
            "cobalt.seed=1",
            "+data.seed=1",
        )
    told = "actor.optim.lr: 0.0001 -> 0.001, actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: 8 -> 4"
    assert told in str(refused.value) and "\n" not in str(refused.value)
    assert "rollout.n: 8 -> 4, cobalt.seed: 0 -> 1, " in str(refused.value)
    assert "data.seed: None -> 1, seed: 0 -> 1); take those" in str(refused.value)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.train_files={folder}/other.parquet", "data.train_files"),
        ("actor_rollout_ref.model.path={folder}/model", "actor_rollout_ref.model.path"),
        ("reward.reward_kwargs.require_end=false", "reward.reward_kwargs.require_end: True -> False"),
        ("+reward.reward_kwargs.cpu_limit_s=9", "reward.reward_kwargs.cpu_limit_s: None -> 9"),
        (f"{WEIGHT}.correct_half=0.3", "custom_reward_function"),
    ],
)
def test_a_checkpoint_of_other_data_model_or_reward_is_not_resumed(resume, tmp_path, override, named):
    shutil.copytree(MODEL, tmp_path / "model")
    with (tmp_path / "model" / "config.json").open("a") as file:
        file.write("\n")
    before = (tmp_path / "out" / "training.manifest.json").read_text()
    with pytest.raises(InputError, match="was made with other settings") as refused:
        resume(override.format(folder=tmp_path))
    assert named in str(refused.value)
    assert (tmp_path / "out" / "training.manifest.json").read_text() == before


def test_an_edited_reward_or_data_file_is_noticed(resume, tmp_path):
    (tmp_path / "reward.py").write_text(REWARD.format(2))
    with pytest.raises(InputError, match=r"reward\.custom_reward_function"):
        resume()
    (tmp_path / "reward.py").write_text(REWARD.format(1))
    write_rows(tmp_path / "train.parquet", 2 * BATCH_SIZE)
    with pytest.raises(InputError, match=r"data\.train_files"):
        resume()


def test_a_finished_runs_manifest_is_not_touched_until_more_steps_are_asked_for(resume, tmp_path):
    manifest = tmp_path / "out" / "training.manifest.json"
    budget = "cobalt.budget={responses: 90}"
    with pytest.raises(Started):
        resume(budget)
    done = {**json.loads(manifest.read_text()), "status": "done", "counts": {"steps": 3}}
    manifest.write_text(json.dumps(done))
    before = manifest.read_bytes()
    for override in (budget, "trainer.total_epochs=2", "trainer.total_training_steps=2"):  # an epoch is a step
        resume(override)
    with pytest.raises(InputError, match="other settings"):
        resume("actor_rollout_ref.actor.optim.lr=1e-3")
    with pytest.raises(Started):
        resume("trainer.val_only=true")
    assert manifest.read_bytes() == before
    manifest.write_text(json.dumps({**done, "counts": {"steps": 4}}))  # the last checkpoint was removed
    with pytest.raises(Started):
        resume(budget)
    manifest.write_bytes(before)
    with pytest.raises(Started):
        resume("trainer.total_training_steps=9")
    assert json.loads(manifest.read_text())["config"]["trainer"]["total_training_steps"] == 9


@pytest.mark.parametrize("done", [False, True])
def test_a_checkpoint_of_the_model_alone_ends_a_training_and_is_never_gone_on_from(resume, tmp_path, done):
    """veRL would begin with a new optimizer, and say nothing."""
    with pytest.raises(InputError, match=r"other settings \(actor_rollout_ref\.actor\.checkpoint\.load_contents"):
        resume(MODEL_ALONE)
    path = tmp_path / "out" / "training.manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"]["actor_rollout_ref"]["actor"]["checkpoint"]["load_contents"] = ["model"]
    path.write_text(json.dumps(manifest | {"status": "done"} if done else manifest))
    with pytest.raises(Started):
        resume(MODEL_ALONE, "trainer.val_only=true")
    with pytest.raises(InputError, match=r"load_contents=\[model\]: no training goes on from a checkpoint without"):
        resume(MODEL_ALONE, "trainer.total_training_steps=9")
    if done:
        resume(MODEL_ALONE, "trainer.total_training_steps=3")  # finished already


def test_a_checkpoint_that_is_named_is_held_against_the_manifest_beside_it(resume, tmp_path):
    named = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={tmp_path}/out/global_step_3"]
    elsewhere = f"trainer.default_local_dir={tmp_path}/other"
    for completed_by_tab in (f"{named[1]}/", named[1]):
        with pytest.raises(Started) as started:
            resume(named[0], completed_by_tab, elsewhere)
        assert started.value.args[0].trainer.resume_from_path == f"{tmp_path}/out/global_step_3"
    with pytest.raises(InputError, match=r"optim\.lr"):
        resume(*named, elsewhere, "actor_rollout_ref.actor.optim.lr=1e-3")
    (tmp_path / "out/training.manifest.json").unlink()
    with pytest.raises(Started):  # of others
        resume(*named, elsewhere, "actor_rollout_ref.actor.optim.lr=1e-3")
    (tmp_path / "out/global_step_3/actor" / RANKS_FILE).write_text('{"world_size": 2, "FSDP_version": 1}')
    with pytest.raises(InputError, match=r"was saved by 2 GPUs, with actor\.strategy=fsdp"):
        resume(*named, elsewhere, "trainer.n_gpus_per_node=1")
    with pytest.raises(InputError, match="resume_from_path=None: no such checkpoint"):
        resume("trainer.resume_mode=resume_path")


def test_another_verl_does_not_resume_a_checkpoint(resume, tmp_path):
    manifest = tmp_path / "out" / "training.manifest.json"
    manifest.write_text(manifest.read_text().replace('"verl": "0.9.1"', '"verl": "0.5.0"'))
    with pytest.raises(InputError, match=r"was trained on veRL 0\.5\.0, and 0\.9\.1 is installed$"):
        resume()


def test_metrics_of_steps_after_the_checkpoint_are_set_aside(resume, tmp_path):
    folder = tmp_path / "out"
    write_jsonl(folder / METRICS_FILE, [{"step": step, "reward/acc": step} for step in (0, 2, 3, 4, 5)])
    with pytest.raises(Started):
        resume("trainer.val_only=true")
    assert not (folder / LOST_FILE).exists()
    with pytest.raises(Started):
        resume()
    assert [record["step"] for record in read_metrics(folder / METRICS_FILE)] == [0, 2, 3]
    assert [record["step"] for record in read_metrics(folder / LOST_FILE)] == [4, 5]


def test_steps_that_are_asked_for_are_trained_however_few_the_epochs(start):
    """veRL ends after either."""
    with pytest.raises(Started) as started:
        start("trainer.total_training_steps=40", "trainer.total_epochs=2")
    ready = started.value.args[0]
    assert (ready.trainer.total_epochs, ready.trainer.v1.trainer_mode) == (40, "cobalt_sync")


def test_anything_goes_where_nothing_is_resumed(resume, tmp_path):
    with pytest.raises(Started):
        resume("trainer.resume_mode=disable", "reward.reward_kwargs.require_end=false")
    content = json.loads((tmp_path / "out" / "training.manifest.json").read_text())["content"]
    assert not content["reward.reward_kwargs.require_end"]


def test_an_online_run_resumes_with_the_same_method_only(start, tmp_path):
    usual = ["actor_rollout_ref.rollout.n=4", "reward.reward_kwargs.executor=local"]
    tests = TestCases(("1",), ("1",)).to_json()
    write_rows(tmp_path / "train.parquet", BATCH_SIZE, extra_info=public_tests(tests))
    for _ in range(2):
        with pytest.raises(Started):
            start(*usual, recipe="grpo_online")
        checkpoint(tmp_path / "out", 3)
    with pytest.raises(InputError, match=r"cobalt\.online"):
        start(*usual, "cobalt.online.turns=2", recipe="grpo_online")
