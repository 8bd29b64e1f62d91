"""The model card, and what merging refuses."""

import json

import pytest

from cobalt.errors import InputError
from cobalt.training.merge import MergeConfig, latest_step, merge, model_card


@pytest.fixture
def run_dir(tmp_path):
    """What training leaves behind, but for the weights."""
    config = {
        "actor_rollout_ref": {"model": {"path": "/somewhere/minicoder"}, "actor": {"optim": {"lr": 5e-05}}},
        "cobalt": {"seed": 3},
    }
    manifest = {
        "config": config,
        "inputs": {"/data/train.parquet": "abc123"},
        "versions": {"verl": "0.5.0"},
        "git_commit": "c0ffee",
    }
    (tmp_path / "training.manifest.json").write_text(json.dumps(manifest))
    records = [{"step": step, "reward/acc": step / 20, "timing_s/gen": 1.0} for step in range(1, 21)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("16")
    return tmp_path


def test_the_card_tells_data_recipe_and_metrics_up_to_the_checkpoint(run_dir):
    card = model_card(run_dir, step=16)
    assert "| train.parquet | abc123 |" in card
    assert "| actor_rollout_ref.actor.optim.lr | 5e-05 |" in card
    assert "| reward/acc | 0.2750 | 0.5750 |" in card
    assert "timing_s" not in card
    assert "# minicoder, trained with Cobalt" in card
    assert "verl 0.5.0" in card and "c0ffee" in card
    assert "/somewhere" not in card and "/data" not in card


def test_the_latest_checkpoint_is_found(run_dir):
    assert latest_step(run_dir) == 16


def test_a_run_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(InputError, match="saved no checkpoint"):
        merge(MergeConfig(checkpoint_dir=tmp_path, output_dir=tmp_path / "model"))


def test_a_missing_checkpoint_is_refused(run_dir):
    with pytest.raises(InputError, match="no such checkpoint"):
        merge(MergeConfig(checkpoint_dir=run_dir, output_dir=run_dir / "model", step=5))


def test_an_existing_model_is_not_overwritten(run_dir):
    (run_dir / "model").mkdir()
    with pytest.raises(InputError, match="exists already"):
        merge(MergeConfig(checkpoint_dir=run_dir, output_dir=run_dir / "model"))
