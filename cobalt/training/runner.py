"""veRL's main loop with our trainer."""

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from verl.trainer import main_ppo
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from cobalt.training.cluster import RUNNER, cpu_variables, cpus_of_node, join_or_start
from cobalt.training.config import (
    BASE_RANK,
    PLAIN_ENGINE,
    ROOM,
    SHARED_ENGINE,
    WEIGHTS_VARIABLE,
    has_own_manager,
)
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import CPU_BACKEND

PlainRunner: Any = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class  # pyright: ignore[reportAttributeAccessIssue]
"""The class that veRL has decorated with ``ray.remote``."""


class Runner(PlainRunner):
    """veRL's task runner, in whose process our trainer is registered."""

    def run(self, config: Any) -> None:
        """Train."""
        import cobalt.training.trainer  # noqa: F401 - registers

        super().run(config)


def runtime_environment(config: Any) -> dict[str, Any]:
    """veRL's environment of all processes, with our engine where prompts are shared."""
    environment = get_ppo_ray_runtime_env(config)
    # veRL keeps vLLM from storing what it compiles, so each start would compile again
    variables = {
        "TRANSFER_QUEUE_ENABLE": "1",
        "VLLM_DISABLE_COMPILE_CACHE": "0",
        # Liger's own choice on Hopper compiles for each length of a micro-batch, which takes longer than the update
        "LIGER_KERNEL_IMPL_ROPE": "nvidia-triton",
        WEIGHTS_VARIABLE: config.cobalt.loss_weights,
        BASE_RANK: str(secrets.randbits(48)),
        "VERL_ENGINE_VENDOR": SHARED_ENGINE if config.cobalt.share_prompts else PLAIN_ENGINE,
    }
    if config.cobalt.backend == CPU_BACKEND:
        variables |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": f"{ROOM}.cpu"}
        variables |= cpu_variables(config.trainer.n_gpus_per_node)
    return {**environment, "env_vars": {**environment.get("env_vars", {}), **variables}}


def connect_and_prepare(config: Any) -> Callable[[], None]:
    """Connect to Ray. Returns the function that trains. ``config``: as ``completed`` makes it.

    Raises ``InputError``, and ``SetupError`` where the cluster lacks GPUs or programs cannot be run.
    """
    cpus, gpus = config.ray_kwargs.ray_init.num_cpus, None
    if config.cobalt.backend == CPU_BACKEND:
        gpus = config.trainer.n_gpus_per_node  # logical ones
        cpus = cpus or cpus_of_node(gpus)
    join_or_start(config, runtime_environment(config), cpus, gpus)
    if has_own_manager(config):
        RewardSettings.read(config.reward.reward_kwargs).check()
    return partial(main_ppo.run_ppo, config, task_runner_class=ray.remote(name=RUNNER)(Runner))  # pyright: ignore[reportCallIssue]
