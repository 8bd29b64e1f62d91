"""veRL's trainer and its logger as patched, on stand-ins for veRL's classes."""

import json
from contextlib import nullcontext
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from cobalt.errors import SetupError
from cobalt.records.training_run import read_metrics
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.patches import trainer as trainer_patches
from cobalt.training.patches.tracking import write_metrics
from cobalt.training.patches.trainer import end_at_budget, leave_finished_runs, log_reward_parts, watch_scoring
from cobalt.training.scoring import compute_score

TOTAL_STEPS = 4


class VerlTrainer:
    """Records what veRL would have done."""

    def __init__(self, trainer, reward_fn, budget=None):
        self.config = OmegaConf.create({"trainer": trainer, "cobalt": {"budget": budget}})
        self.total_training_steps = TOTAL_STEPS
        self.train_dataset = SimpleNamespace()
        self.reward_fn = reward_fn
        self.done = []

    def init_workers(self):
        self.done.append("init_workers")

    def fit(self):
        self.done.append("fit")


class Manager(CobaltRewardManager):
    """Says when it was checked, or fails then."""

    def __init__(self, log, service=True, **settings):
        super().__init__(None, 0, compute_score, **settings)
        self.log, self.service = log, service

    def check(self):
        self.log.append("check")
        if not self.service:
            raise SetupError("no execution service")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the trainer on a folder with a checkpoint of the given step (None: without); what veRL did."""
    monkeypatch.setattr(trainer_patches, "LOG_DELAY_S", 0)

    def run_from(step, make_manager=lambda log: None, **settings):
        if step is not None:
            (tmp_path / f"global_step_{step}").mkdir()
            (tmp_path / "latest_checkpointed_iteration.txt").write_text(str(step))
        defaults = {"resume_mode": "auto", "resume_from_path": None, "val_only": False}
        config = {**defaults, "default_local_dir": str(tmp_path), **settings}
        ray_trainer = SimpleNamespace(RayPPOTrainer=type("Trainer", (VerlTrainer,), {}))
        watch_scoring(ray_trainer)
        leave_finished_runs(ray_trainer)
        trainer = ray_trainer.RayPPOTrainer(config, None)
        trainer.reward_fn = make_manager(trainer.done)
        trainer.init_workers()
        trainer.fit()
        return trainer

    return run_from


@pytest.mark.parametrize("step", [None, 3])
def test_an_unfinished_run_trains_after_a_check_and_under_guard(run, step):
    trainer = run(step, lambda log: Manager(log, max_infra_rate=0.125))
    assert trainer.done == ["check", "init_workers", "fit"]
    batch = SimpleNamespace(non_tensor_batch={"infra": np.array([1.0, 1.0, 1.0, 0.0])})
    with pytest.raises(SetupError, match=r"19% .*max_infra_rate=0\.125"):
        trainer.train_dataset.on_batch_end(batch=batch)


def test_without_a_service_nothing_starts(run):
    done = []

    def make_manager(log):
        done.append(log)
        return Manager(log, service=False)

    with pytest.raises(SetupError, match="no execution service"):
        run(None, make_manager)
    assert done == [["check"]]


def test_other_managers_are_neither_checked_nor_guarded(run):
    trainer = run(None, lambda log: print)
    assert trainer.done == ["init_workers", "fit"]
    assert not hasattr(trainer.train_dataset, "on_batch_end")


@pytest.mark.parametrize("step", [TOTAL_STEPS, 9])
def test_a_finished_run_is_left_alone_and_says_so(run, step, capsys):
    assert run(step, Manager).done == []
    assert f"finished already: checkpoint {step} of {TOTAL_STEPS} steps" in capsys.readouterr().out


def test_a_finished_run_by_path(run):
    assert run(None, resume_mode="resume_path", resume_from_path="elsewhere/global_step_4").done == []


@pytest.mark.parametrize("settings", [{"resume_mode": "disable"}, {"val_only": True}])
def test_a_finished_run_can_be_repeated_and_validated(run, settings):
    assert run(TOTAL_STEPS, **settings).done == ["init_workers", "fit"]


class SteppingTrainer(VerlTrainer):
    """Also takes steps, each of which costs 10 responses; ``lost``: the step from which on no sample can be scored."""

    lost: int | None = None

    def fit(self):
        folder = Path(self.config.trainer.default_local_dir)
        self.global_steps = 1
        while True:
            is_last_step = self.global_steps >= self.total_training_steps
            with open(folder / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"step": self.global_steps, "timing_s/step": 1.0, "cost/responses": 10}) + "\n")
            self.done.append(self.global_steps)
            is_lost = self.lost is not None and self.global_steps >= self.lost
            self.global_steps += 1
            if is_last_step:
                return
            batch = SimpleNamespace(non_tensor_batch={"infra": np.array([float(is_lost)])})
            self.train_dataset.on_batch_end(batch=batch)


@pytest.mark.parametrize("patches", [*permutations([end_at_budget, watch_scoring])], ids=lambda p: p[0].__name__)
@pytest.mark.parametrize("lost", [None, 1])
def test_a_budget_and_the_guard_both_act_in_either_order(tmp_path, patches, lost):
    """30 responses are three steps. The guard ends training after the second step that is lost whole."""
    (tmp_path / "training.manifest.json").write_text(
        json.dumps({"config": {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 1, "nnodes": 1}}})
    )
    ray_trainer = SimpleNamespace(RayPPOTrainer=type("Trainer", (SteppingTrainer,), {"lost": lost}))
    for patch in patches:
        patch(ray_trainer)
    trainer = ray_trainer.RayPPOTrainer({"default_local_dir": str(tmp_path)}, None, budget={"responses": 30})
    trainer.reward_fn = Manager(trainer.done)
    trainer.total_training_steps = 100
    with nullcontext() if lost is None else pytest.raises(SetupError, match="could not be run"):
        trainer.fit()
    assert trainer.done == ([1, 2, 3] if lost is None else [1, 2])


def test_verls_metrics_are_kept():
    ray_trainer = SimpleNamespace(
        compute_data_metrics=lambda batch, use_critic: {"critic/score/mean": float(use_critic)}
    )
    log_reward_parts(ray_trainer)
    batch = SimpleNamespace(
        non_tensor_batch={"infra": np.array([0.0, 0.0]), "acc": np.array([1.0, 1.0]), "cost_tests_run": [1.5, 1.5]},
        batch={
            "attention_mask": torch.tensor([[1, 1, 1, 1, 0], [0, 1, 0, 0, 0]]),
            "response_mask": torch.tensor([[1, 1, 0], [0, 0, 0]]),
        },
    )
    assert ray_trainer.compute_data_metrics(batch=batch, use_critic=False) == {
        "critic/score/mean": 0,
        "reward/infra": 0,
        "reward/acc": 1,
        "cost/tests_run": 3,
        "cost/responses": 1,
        "cost/prompt_tokens": 3,
        "cost/response_tokens": 2,
    }


class Tracking:
    def __init__(self, project_name, config=None):
        self.logged = []

    def log(self, data, step, backend=None):
        self.logged.append((step, data))


def test_the_metrics_file_holds_what_is_logged(tmp_path):
    module = SimpleNamespace(Tracking=Tracking)
    write_metrics(module)
    folder = tmp_path / "run"
    tracking = module.Tracking(project_name="x", config={"trainer": {"default_local_dir": str(folder)}})
    tracking.log(data={"a": np.float64(1)}, step=1)
    tracking.log(data={"a": 2, "b": 0.5}, step=2)
    tracking.log(data={"a": 3}, step=2)
    assert [step for step, _ in tracking.logged] == [1, 2, 2]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "a": 1},
        {"step": 2, "a": 2, "b": 0.5},
        {"step": 2, "a": 3},
    ]
    assert read_metrics(folder / "metrics.jsonl") == [{"step": 1, "a": 1}, {"step": 2, "a": 3, "b": 0.5}]
