"""What a training folder holds, read back: metrics, the budget that they are held against, and the model's card."""

import json
import math
import os
import resource
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub import ModelCard
from omegaconf import OmegaConf

from cobalt.errors import InputError, SetupError
from cobalt.records import write_jsonl
from cobalt.records.training_run import (
    EDGE_STEPS,
    append_metrics,
    edge_means,
    edge_steps,
    read_metrics,
    saved_steps,
)
from cobalt.training.checkpoints import remove_old_checkpoints, whole_checkpoint
from cobalt.training.merge import MergeConfig, manifest_of, merge, merge_shards, model_card
from cobalt.training.training_log import budget_of


def metrics_of(folder, *records):
    write_jsonl(folder / "metrics.jsonl", records)
    return read_metrics(folder / "metrics.jsonl")


def test_metrics_are_numbers_by_step_and_a_step_that_was_repeated_after_a_resume_has_its_later_values(tmp_path):
    repeated = metrics_of(tmp_path, {"step": 2, "a": 2, "b": 0.5}, {"step": 1, "a": 1, "c": "x"}, {"step": 2, "a": 3})
    assert repeated == [{"step": 1, "a": 1}, {"step": 2, "a": 3, "b": 0.5}]
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 2: missing field 'step'"):
        metrics_of(tmp_path, {"step": 1}, {"a": 1})


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([0.0] * EDGE_STEPS + [9.0] + [1.0] * EDGE_STEPS, (0, 1)),
        ([4.0], (4, 4)),
        ([1.0, 3.0], (1, 3)),
        ([0.0, 2.0, 9.0, 4.0, 6.0], (1, 5)),
    ],
)
def test_edges_are_the_first_and_last_steps_and_of_a_short_run_its_halves(values, edges):
    assert edge_means(values) == edges
    assert [edge_steps(steps) for steps in (1, 2, 3, 19, 20, 21, 500)] == [1, 1, 1, 9, 10, 10, EDGE_STEPS]


def budget_in(folder, section):
    return budget_of(OmegaConf.create({"cobalt": {"budget": section}, "trainer": {"default_local_dir": str(folder)}}))


@pytest.mark.parametrize(
    "section", [{"steps": 3}, {"responses": 0}, {"responses": "x"}, {"responses": 1, "gpu_seconds": 1}, {}, 9]
)
def test_other_budgets_are_refused_and_without_one_there_is_none(tmp_path, section):
    assert budget_in(tmp_path, None) is None
    with pytest.raises(InputError, match=r"cobalt\.budget"):
        budget_in(tmp_path, section)


def test_a_budget_of_seconds_is_spent_by_steps_but_for_checkpoints_and_validation_is_no_part_of_them(tmp_path):
    config = {"trainer": {"n_gpus_per_node": 2, "nnodes": 1}}
    (tmp_path / "training.manifest.json").write_text(json.dumps({"config": config}))
    seconds = {"timing_s/step": 10, "timing_s/save_checkpoint": 4, "timing_s/testing": 7}  # veRL tests after the step
    metrics_of(tmp_path, {"step": 1, **seconds}, {"step": 2, **seconds})
    assert budget_in(tmp_path, {"gpu_seconds": 48}).steps_left() == 2
    metrics_of(tmp_path, {"step": 1, **seconds, "cost/gpus": 4}, {"step": 2, **seconds, "cost/gpus": 2})
    assert budget_in(tmp_path, {"gpu_seconds": 54}).steps_left() == 1  # it was resumed with half of the GPUs


@pytest.fixture
def run_dir(tmp_path):
    """What training leaves behind, but for the weights."""
    config = {"actor_rollout_ref": {"model": {"path": "/somewhere/minicoder"}}}
    manifest = {"config": config, "inputs": {"/data/train.parquet": "abc123"}, "git_commit": "c0ffee"}
    (tmp_path / "training.manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("16")
    return tmp_path


def test_the_card_tells_data_start_and_steps_and_no_folders(run_dir):
    card = model_card(manifest_of(run_dir), step=16)
    assert "| train.parquet | abc123 |" in card
    assert "# minicoder, trained with Cobalt" in card and "16 steps" in card and "c0ffee" in card
    assert "/somewhere" not in card and "/data" not in card


def test_the_card_names_base_model_and_licence_of_the_start(run_dir, tmp_path, monkeypatch):
    def header(start, *flags):
        manifest = json.loads((run_dir / "training.manifest.json").read_text())
        manifest["config"]["actor_rollout_ref"]["model"]["path"] = str(start)
        (run_dir / "training.manifest.json").write_text(json.dumps(manifest))
        data = yaml.safe_load(model_card(manifest_of(run_dir), 16, *flags).split("---")[1])
        return data["base_model"], data["license"]

    start = tmp_path / "start"
    start.mkdir()
    assert header(start) == ("start", "unknown")
    (start / "README.md").write_text("---\nlicense: mit\nbase_model: some/base\n---\n# start\n")
    assert header(start) == ("some/base", "mit")
    assert header(start, "an/other", "cc0-1.0") == ("an/other", "cc0-1.0")
    monkeypatch.setattr("huggingface_hub.ModelCard.load", lambda name: ModelCard(f"---\nlicense: mit\n---\n{name}"))
    assert header("Some/Model-8B") == ("Some/Model-8B", "mit")  # of the hub: named as there


def test_old_checkpoints_go_but_those_that_a_resume_or_another_course_needs(tmp_path):
    for step in range(1, 8):
        (tmp_path / f"global_step_{step}").mkdir()
    (tmp_path / "global_step_9.removed").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("3")  # as while later ones are still written
    losses = {1: math.nan, 2: 0.5, 4: 0.7, 8: 0.1}  # a validation of which nothing could be scored tells nothing
    metrics_of(tmp_path, *({"step": step, "val/loss": loss} for step, loss in losses.items()))
    remove_old_checkpoints(tmp_path, None, 6)
    assert [*saved_steps(tmp_path)] == [*range(1, 8)]
    remove_old_checkpoints(tmp_path, 2, 6)
    assert sorted(path.name for path in tmp_path.glob("global*")) == [f"global_step_{n}" for n in (2, 3, 5, 6, 7)]


def save(folder, step, weights):
    """As veRL does, at the place of its settings."""
    trainer = SimpleNamespace(default_local_dir=str(folder))
    with whole_checkpoint(trainer, f"global_step_{step}") as checkpoint:
        partial = Path(trainer.default_local_dir, f"global_step_{step}")
        partial.mkdir()
        (partial / "weights").write_text("half")
        if weights is None:
            raise RuntimeError("unexpected pos 640 vs 598")
        (partial / "weights").write_text(weights)
        Path(trainer.default_local_dir, "latest_checkpointed_iteration.txt").write_text(str(step))
    assert trainer.default_local_dir == str(folder)
    return checkpoint


@contextmanager
def full_disk():
    """A limit on the size of files stands for it. It ends with the body, as pytest may report to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("weights", [None, "whole"])
def test_a_checkpoint_for_which_the_disk_has_no_room_is_none_and_the_one_before_stays(tmp_path, weights):
    """Also if only the metrics of its step would have none. torch's own error does not name the disk."""
    save(tmp_path, 1, "first")
    with full_disk(), pytest.raises(OSError, match="File too large") as caught:
        save(tmp_path, 2, weights)
    assert caught.value.filename == str(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_1", "latest_checkpointed_iteration.txt"]
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "1"


def test_a_checkpoint_replaces_that_of_the_course_before_once_it_is_whole(tmp_path):
    save(tmp_path, 2, "old")
    with pytest.raises(RuntimeError, match="unexpected pos"):
        save(tmp_path, 2, None)
    assert (tmp_path / "global_step_2/weights").read_text() == "old"
    (tmp_path / "checkpoint.unfinished/global_step_2").mkdir(parents=True)  # by a training that was killed
    assert (save(tmp_path, 2, "new") / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.glob("*unfinished")] == []


def test_a_full_disk_under_the_metrics_names_their_file(tmp_path):
    with full_disk(), pytest.raises(OSError, match="File too large") as caught:
        append_metrics(tmp_path, 1, {"reward/total": 1.0})
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")


@pytest.fixture
def merged(run_dir, monkeypatch):
    """Merge with a stand-in for veRL's merger; the model's folder."""

    def write_weights(command, **_options):
        folder = Path(command[command.index("--target_dir") + 1])
        folder.mkdir()
        (folder / "from").write_text(command[command.index("--local_dir") + 1])
        for name in ("config.json", "tokenizer_config.json"):
            (folder / name).write_text("written by the merger")
        (folder / "config.json").chmod(0o600)  # as safetensors leaves weights
        return SimpleNamespace(returncode=0, stdout="a warning")

    monkeypatch.setattr("subprocess.run", write_weights)
    (run_dir / "global_step_16" / "actor").mkdir(parents=True)

    def run(**flags):
        merge(MergeConfig(checkpoint_dir=run_dir, output_dir=run_dir / "model", **flags))
        return run_dir / "model"

    return run


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("training.manifest.json", b"{", "no manifest"),
        ("training.manifest.json", b"[]", "no manifest"),
        ("training.manifest.json", b"{}", "not the manifest of a training"),
        (
            "training.manifest.json",
            b'{"config": {"model": {"path": 5}}, "inputs": {}, "git_commit": ""}',
            "not the man",
        ),
        ("training.manifest.json", b'{"config": {"model": {"path": "a"}}, "git_commit": ""}', "not the manifest of a"),
        ("training.manifest.json", None, "no such file"),
        ("latest_checkpointed_iteration.txt", b"\xff", "names no checkpoint"),
    ],
)
def test_a_broken_file_of_the_run_is_told_before_weights_are_merged(merged, run_dir, monkeypatch, name, content, told):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("weights were merged"))
    (run_dir / name).unlink() if content is None else (run_dir / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: {told}"):
        merged()


def test_the_latest_checkpoint_is_merged_and_has_a_card_and_other_requests_are_refused(merged, run_dir):
    with pytest.raises(InputError, match=r"--step 5: no such checkpoint; .* has those of steps 16$"):
        merged(step=5)
    folder = merged()
    assert (folder / "from").read_text() == str(run_dir / "global_step_16" / "actor")
    assert "16 steps" in (folder / "README.md").read_text()
    os.umask(mask := os.umask(0))
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666 & ~mask}
    with pytest.raises(InputError, match="exists already"):
        merged()
    folder.rename(run_dir / "first")
    (run_dir / "latest_checkpointed_iteration.txt").write_text("")
    with pytest.raises(InputError, match=r"choose one with --step: .* has those of steps 16"):
        merged()
    (run_dir / "latest_checkpointed_iteration.txt").unlink()
    with pytest.raises(InputError, match="names no checkpoint"):
        merged()
    (run_dir / "global_step_16").rename(run_dir / "moved")
    with pytest.raises(InputError, match="has saved no checkpoint"):
        merged()
    with pytest.raises(InputError, match=r"typo: no such folder$"):
        merge(MergeConfig(checkpoint_dir=run_dir / "typo", output_dir=run_dir / "model"))


@pytest.mark.parametrize("is_of_the_hub", [False, True])
def test_a_model_keeps_the_settings_of_its_start_if_that_is_here(merged, run_dir, tmp_path, monkeypatch, is_of_the_hub):
    assert (merged() / "config.json").read_text() == "written by the merger"
    (run_dir / "model").rename(run_dir / "first")
    name, start = str(tmp_path / "start"), tmp_path / "start"
    if is_of_the_hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("huggingface_hub.ModelCard.load", lambda _: ModelCard("none"))
        name, cache = "some/start", tmp_path / "hub/models--some--start"
        (cache / "refs").mkdir(parents=True)
        (cache / "refs/main").write_text("c0ffee")
        start = cache / "snapshots/c0ffee"
    manifest = run_dir / "training.manifest.json"
    manifest.write_text(manifest.read_text().replace("/somewhere/minicoder", name))
    start.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (start / file).write_text("of the start")
    folder = merged()
    assert (folder / "config.json").read_text() == "of the start" and not (folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("settings", "shape", "tokenizer"),
    [
        ({"override_config": {"attn_implementation": "sdpa"}, "custom_chat_template": None}, "start", "start"),
        ({"tokenizer_path": "{folder}/other"}, "start", "other"),
        ({"hf_config_path": "{folder}/other"}, "other", "start"),
        ({"custom_chat_template": "{{ messages }}"}, "start", "written by the merger"),
        ({"override_config": {"rope_theta": 5}}, "written by the merger", "start"),
    ],
)
def test_a_model_keeps_what_training_read_or_changed_and_not_what_the_start_has(
    merged, run_dir, tmp_path, settings, shape, tokenizer
):
    for name in ("start", "other"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "tokenizer_config.json"):
            (tmp_path / name / file).write_text(name)
    path = run_dir / "training.manifest.json"
    manifest = json.loads(path.read_text())
    settings = {key: value.format(folder=tmp_path) if "path" in key else value for key, value in settings.items()}
    manifest["config"]["actor_rollout_ref"]["model"] = {"path": str(tmp_path / "start"), **settings}
    path.write_text(json.dumps(manifest))
    folder = merged()
    assert [(folder / file).read_text() for file in ("config.json", "tokenizer_config.json")] == [shape, tokenizer]


def test_a_file_of_the_users_folder_is_no_module_of_the_merger(tmp_path, monkeypatch):
    merger = tmp_path / "site/verl/model_merger.py"
    merger.parent.mkdir(parents=True)
    merger.write_text("import secrets")
    merger.with_name("__init__.py").touch()
    (tmp_path / "secrets.py").write_text("raise ImportError('the user has this file for something else')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    merge_shards(tmp_path / "checkpoint", tmp_path / "model")


def test_what_the_merger_prints_is_shown_only_if_it_fails(merged, run_dir, capsys, monkeypatch):
    shown = capsys.readouterr
    merged().rename(run_dir / "first")
    assert "warning" not in "".join(shown())
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(returncode=1, stdout="a warning\nan error"))
    with pytest.raises(SetupError, match=r"failed on .*/actor; its message is above"):
        merged()
    assert "a warning\nan error" in shown().err and not (run_dir / "model").exists()


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
