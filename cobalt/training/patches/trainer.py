"""veRL's trainer: the metrics of a step, the watch over scoring, and runs that are finished.

Its methods are wrapped on the class itself. A subclass in its place would not be used: the task runner is a Ray actor,
which Ray pickles by value with a copy of its globals, and in the worker that copy finds ``RayPPOTrainer`` by name.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from cobalt.training.budget import budget_of
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.reward_metrics import cost_metrics, reward_metrics
from cobalt.training.unscored import InfraGuard

LOG_DELAY_S = 3.0
"""Ray brings a worker's last lines to the driver only while the driver lives, and polls the worker's log for them."""


def log_reward_parts(ray_trainer: Any) -> None:
    """``compute_data_metrics``, as the trainer calls it, also gives ``reward_metrics`` and ``cost_metrics``."""
    compute_data_metrics = ray_trainer.compute_data_metrics

    @wraps(compute_data_metrics)
    def with_reward_parts(batch: Any, use_critic: bool = True) -> dict[str, Any]:
        metrics = compute_data_metrics(batch=batch, use_critic=use_critic)
        return {**metrics, **reward_metrics(batch.non_tensor_batch), **cost_metrics(batch)}

    ray_trainer.compute_data_metrics = with_reward_parts


def watch_scoring(ray_trainer: Any) -> None:
    """Check our reward manager before workers are made, and stop training under ``InfraGuard``."""
    trainer = ray_trainer.RayPPOTrainer
    init_workers, fit = trainer.init_workers, trainer.fit

    @wraps(init_workers)
    def check_and_init_workers(self: Any) -> None:
        if isinstance(self.reward_fn, CobaltRewardManager):
            self.reward_fn.check()
        init_workers(self)

    @wraps(fit)
    def fit_under_guard(self: Any) -> None:
        if isinstance(self.reward_fn, CobaltRewardManager):
            _after_each_step(self, InfraGuard(self.reward_fn.settings.max_infra_rate))
        fit(self)

    trainer.init_workers, trainer.fit = check_and_init_workers, fit_under_guard


def end_at_budget(ray_trainer: Any) -> None:
    """Make the step the last one with which ``cobalt.budget`` is spent."""
    trainer = ray_trainer.RayPPOTrainer
    fit = trainer.fit

    @wraps(fit)
    def fit_within_budget(self: Any) -> None:
        if (budget := budget_of(self.config)) is not None:

            def look_at_budget(batch: Any) -> None:
                if budget.allows_one:
                    self.total_training_steps = self.global_steps  # of the step that begins now

            _after_each_step(self, look_at_budget)
        fit(self)

    trainer.fit = fit_within_budget


def _after_each_step(trainer: Any, hook: Callable[[Any], None]) -> None:
    """Call ``hook`` with the batch, beside what is called already: patches may come in any order."""
    earlier = getattr(trainer.train_dataset, "on_batch_end", lambda batch: None)

    def both(batch: Any) -> None:
        earlier(batch)
        hook(batch)

    trainer.train_dataset.on_batch_end = both


def leave_finished_runs(ray_trainer: Any) -> None:
    """Add no step to a run whose checkpoint is that of its last step; ``trainer.val_only`` still validates it."""
    trainer = ray_trainer.RayPPOTrainer
    init_workers, fit = trainer.init_workers, trainer.fit

    def finished_at(self: Any) -> int | None:
        step, budget = resumed_step(self.config.trainer), budget_of(self.config)
        is_over = step >= self.total_training_steps or (step > 0 and budget is not None and budget.is_spent)
        return step if is_over and not self.config.trainer.val_only else None

    @wraps(init_workers)
    def init_workers_to_train(self: Any) -> None:
        if finished_at(self) is None:
            init_workers(self)

    @wraps(fit)
    def fit_if_unfinished(self: Any) -> None:
        if (step := finished_at(self)) is None:
            fit(self)
            return
        print(f"cobalt: finished already: checkpoint {step} of {self.total_training_steps} steps", flush=True)
        time.sleep(LOG_DELAY_S)

    trainer.init_workers, trainer.fit = init_workers_to_train, fit_if_unfinished


def resumed_step(trainer: Any) -> int:
    """The step of the checkpoint that veRL will resume from; 0 if it will start from scratch."""
    if trainer.resume_mode == "disable":
        return 0
    by_path = trainer.resume_mode == "resume_path"
    folder = trainer.resume_from_path if by_path else find_latest_ckpt_path(trainer.default_local_dir)
    return int(folder.split("global_step_")[-1]) if folder else 0
