"""veRL's ``TaskRunner`` with this project's registration. Everything here happens in the task runner's process."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from verl.trainer import main_ppo as upstream

if TYPE_CHECKING:
    from cobalt.training.metrics import InfraGuard

main_ppo: Any = upstream
LOG_DELAY_S = 3.0
"""Ray brings a worker's last lines to the driver only while the driver lives."""
VerlTaskRunner = main_ppo.TaskRunner.__ray_metadata__.modified_class  # veRL 0.5.0 decorates it itself


def run_ppo(config: Any) -> None:
    """veRL's ``run_ppo`` with the task runner below. Ray must have been initialised."""
    main_ppo.TaskRunner = TaskRunner
    main_ppo.run_ppo(config)


@ray.remote(num_cpus=1)
class TaskRunner(VerlTaskRunner):
    """Registers the reward manager, completes the metrics, and checks the execution service before anything else."""

    def run(self, config: Any) -> None:
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer

        from cobalt.training.manager import MANAGER_NAME, CobaltRewardManager
        from cobalt.training.metrics import METRICS_FILE, InfraGuard
        from cobalt.training.scoring import compute_score

        guard = None
        if config.reward_model.reward_manager == MANAGER_NAME:
            manager = CobaltRewardManager(None, 0, compute_score, **(config.reward_model.get("reward_kwargs") or {}))
            manager.check()
            guard = InfraGuard(manager.max_infra_rate)
        _extend_metrics(Path(config.trainer.default_local_dir) / METRICS_FILE)
        extend_trainer(RayPPOTrainer, guard)
        super().run(config)


def _extend_metrics(path: Path) -> None:
    from verl.trainer.ppo import ray_trainer
    from verl.utils import tracking

    from cobalt.training.metrics import with_metrics_file, with_reward_metrics

    ray_trainer.compute_data_metrics = with_reward_metrics(ray_trainer.compute_data_metrics)
    tracking.Tracking = with_metrics_file(tracking.Tracking, path)


def extend_trainer(trainer: Any, guard: "InfraGuard | None") -> None:
    """Make veRL's trainer (a class) add no step to a finished run, and call ``guard`` after each step is logged.

    veRL itself goes on after the last checkpoint and asks only then whether that was the last step.
    """
    init_workers, fit = trainer.init_workers, trainer.fit

    def finished_at(self: Any) -> int | None:
        step = resumed_step(self.config.trainer)
        return step if step >= self.total_training_steps and not self.config.trainer.val_only else None

    def init_workers_to_train(self: Any) -> None:
        if finished_at(self) is None:
            init_workers(self)

    def fit_guarded(self: Any) -> None:
        if (step := finished_at(self)) is not None:
            print(f"cobalt: finished already: checkpoint {step} of {self.total_training_steps} steps", flush=True)
            time.sleep(LOG_DELAY_S)
            return
        if guard is not None:
            self.train_dataset.on_batch_end = guard
        fit(self)

    trainer.init_workers, trainer.fit = init_workers_to_train, fit_guarded


def resumed_step(trainer: Any) -> int:
    """The step of the checkpoint that veRL will resume from; 0 if it will start from scratch."""
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

    if trainer.resume_mode == "disable":
        return 0
    by_path = trainer.resume_mode == "resume_path"
    folder = trainer.resume_from_path if by_path else find_latest_ckpt_path(trainer.default_local_dir)
    return int(folder.split("global_step_")[-1]) if folder else 0
