"""veRL's task runner, trainer and loggers as subclassed: what they add, on veRL's classes without their work."""

import json
import time
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray
import torch
from omegaconf import OmegaConf
from verl.trainer import main_ppo
from verl.trainer.ppo import ray_trainer
from verl.utils import tracking
from verl.workers.fsdp_workers import ActorRolloutRefWorker, AsyncActorRolloutRefWorker, CriticWorker
from verl.workers.reward_manager import get_reward_manager_cls

from cobalt.errors import SetupError
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.training import trainer as trainer_module
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online.manager import OnlineRewardManager
from cobalt.training.online.settings import ONLINE_VARIABLE
from cobalt.training.scoring import compute_score
from cobalt.training.trainer import CobaltTaskRunner, CobaltTrainer, MetricsLog
from cobalt.training.workers import AsyncCobaltWorker, CobaltWorker

TOTAL_STEPS = 4
VERLS = ray_trainer.RayPPOTrainer


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
def make_trainer(tmp_path, monkeypatch):
    """A trainer on a folder with a checkpoint of the given step (None: without), and what veRL did."""
    monkeypatch.setattr(trainer_module, "LOG_DELAY_S", 0)
    done = []
    monkeypatch.setattr(VERLS, "init_workers", lambda _self: done.append("init_workers"))
    monkeypatch.setattr(VERLS, "fit", lambda _self: done.append("fit"))

    def make(step=None, make_manager=lambda log: None, budget=None, steps=TOTAL_STEPS, **settings):
        if step is not None:
            (tmp_path / f"global_step_{step}").mkdir()
            (tmp_path / "latest_checkpointed_iteration.txt").write_text(str(step))
        defaults = {"resume_mode": "auto", "resume_from_path": None, "val_only": False}
        trainer: CobaltTrainer = object.__new__(CobaltTrainer)
        config = {**defaults, "default_local_dir": str(tmp_path), **settings}
        trainer.config = OmegaConf.create({"trainer": config, "cobalt": {"budget": budget}})
        trainer.total_training_steps, trainer.train_dataset = steps, SimpleNamespace()
        trainer.reward_fn = make_manager(done)
        return trainer, done

    return make


def run(made):
    trainer, done = made
    trainer.init_workers()
    trainer.fit()
    return done


@pytest.mark.parametrize("step", [None, 3])
def test_an_unfinished_run_trains_after_a_check_and_under_guard(make_trainer, step):
    made = make_trainer(step, lambda log: Manager(log, max_infra_rate=0.125))
    assert run(made) == ["check", "init_workers", "fit"]
    batch = SimpleNamespace(non_tensor_batch={"infra": np.array([1.0, 1.0, 1.0, 0.0])})
    with pytest.raises(SetupError, match=r"19% .*max_infra_rate=0\.125"):
        made[0].train_dataset.on_batch_end(batch=batch)


def test_without_a_service_nothing_starts(make_trainer):
    trainer, done = make_trainer(None, lambda log: Manager(log, service=False))
    with pytest.raises(SetupError, match="no execution service"):
        trainer.init_workers()
    assert done == ["check"]


def test_other_managers_are_neither_checked_nor_guarded(make_trainer):
    made = make_trainer(None, lambda log: print)
    assert run(made) == ["init_workers", "fit"]
    made[0].train_dataset.on_batch_end(batch=None)


@pytest.mark.parametrize("step", [TOTAL_STEPS, 9])
def test_a_finished_run_is_left_alone_and_says_so(make_trainer, step, capsys):
    assert run(make_trainer(step, Manager)) == []
    assert f"finished already: checkpoint {step} of {TOTAL_STEPS} steps" in capsys.readouterr().out


def test_a_finished_run_by_path(make_trainer):
    assert run(make_trainer(resume_mode="resume_path", resume_from_path="elsewhere/global_step_4")) == []


@pytest.mark.parametrize("settings", [{"resume_mode": "disable"}, {"val_only": True}])
def test_a_finished_run_can_be_repeated_and_validated(make_trainer, settings):
    assert run(make_trainer(TOTAL_STEPS, **settings)) == ["init_workers", "fit"]


@pytest.mark.parametrize(
    ("budget", "lost", "taken"),
    [
        *(({unit: limit}, None, steps) for unit in ("responses", "gpu_seconds") for limit, steps in ((26, 3), (36, 4))),
        ({"responses": 30}, None, 3),
        ({"responses": 34}, None, 3),
        ({"responses": 30}, 1, 2),
    ],
)
def test_training_ends_closest_to_the_budget_or_by_the_guard(make_trainer, tmp_path, monkeypatch, budget, lost, taken):
    """Each step costs 10 responses and 10 GPU-seconds. The guard ends training after the second step that is lost."""
    config = {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 2, "nnodes": 1}}
    (tmp_path / "training.manifest.json").write_text(json.dumps({"config": config}))
    steps, seen = [], []

    def fit(self):
        self.global_steps, is_last_step = 1, False
        while not is_last_step:
            is_last_step = self.global_steps >= self.total_training_steps
            steps.append({"step": self.global_steps, "timing_s/step": 5.0, "cost/responses": 10})
            (tmp_path / METRICS_FILE).write_text("".join(json.dumps(step) + "\n" for step in steps))
            is_lost = lost is not None and self.global_steps >= lost
            self.global_steps += 1
            if not is_last_step:
                infra = SimpleNamespace(non_tensor_batch={"infra": np.array([float(is_lost)])})
                self.train_dataset.on_batch_end(batch=infra)

    monkeypatch.setattr(VERLS, "fit", fit)
    trainer, _ = make_trainer(None, Manager, budget, steps=100)
    trainer.train_dataset.on_batch_end = seen.append
    with nullcontext() if lost is None else pytest.raises(SetupError, match="could not be run"):
        trainer.fit()
    assert len(steps) == taken
    assert len(seen) == taken - (lost is None)  # the hook that was there is still called


@pytest.fixture
def task_runner(monkeypatch):
    """Runs in this process up to veRL's part; what it names is put back."""
    for module, name in (
        (main_ppo, "RayPPOTrainer"),
        (tracking, "Tracking"),
        (ray_trainer, "compute_data_metrics"),
        (ray_trainer, "compute_advantage"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    ran = []
    monkeypatch.setattr(CobaltTaskRunner.__mro__[1], "run", lambda _self, config: ran.append(config))
    CobaltTaskRunner().run("config")
    assert ran == ["config"]


@pytest.mark.usefixtures("task_runner")
def test_the_task_runner_brings_managers_trainer_and_logger():
    assert get_reward_manager_cls("cobalt") is CobaltRewardManager
    assert get_reward_manager_cls("cobalt_online") is OnlineRewardManager
    assert main_ppo.RayPPOTrainer is CobaltTrainer and tracking.Tracking is MetricsLog


def test_ray_makes_the_task_runner_by_name():
    """Pickled by value it would see a copy of veRL's module, and make veRL's trainer."""
    actor = ray.remote(num_cpus=1)(CobaltTaskRunner)
    assert actor.__ray_actor_class__ is CobaltTaskRunner
    assert CobaltTaskRunner.__mro__[1].run.__globals__ is vars(main_ppo)


def test_the_trainers_workers_are_ours(monkeypatch):
    monkeypatch.setattr(
        VERLS, "__init__", lambda self, role_worker_mapping: setattr(self, "mapping", role_worker_mapping)
    )
    given = {"policy": ActorRolloutRefWorker, "async": AsyncActorRolloutRefWorker, "critic": CriticWorker}
    trainer = CobaltTrainer(role_worker_mapping={role: ray.remote(worker) for role, worker in given.items()})
    made = {role: worker.__ray_actor_class__ for role, worker in trainer.mapping.items()}
    assert made == {"policy": CobaltWorker, "async": AsyncCobaltWorker, "critic": CriticWorker}


BATCH = {
    "attention_mask": torch.tensor([[1, 1, 1, 1, 0], [0, 1, 0, 0, 0]]),
    "response_mask": torch.tensor([[1, 1, 0], [0, 0, 0]]),
}


@pytest.mark.usefixtures("task_runner")
def test_verls_metrics_are_kept_and_the_rewards_parts_and_costs_are_added(monkeypatch):
    monkeypatch.setattr(
        "cobalt.training.patches._compute_data_metrics",
        lambda batch, use_critic: {"critic/score/mean": float(use_critic)},
    )
    named = {"infra": np.array([0.0, 0.0]), "acc": np.array([1.0, 1.0]), "cost_tests_run": [1.5, 1.5]}
    batch = SimpleNamespace(non_tensor_batch=named, batch=BATCH)
    assert ray_trainer.compute_data_metrics(batch=batch, use_critic=False) == {
        "critic/score/mean": 0,
        "reward/infra": 0,
        "reward/acc": 1,
        "cost/tests_run": 3,
        "cost/responses": 1,
        "cost/prompt_tokens": 3,
        "cost/response_tokens": 2,
    }


def test_advantages_are_the_managers_online_and_verls_elsewhere(monkeypatch, task_runner):
    assert ray_trainer.compute_advantage.__module__ == ray_trainer.__name__
    monkeypatch.setenv(ONLINE_VARIABLE, "{}")
    CobaltTaskRunner().run("config")
    batch = SimpleNamespace(non_tensor_batch={"advantage": np.array([0.5, 2.0])}, batch=dict(BATCH))
    given = ray_trainer.compute_advantage(batch, adv_estimator="grpo", gamma=1.0)
    assert given.batch["advantages"].tolist() == [[0.5, 0.5, 0], [0, 0, 0]]


@pytest.fixture
def track(tmp_path, monkeypatch):
    """Logs as the trainer does, beside a logger of veRL's."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "tensorboard"))

    def run(*backends):
        config = {"trainer": {"default_local_dir": str(tmp_path / "run")}}
        log = MetricsLog("cobalt", "run", default_backend=["console", *backends], config=config)
        for step in (1, 2):
            log.log(data={"reward/total": np.float64(step / 4)}, step=step)
        return log

    yield run
    records = read_metrics(tmp_path / "run" / METRICS_FILE)
    assert [record["reward/total"] for record in records] == [0.25, 0.5]


def test_the_metrics_file_holds_what_is_logged_a_line_for_each_call(track, tmp_path):
    track().log(data={"reward/acc": 3}, step=2)
    lines = [json.loads(line) for line in Path(tmp_path / "run" / METRICS_FILE).read_text().splitlines()]
    assert lines == [{"step": 1, "reward/total": 0.25}, {"step": 2, "reward/total": 0.5}, {"step": 2, "reward/acc": 3}]
    assert read_metrics(tmp_path / "run" / METRICS_FILE)[1] == {"step": 2, "reward/total": 0.5, "reward/acc": 3}


def test_weights_and_biases_offline(track, tmp_path):
    import wandb

    wandb.teardown()  # it keeps the mode that an earlier test of this process began with
    track("wandb").logger["wandb"].finish()
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    (binary,) = run.glob("*.wandb")
    deadline = time.monotonic() + 60  # a process of its own writes the file
    while b"reward/total" not in binary.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert b"reward/total" in binary.read_bytes()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
def test_tensorboard(track, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    track("tensorboard").logger["tensorboard"].finish()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.value for event in events.Scalars("reward/total")] == [0.25, 0.5]
