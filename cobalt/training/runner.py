"""How training comes to Ray: veRL's main loop with our trainer."""

import asyncio
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray.autoscaler.v2.utils  # Ray's log thread imports it at its first message, in a race with this one
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer import main_ppo
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from cobalt.errors import InputError, SetupError
from cobalt.records.manifest import without_userinfo
from cobalt.serving.handles import cluster_address
from cobalt.training.cluster import CPUS_PER_GPU, RUNNER, as_written, cpu_variables, cpus_of_node, logger_variables
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


class Runner(as_written(main_ppo.TaskRunnerV1)):
    """veRL's task runner, in whose process our trainer is registered."""

    def run(self, config: Any) -> None:
        """Train."""
        import cobalt.training.trainer  # noqa: F401 - registers
        from cobalt.training.rollouts import CobaltAgentLoopManager

        asyncio.run(CobaltAgentLoopManager.start_workers(config))
        super().run(config)


def runtime_environment(config: Any) -> dict[str, Any]:
    """veRL's environment of all processes, with our engine where prompts are shared, and what ``ray_kwargs`` adds."""
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
    loggers = logger_variables(Path(config.trainer.default_local_dir))
    loggers |= {"WANDB_MODE": os.environ["WANDB_MODE"]} if "WANDB_MODE" in os.environ else {}
    # Ray would show a password
    variables |= {name: value for name, value in loggers.items() if value == without_userinfo(value)}
    asked = {name: value for name, value in (as_asked(config)["runtime_env"] or {}).items() if value is not None}
    variables |= {name: str(value) for name, value in asked.pop("env_vars", {}).items()}
    return {**environment, **asked, "env_vars": {**environment.get("env_vars", {}), **variables}}


def as_asked(config: Any) -> dict[str, Any]:
    """Arguments of ``ray.init`` by ``ray_kwargs.ray_init``."""
    asked: Any = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    return asked


def connect_and_prepare(config: Any) -> Callable[[], None]:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one. Returns the function that trains.

    ``config``: as ``completed`` makes it. Raises ``InputError``, and ``SetupError`` where programs cannot be run, or
    where the cluster has fewer free CPUs or GPUs than veRL asks for, and would wait for without a word.
    """
    from ray._private import state

    trainer, is_on_cpu = config.trainer, config.cobalt.backend == CPU_BACKEND
    gpus, others = trainer.n_gpus_per_node, 1 + trainer.nnodes  # CPUs for controller and stores of veRL's queue
    arguments = {**as_asked(config), "runtime_env": runtime_environment(config)}
    given = arguments.pop("num_cpus")
    if os.environ.get("RAY_ADDRESS"):
        if given is not None:
            raise InputError(f"ray_kwargs.ray_init.num_cpus={given}: the Ray at RAY_ADDRESS has been started already")
        ray.init(address=cluster_address(), **arguments)
    else:
        # CPUs are logical, and those of a small machine would not do; so are GPUs of training on CPU cores
        cpus = max(0 if is_on_cpu else len(os.sched_getaffinity(0)), cpus_of_node(gpus))
        usual = {"num_gpus": gpus if is_on_cpu else None, "include_dashboard": False}
        ray.init(address="local", num_cpus=given or cpus, **{**usual, **arguments})
    wanted, there = gpus * trainer.nnodes, ray.cluster_resources().get("GPU", 0)
    if wanted > there:
        raise SetupError(f"GPUs asked for (N_GPUS times N_NODES): {wanted}, in the Ray cluster: {there:g}")
    free = [(node.get("CPU", 0), node.get("GPU", 0)) for node in state.available_resources_per_node().values()]
    fitting = [node for node in free if node[0] >= gpus * CPUS_PER_GPU and node[1] >= gpus]
    if len(fitting) < trainer.nnodes or sum(cpus for cpus, _ in free) < wanted * CPUS_PER_GPU + others:
        by_node = ", ".join(f"{of_node[0]:g} CPUs and {of_node[1]:g} GPUs" for of_node in free)
        raise SetupError(
            f"veRL asks Ray for {CPUS_PER_GPU} CPUs with each GPU, on its node, and for {others} more. Free are, by "
            f"node: {by_node}. Start Ray with more (--num-cpus), or an evaluator that reserves fewer (EVALUATOR_ARGS)"
        )
    if has_own_manager(config):
        RewardSettings.read(config.reward.reward_kwargs).check()
    return partial(train, config)


def train(config: Any) -> None:
    """Run veRL's main loop in the runner's process."""
    kind: Any = ray.remote(name=RUNNER)(Runner)  # pyright: ignore[reportCallIssue]
    try:
        main_ppo.run_ppo(config, task_runner_class=RunnerBesideQueue(kind, config.transfer_queue))
    finally:
        tq.close()


class RunnerBesideQueue:
    """In the place of Ray's class of the runner: while its process imports veRL, those of veRL's queue start.

    The runner would start them afterwards, one kind after the other, and wait for each.
    """

    def __init__(self, kind: Any, queue: Any) -> None:
        """``queue``: its settings."""
        self._kind, self._queue = kind, queue

    def options(self, **options: Any) -> "RunnerBesideQueue":
        """As that of Ray's class."""
        return RunnerBesideQueue(self._kind.options(**options), self._queue)

    def remote(self) -> Any:
        """As that of Ray's class."""
        runner = self._kind.remote()
        tq.init(self._queue)
        return runner
