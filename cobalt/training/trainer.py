"""veRL's task runner and trainer, by subclass: our managers, metrics, budget, watch over scoring, and finished runs."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import ray
import torch
from verl.trainer.main_ppo import TaskRunner
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.tracking import Tracking
from verl.workers.reward_manager.registry import REWARD_MANAGER_REGISTRY

from cobalt.errors import CobaltError
from cobalt.records.training_run import append_metrics, resumed_step
from cobalt.training.batch_scores import InfraGuard
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online import OnlineRewardManager, drop_rows_after_end
from cobalt.training.scoring import MANAGER_NAME
from cobalt.training.settings import ONLINE_MANAGER_NAME, TOKENS, Method
from cobalt.training.shared_prompts import balanced_rows, padded_rows
from cobalt.training.training_log import budget_of

LOG_DELAY_S = 3.0
"""Ray brings a worker's last lines to the driver only while the driver lives, and polls the worker's log for them."""
PlainTaskRunner: Any = TaskRunner.__ray_actor_class__  # pyright: ignore[reportAttributeAccessIssue]
"""The class that veRL has decorated with ``ray.remote``."""


class CobaltTaskRunner(PlainTaskRunner):
    """Runs in a process of its own, which builds data, reward managers and trainer."""

    def run(self, config: Any) -> None:
        from cobalt.training import patches  # imports veRL's actor, which on GPUs imports flash-attn

        REWARD_MANAGER_REGISTRY[MANAGER_NAME] = CobaltRewardManager
        patches.use_own_trainer(CobaltTrainer, MetricsLog)
        patches.log_reward_parts()
        if online := config.actor_rollout_ref.cobalt.online:
            REWARD_MANAGER_REGISTRY[ONLINE_MANAGER_NAME] = partial(OnlineRewardManager, Method(**online))
            patches.take_given_advantages()
        super().run(config)


class MetricsLog(Tracking):
    """veRL's loggers, and ``metrics.jsonl`` in the training folder: one JSON object for each call."""

    def __init__(self, *args: Any, config: Mapping[str, Any], **kwargs: Any):
        super().__init__(*args, config=config, **kwargs)
        self._folder = config["trainer"]["default_local_dir"]

    def log(self, data: Mapping[str, Any], step: int, backend: Any = None) -> None:
        super().log(data=data, step=step, backend=backend)
        append_metrics(self._folder, step, data)


class CobaltTrainer(RayPPOTrainer):
    """veRL's trainer with our workers. It leaves finished runs alone, and ends where the budget or scoring ends."""

    def __init__(self, *args: Any, role_worker_mapping: Mapping[Any, Any], **kwargs: Any):
        from verl.workers.fsdp_workers import ActorRolloutRefWorker, AsyncActorRolloutRefWorker

        from cobalt.training.workers import AsyncCobaltWorker, CobaltWorker

        subclasses = {ActorRolloutRefWorker: CobaltWorker, AsyncActorRolloutRefWorker: AsyncCobaltWorker}
        own = {}
        for role, worker in role_worker_mapping.items():
            plain = worker.__ray_actor_class__
            own[role] = ray.remote(subclasses[plain]) if plain in subclasses else worker
        super().__init__(*args, role_worker_mapping=own, **kwargs)

    def init_workers(self) -> None:
        """Does nothing for a finished run. Raises ``SetupError`` if samples cannot be scored."""
        if self._finished_at() is None:
            if isinstance(self.reward_fn, CobaltRewardManager):
                self.reward_fn.check()
            super().init_workers()

    def fit(self) -> None:
        """Train, unless the run is finished.

        Raises ``SetupError`` if too many samples cannot be scored, and ``CobaltError`` if steps are missing at the end.
        """
        if (step := self._finished_at()) is not None:
            print(f"cobalt: finished already: checkpoint {step} of {self.total_training_steps} steps", flush=True)
            time.sleep(LOG_DELAY_S)
            return
        dataset: Any = self.train_dataset
        datasets_own, budget = getattr(dataset, "on_batch_end", None), budget_of(self.config)
        guard = None
        if isinstance(self.reward_fn, CobaltRewardManager):
            guard = InfraGuard(self.reward_fn.settings.max_infra_rate)

        def after_step(batch: Any) -> None:
            if datasets_own is not None:
                datasets_own(batch)
            if guard is not None:
                guard(batch)
            if budget is not None and budget.allows_one:
                self.total_training_steps = self.global_steps  # of the step that begins now

        if budget is not None and (step := resumed_step(self.config.trainer)) and budget.allows_one:
            self.total_training_steps = step + 1
        dataset.on_batch_end = after_step
        super().fit()
        if self.global_steps <= self.total_training_steps and not self.config.trainer.val_only:
            raise CobaltError(f"training ended after step {self.global_steps - 1} of {self.total_training_steps}")

    def _finished_at(self) -> int | None:
        """The step of the checkpoint, if it is the last. veRL would take one more step, and only then ask."""
        settings, budget = self.config.trainer, budget_of(self.config)
        step = resumed_step(settings)
        is_over = step >= self.total_training_steps or (step > 0 and budget is not None and budget.is_spent)
        return step if is_over and not settings.val_only else None

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], logging_prefix: str = "global_seqlen") -> None:
        """Before rewards: online, drop rows after a trajectory's end; else give the ranks whole trees, or rows."""
        policy, ranks = self.config.actor_rollout_ref, self.actor_rollout_wg.world_size
        if policy.cobalt.online:
            any_number = policy.actor.use_dynamic_bsz and policy.cobalt.loss_weights == TOKENS
            micro_batch = 1 if any_number else policy.actor.ppo_micro_batch_size_per_gpu
            mini_batches = self.config.data.train_batch_size // policy.actor.ppo_mini_batch_size
            turns = policy.cobalt.online.turns
            drop_rows_after_end(batch, turns, policy.rollout.n, mini_batches, ranks * micro_batch)
        elif policy.cobalt.share_prompts:
            rows, unbalance = balanced_rows(padded_rows(batch.batch), ranks)
            batch.reorder(torch.tensor(rows))
            metrics.update(unbalance)
        else:
            super()._balance_batch(batch, metrics, logging_prefix)
