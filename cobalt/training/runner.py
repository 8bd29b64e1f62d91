"""veRL's ``TaskRunner`` with this project's registration. Everything here happens in the task runner's process."""

from pathlib import Path
from typing import Any

import ray
from verl.trainer import main_ppo as upstream

main_ppo: Any = upstream
VerlTaskRunner = main_ppo.TaskRunner.__ray_metadata__.modified_class  # veRL 0.5.0 decorates it itself


def run_ppo(config: Any) -> None:
    """veRL's ``run_ppo`` with the task runner below. Ray must have been initialised."""
    main_ppo.TaskRunner = TaskRunner
    main_ppo.run_ppo(config)


@ray.remote(num_cpus=1)
class TaskRunner(VerlTaskRunner):
    """Registers the reward manager, completes the metrics, and checks the execution service before anything else."""

    def run(self, config: Any) -> None:
        from cobalt.training import manager
        from cobalt.training.metrics import METRICS_FILE

        _extend_metrics(Path(config.trainer.default_local_dir) / METRICS_FILE)
        if config.reward_model.reward_manager == manager.MANAGER_NAME:
            _prepare_manager(dict(config.reward_model.get("reward_kwargs", {})))
        super().run(config)


def _extend_metrics(path: Path) -> None:
    from verl.trainer.ppo import ray_trainer
    from verl.utils import tracking

    from cobalt.training.metrics import with_metrics_file, with_reward_metrics

    ray_trainer.compute_data_metrics = with_reward_metrics(ray_trainer.compute_data_metrics)
    tracking.Tracking = with_metrics_file(tracking.Tracking, path)


def _prepare_manager(settings: dict[str, Any]) -> None:
    """Check the service; hang the guard on the training data's ``on_batch_end``, called after each step is logged."""
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    from cobalt.training.check import check_service
    from cobalt.training.manager import MAX_INFRA_RATE
    from cobalt.training.metrics import InfraGuard

    check_service(settings.get("executor", "serve"))
    guard, fit = InfraGuard(settings.get("max_infra_rate", MAX_INFRA_RATE)), RayPPOTrainer.fit

    def fit_guarded(self: Any) -> None:
        self.train_dataset.on_batch_end = guard
        fit(self)

    RayPPOTrainer.fit = fit_guarded
