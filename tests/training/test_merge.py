"""The model card, and what merging refuses."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub import ModelCard

from cobalt.errors import InputError, SetupError
from cobalt.training.merge import MergeConfig, merge, model_card


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
    assert "| reward/acc | 0.2250 | 0.6250 |" in card
    assert "timing_s" not in card
    assert "# minicoder, trained with Cobalt" in card
    assert "verl 0.5.0" in card and "c0ffee" in card
    assert "/somewhere" not in card and "/data" not in card


def test_the_card_names_base_model_and_licence_of_the_start(run_dir, tmp_path, monkeypatch):
    def header(start, *flags):
        manifest = json.loads((run_dir / "training.manifest.json").read_text())
        manifest["config"]["actor_rollout_ref"]["model"]["path"] = str(start)
        (run_dir / "training.manifest.json").write_text(json.dumps(manifest))
        data = yaml.safe_load(model_card(run_dir, 16, *flags).split("---")[1])
        return data["base_model"], data["license"]

    start = tmp_path / "start"
    start.mkdir()
    assert header(start) == ("start", "unknown")
    (start / "README.md").write_text("---\nlicense: mit\nbase_model: some/base\n---\n# start\n")
    assert header(start) == ("some/base", "mit")
    assert header(start, "an/other", "cc0-1.0") == ("an/other", "cc0-1.0")
    monkeypatch.setattr("huggingface_hub.ModelCard.load", lambda name: ModelCard(f"---\nlicense: mit\n---\n{name}"))
    assert header("Some/Model-8B") == ("Some/Model-8B", "mit")  # of the hub: named as there


@pytest.fixture
def merged(run_dir, monkeypatch):
    """Merge with a stand-in for veRL's merger; the model's folder."""
    (run_dir / "global_step_16" / "actor").mkdir(parents=True)

    def write_weights(command, check):
        folder = Path(command[command.index("--target_dir") + 1])
        folder.mkdir()
        (folder / "from").write_text(command[command.index("--local_dir") + 1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", write_weights)

    def run(**flags):
        merge(MergeConfig(checkpoint_dir=run_dir, output_dir=run_dir / "model", **flags))
        return run_dir / "model"

    return run


def test_the_latest_checkpoint_is_merged_and_has_a_card(merged, run_dir):
    folder = merged()
    assert (folder / "from").read_text() == str(run_dir / "global_step_16" / "actor")
    assert "16 steps" in (folder / "README.md").read_text()


def test_a_model_is_uploaded_or_the_refusal_told(merged, run_dir, monkeypatch):
    calls = []
    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", lambda _self, name, private, exist_ok: calls.append(name))
    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", lambda _self, **what: calls.append(what))
    folder = merged(push_to_hub="me/model")
    assert calls == ["me/model", {"repo_id": "me/model", "folder_path": folder}]

    def refuse(_self, **_what):
        raise OSError("401 no token\nat length")

    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", refuse)
    folder.rename(run_dir / "first")
    with pytest.raises(SetupError, match=r"--push_to_hub me/model: 401 no token \(the model is in"):
        merged(push_to_hub="me/model")


def test_a_run_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(InputError, match="saved no checkpoint"):
        merge(MergeConfig(checkpoint_dir=tmp_path, output_dir=tmp_path / "model"))


def test_a_missing_checkpoint_and_an_existing_model_are_refused(run_dir):
    with pytest.raises(InputError, match="no such checkpoint"):
        merge(MergeConfig(checkpoint_dir=run_dir, output_dir=run_dir / "model", step=5))
    (run_dir / "model").mkdir()
    with pytest.raises(InputError, match="exists already"):
        merge(MergeConfig(checkpoint_dir=run_dir, output_dir=run_dir / "model"))
