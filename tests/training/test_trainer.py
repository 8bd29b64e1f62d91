"""veRL's task runner, trainer and loggers as subclassed, and what is replaced in veRL by name."""

import inspect
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config
from verl.trainer import main_ppo
from verl.trainer.ppo import ray_trainer
from verl.utils import tracking
from verl.workers.fsdp_workers import ActorRolloutRefWorker, AsyncActorRolloutRefWorker, CriticWorker
from verl.workers.reward_manager import get_reward_manager_cls

from cobalt.errors import CobaltError, SetupError
from cobalt.records import write_jsonl
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.training import patches
from cobalt.training import trainer as trainer_module
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online import OnlineRewardManager
from cobalt.training.scoring import compute_score
from cobalt.training.settings import PAPER, Method
from cobalt.training.trainer import CobaltTaskRunner, CobaltTrainer, MetricsLog
from cobalt.training.workers import AsyncCobaltWorker, CobaltWorker, restore_frequencies

ROOT = Path(__file__).parents[2]
TOTAL_STEPS = 4
OFFLINE = OmegaConf.create({"actor_rollout_ref": {"cobalt": {"online": None}}})
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

    def fit(self):
        done.append("fit")
        self.global_steps = self.total_training_steps + 1  # veRL's, once the last step is done

    monkeypatch.setattr(VERLS, "fit", fit)

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


def infra(*shares):
    return SimpleNamespace(non_tensor_batch={"infra": np.array(shares)})


@pytest.mark.parametrize("step", [None, 3])
def test_an_unfinished_run_trains_after_a_check_and_under_guard(make_trainer, step):
    made = make_trainer(step, lambda log: Manager(log, max_infra_rate=0.125))
    assert run(made) == ["check", "init_workers", "fit"]
    with pytest.raises(SetupError, match=r"19% .*max_infra_rate=0\.125"):
        made[0].train_dataset.on_batch_end(batch=infra(1.0, 1.0, 1.0, 0.0))


def test_without_a_service_nothing_starts_and_other_managers_are_neither_checked_nor_guarded(make_trainer):
    trainer, done = make_trainer(None, lambda log: Manager(log, service=False))
    with pytest.raises(SetupError, match="no execution service"):
        trainer.init_workers()
    assert done == ["check"]
    done.clear()
    made = make_trainer(None, lambda log: print)
    assert run(made) == ["init_workers", "fit"]
    made[0].train_dataset.on_batch_end(batch=None)


@pytest.mark.parametrize("step", [TOTAL_STEPS, 9])
def test_a_finished_run_is_left_alone_and_says_so(make_trainer, step, capsys):
    assert run(make_trainer(step, Manager)) == []
    assert f"finished already: checkpoint {step} of {TOTAL_STEPS} steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "settings", "done"),
    [
        (None, {"resume_mode": "resume_path", "resume_from_path": "elsewhere/global_step_4"}, []),
        (TOTAL_STEPS, {"resume_mode": "disable"}, ["init_workers", "fit"]),
        (TOTAL_STEPS, {"val_only": True}, ["init_workers", "fit"]),
    ],
)
def test_a_finished_run_is_known_by_path_and_can_be_repeated_and_validated(make_trainer, step, settings, done):
    assert run(make_trainer(step, **settings)) == done


def test_a_run_that_ends_before_its_last_step_is_a_failure(make_trainer, monkeypatch):
    trainer, _ = make_trainer(None)
    monkeypatch.setattr(VERLS, "fit", lambda self: setattr(self, "global_steps", 3))
    with pytest.raises(CobaltError, match=f"^training ended after step 2 of {TOTAL_STEPS}$"):
        trainer.fit()


@pytest.mark.parametrize(
    ("budget", "lost", "begun", "taken"),
    [
        ({"responses": 34}, None, 0, 3),
        ({"gpu_seconds": 36}, None, 0, 4),
        ({"responses": 30}, 1, 0, 2),
        ({"responses": 34}, None, 2, 3),  # known before the first step of a resumed run
    ],
)
def test_training_ends_closest_to_the_budget_or_by_the_guard(
    make_trainer, tmp_path, monkeypatch, budget, lost, begun, taken
):
    """Each step costs 10 responses and 10 GPU-seconds. The guard ends training after the second step that is lost."""
    config = {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 2, "nnodes": 1}}
    (tmp_path / "training.manifest.json").write_text(json.dumps({"config": config}))
    cost = {"timing_s/step": 5.0, "cost/responses": 10}
    steps, seen = [{"step": step, **cost} for step in range(1, begun + 1)], []
    write_jsonl(tmp_path / METRICS_FILE, steps)

    def fit(self):
        self.global_steps, is_last_step = begun + 1, False
        while not is_last_step:
            is_last_step = self.global_steps >= self.total_training_steps
            steps.append({"step": self.global_steps, **cost})
            write_jsonl(tmp_path / METRICS_FILE, steps)
            is_lost = lost is not None and self.global_steps >= lost
            self.global_steps += 1
            if not is_last_step:
                self.train_dataset.on_batch_end(batch=infra(float(is_lost)))

    monkeypatch.setattr(VERLS, "fit", fit)
    trainer, _ = make_trainer(begun or None, Manager, budget, steps=100)
    trainer.train_dataset.on_batch_end = seen.append
    with nullcontext() if lost is None else pytest.raises(SetupError, match="could not be run"):
        trainer.fit()
    assert len(steps) == taken
    assert len(seen) == taken - begun - (lost is None)  # the hook that was there is still called


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
    CobaltTaskRunner().run(OFFLINE)
    assert ran == [OFFLINE]


@pytest.mark.usefixtures("task_runner")
def test_the_task_runner_brings_managers_trainer_and_logger():
    assert get_reward_manager_cls("cobalt") is CobaltRewardManager
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
        patches, "_compute_data_metrics", lambda batch, use_critic: {"critic/score/mean": float(use_critic)}
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


@pytest.mark.usefixtures("task_runner")
def test_advantages_are_the_managers_online_and_verls_elsewhere():
    assert ray_trainer.compute_advantage.__module__ == ray_trainer.__name__
    online = OmegaConf.merge(OFFLINE, {"actor_rollout_ref": {"cobalt": {"online": {"method": "verpo", "turns": 2}}}})
    CobaltTaskRunner().run(online)
    manager = get_reward_manager_cls("cobalt_online")(tokenizer=None, num_examine=0, compute_score=compute_score)
    assert isinstance(manager, OnlineRewardManager) and manager.method == Method("verpo", 2)
    batch = SimpleNamespace(non_tensor_batch={"advantage": np.array([0.5, 2.0])}, batch=dict(BATCH))
    given = ray_trainer.compute_advantage(batch, adv_estimator="grpo", gamma=1.0)
    assert given.batch["advantages"].tolist() == [[0.5, 0.5, 0], [0, 0, 0]]


def test_the_metrics_file_holds_what_is_logged_a_line_for_each_call_and_verls_loggers_get_it_too(tmp_path, capsys):
    config = {"trainer": {"default_local_dir": str(tmp_path / "run")}}
    log = MetricsLog("cobalt", "run", default_backend=["console"], config=config)
    for step, data in ((1, {"reward/total": np.float64(0.25)}), (2, {"reward/total": 0.5}), (2, {"reward/acc": 3})):
        log.log(data=data, step=step)
    lines = [json.loads(line) for line in Path(tmp_path / "run" / METRICS_FILE).read_text().splitlines()]
    assert lines == [{"step": 1, "reward/total": 0.25}, {"step": 2, "reward/total": 0.5}, {"step": 2, "reward/acc": 3}]
    assert read_metrics(tmp_path / "run" / METRICS_FILE)[1] == {"step": 2, "reward/total": 0.5, "reward/acc": 3}
    assert "step:1 - reward/total:0.25" in capsys.readouterr().out


CPU_WORKER = """
import torch, verl, os
print("verl", verl.__version__, os.path.dirname(verl.__file__))
from cobalt.training import patches
for _ in range(2):
    patches.work_on_a_cpu()
import verl.workers.fsdp_workers as workers
from verl.utils.device import get_torch_device
print("backend", workers.get_nccl_backend(), get_torch_device().get_device_name(), get_torch_device().mem_get_info())
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("dtype", (torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
print("pinned", workers.CPUOffloadPolicy(pin_memory=True).pin_memory)
workers.dist.init_process_group("cpu:gloo,cpu:gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
print("group", workers.dist.get_world_size())
"""


def test_the_installed_verl_works_on_a_cpu():
    """From the repository's root, whose folder ``verl`` must not hide the package."""
    done = subprocess.run([sys.executable, "-c", CPU_WORKER], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"verl {PAPER} " in done.stdout and "site-packages" in done.stdout
    for line in ("backend gloo CPU (0, 0)", "dtype torch.float32", "pinned False", "group 1"):
        assert line in done.stdout


def test_the_documentation_lists_every_patch():
    page = (ROOT / "docs/training.md").read_text()
    names = [
        name
        for name, function in inspect.getmembers(patches, inspect.isfunction)
        if function.__module__ == patches.__name__ and not inspect.signature(function).parameters
    ]
    assert len(names) == 4
    assert all(f"`{name}`" in page for name in [*names, "use_own_trainer"])


SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
}
CONFIGS = [Qwen3Config(head_dim=16, rope_theta=1e6, **SIZES), LlamaConfig(**SIZES)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_frequencies_are_those_before_the_cast_and_the_weights_stay_bf16(config, monkeypatch):
    model = AutoModelForCausalLM.from_config(config)
    before = model.model.rotary_emb.inv_freq.clone()
    model.to(torch.bfloat16)
    assert not torch.equal(model.model.rotary_emb.inv_freq.float(), before)
    monkeypatch.setattr(ActorRolloutRefWorker, "_build_model_optimizer", lambda _self, **given: (model, given))
    made = object.__new__(CobaltWorker)._build_model_optimizer(role="ref")
    assert made == (model, {"role": "ref"})
    assert torch.equal(model.model.rotary_emb.inv_freq, before)
    assert "model.rotary_emb.inv_freq" not in model.state_dict()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_log_probs_at_late_positions_are_then_those_of_the_rounded_weights():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[0], attn_implementation="sdpa").eval()
    ids = torch.randint(64, (1, 2048))

    def late_log_probs():
        with torch.no_grad():
            return model(ids).logits[0, -512:].log_softmax(-1)

    rounded = {name: weight.bfloat16().float() for name, weight in model.state_dict().items()}
    model.load_state_dict(rounded)
    expected = late_log_probs()
    model.to(torch.bfloat16).float()  # the cast, then arithmetic that rounds nothing more
    assert (late_log_probs() - expected).abs().max() > 0.05
    restore_frequencies(model)
    assert torch.equal(late_log_probs(), expected)
    without = torch.nn.Linear(2, 2)  # no rotary embeddings
    restore_frequencies(without)
    assert not dict(without.named_buffers())
