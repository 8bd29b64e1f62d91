"""veRL's ``TaskRunner`` with this project's registration. Everything here happens in the task runner's process."""

from typing import Any

import ray
from verl.trainer import main_ppo

VerlTaskRunner: Any = main_ppo.TaskRunner.__ray_metadata__.modified_class  # veRL 0.5.0 decorates it itself


def run_ppo(config: Any) -> None:
    """veRL's ``run_ppo`` with the task runner below. Ray must have been initialised."""
    main_ppo.TaskRunner = TaskRunner
    main_ppo.run_ppo(config)


@ray.remote(num_cpus=1)
class TaskRunner(VerlTaskRunner):
    """Registers the reward manager, adds the reward's parts to the metrics, checks the execution service first."""

    def run(self, config: Any) -> None:
        from verl.trainer.ppo import ray_trainer

        from cobalt.training import manager
        from cobalt.training.metrics import InfraGuard, with_reward_metrics

        ray_trainer.compute_data_metrics = with_reward_metrics(ray_trainer.compute_data_metrics)
        settings = config.reward_model.get("reward_kwargs", {})
        if config.reward_model.reward_manager == manager.MANAGER_NAME:
            manager.check_service(settings.get("executor", "serve"))
            _guard_training_data(InfraGuard(settings.get("max_infra_rate", manager.MAX_INFRA_RATE)))
        super().run(config)


def _guard_training_data(guard: Any) -> None:
    """Hang ``guard`` on the training data set's ``on_batch_end``, which veRL calls after logging each step."""
    create = main_ppo.create_rl_dataset

    def create_guarded(*args: Any, is_train: bool = True, **kwargs: Any) -> Any:
        dataset = create(*args, is_train=is_train, **kwargs)
        if is_train:
            dataset.on_batch_end = guard
        return dataset

    main_ppo.create_rl_dataset = create_guarded
