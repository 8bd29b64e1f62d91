"""What a run would fail on is said before anything starts, in one line."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_recipes import compose_recipe, run_recipe

from cobalt.errors import CobaltError, InputError, SetupError
from cobalt.records import TestCases
from cobalt.sampler import packages
from cobalt.training import preflight
from cobalt.training.launch import checked

BATCH_SIZE = 16
"""Of the preset cpu."""


def write_rows(path, count, **changes):
    row = {
        "data_source": "code",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"style": "rule", "ground_truth": TestCases(("1",), ("1",)).to_json()},
        **changes,
    }
    kept = {name: value for name, value in row.items() if value is not None}
    pq.write_table(pa.Table.from_pylist([kept] * count), path)


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Checks a run of good files on the CPU with overrides on top."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write_rows(tmp_path / "train.parquet", BATCH_SIZE)
    write_rows(tmp_path / "test.parquet", 1)

    def run(*overrides, preset="cpu"):
        files = [f"data.train_files={tmp_path}/train.parquet", f"data.val_files={tmp_path}/test.parquet"]
        return checked(
            compose_recipe("multi_turn", preset, *files, f"trainer.default_local_dir={tmp_path}/out", *overrides)
        )

    return run


def complaint(check, *overrides, error: type[CobaltError] = InputError, **more):
    with pytest.raises(error) as refused:
        check(*overrides, **more)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_good_run_is_let_through_and_nothing_is_written(check, tmp_path):
    before = sorted(tmp_path.iterdir())
    check()
    assert sorted(tmp_path.iterdir()) == before


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
def test_data_that_cannot_be_used(check, tmp_path, name, count, changes, told):
    write_rows(tmp_path / f"{name}.parquet", max(count, 1), **changes)
    if count == 0:
        pq.write_table(pq.read_table(tmp_path / f"{name}.parquet").slice(0, 0), tmp_path / f"{name}.parquet")
    assert complaint(check).endswith(told)


def test_a_file_that_is_no_parquet(check, tmp_path):
    (tmp_path / "train.parquet").write_text("{}")
    assert "train.parquet: not a parquet file; preproc/verl_preproc_multi_turn.py" in complaint(check)


@pytest.mark.parametrize(
    ("override", "error", "told"),
    [
        ("actor_rollout_ref.actor.ppo_mini_batch_size=32", InputError, "ppo_mini_batch_size=32 is more than"),
        ("trainer.n_gpus_per_node=3", InputError, "cannot be shared by 3 GPUs"),
        ("actor_rollout_ref.model.path=/no/such/model", InputError, "/no/such/model: no such folder"),
        ("actor_rollout_ref.model.path=verl", InputError, "holds no model"),
        ("custom_reward_function.path=/no/reward.py", InputError, "/no/reward.py: no such file"),
        ("+cobalt.UNKNOWN=1", InputError, "cobalt.UNKNOWN: no such setting; there are backend, seed, "),
        ("cobalt.seed=first", InputError, "cobalt.seed=first: Input should be a valid integer"),
        ("trainer.default_local_dir=README.md/runs", InputError, "README.md: is a file, not a folder"),
        ("trainer.nnodes=2", SetupError, "needs a Ray cluster"),
        ("trainer.logger=[console,mlflow]", SetupError, "mlflow, which is not installed"),
        ("actor_rollout_ref.rollout.name=vllm", SetupError, "vllm is not installed"),
        ("actor_rollout_ref.model.use_liger=true", SetupError, "liger-kernel is not installed"),
    ],
)
def test_settings_that_this_machine_cannot_meet(check, override, error, told):
    assert told in complaint(check, override, error=error)


def test_no_flash_attn_or_one_without_what_makes_verl_fast(check, tmp_path, monkeypatch):
    verls_own = ["actor_rollout_ref.model.use_remove_padding=true", "cobalt.share_prompts=false"]
    assert "need flash-attn, which is not installed" in complaint(check, *verls_own, error=SetupError)
    monkeypatch.syspath_prepend(tmp_path)
    kernels = tmp_path / "flash_attn/ops/triton"
    kernels.mkdir(parents=True)
    (tmp_path / "flash_attn/__init__.py").touch()
    assert "need flash-attn's ops/triton/cross_entropy.py" in complaint(check, *verls_own, error=SetupError)
    (kernels / "cross_entropy.py").touch()
    check(*verls_own)


def test_an_output_folder_that_cannot_be_written(check, monkeypatch):
    monkeypatch.setattr("os.access", lambda _path, mode: mode != os.W_OK)  # root may write anywhere
    assert "no permission to write" in complaint(check)


def test_more_gpus_than_there_are(check, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(preflight, "find_spec", lambda _name: True)  # vLLM, too
    assert "1 GPUs are asked for" in complaint(
        check,
        "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        preset="one-gpu-vllm",
        error=SetupError,
    )


def test_rollouts_that_the_installed_packages_cannot_make(check, monkeypatch):
    monkeypatch.setattr(packages, "version", lambda _name: "4.51.3")
    assert "transformers 4.57 or later, and here is 4.51.3" in complaint(check, error=SetupError)


def test_a_cluster_that_does_not_answer(check, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert complaint(check, error=SetupError) == "no Ray cluster at 127.0.0.1:1"


def test_weights_and_biases_without_a_key(check, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert "WANDB_MODE=offline" in complaint(check, "trainer.logger=[wandb]", error=SetupError)
    monkeypatch.setenv("WANDB_MODE", "offline")
    check("trainer.logger=[wandb]")


@pytest.mark.parametrize(
    ("knobs", "argument", "code", "told"),
    [
        ({"PRESET": "no-such"}, "", 2, "Could not find 'preset/no-such'"),
        ({"PRESET": "cpu"}, "trainer.stepz=1", 2, "'trainer.stepz'"),
        ({"PRESET": "cpu"}, "trainer.logger=[", 2, "trainer.logger=["),
        ({"PRESET": "cpu"}, "--force", 2, "no argument '--force'"),
        ({"PRESET": "cpu"}, "trainer.nnodes=1", 2, "train.parquet: no such file"),
        ({"PRESET": "cpu", "EVALUATOR_ARGS": "wrokers=2"}, "", 2, "EVALUATOR_ARGS: wrokers: no such setting"),
    ],
)
def test_the_recipe_says_it_in_one_line_and_starts_nothing(tmp_path, knobs, argument, code, told):
    arguments = [argument] if argument else []
    files = {"TRAIN_FILE": str(tmp_path / "train.parquet"), "OUTPUT_DIR": str(tmp_path / "out")}
    done = run_recipe("train_grpo_multi_turn.sh", *arguments, **files, **knobs)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert ": error: " in line and told in line
    assert not list(tmp_path.iterdir())
