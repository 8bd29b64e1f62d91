"""How training comes to Ray: veRL's main loop with our trainer."""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ray.autoscaler.v2.utils  # Ray's log thread imports it at its first message, in a race with this one
import transfer_queue as tq
from verl.trainer import main_ppo
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

import cobalt.training.trainer  # noqa: F401 - registers
from cobalt.errors import InputError, SetupError
from cobalt.serving.handles import cluster_address
from cobalt.training.cluster import CPUS_PER_GPU, as_written, asked_of_ray, cpus_of_node
from cobalt.training.config import has_own_manager
from cobalt.training.rollouts import CobaltAgentLoopManager
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import CPU_BACKEND

QUEUE = "TransferQueueController", "transfer_queue"
"""Name and namespace in Ray of veRL's queue. Every training attaches to the one that is there."""


class Runner(as_written(main_ppo.TaskRunnerV1)):
    """veRL's task runner, in this process: a process of Ray's would first import all of veRL once more."""

    def run(self, config: Any) -> None:
        """Train."""
        tq.init(config.transfer_queue)  # before other processes take the cores: nothing goes on until it is there
        asyncio.run(CobaltAgentLoopManager.start_workers(config))
        super().run(config)


def runtime_environment(config: Any, variables: Mapping[str, str]) -> dict[str, Any]:
    """veRL's environment of all processes, with ours and what ``ray_kwargs`` adds. ``variables``: of each process."""
    environment = get_ppo_ray_runtime_env(config)
    asked = {name: value for name, value in (asked_of_ray(config)["runtime_env"] or {}).items() if value is not None}
    return {**environment, **asked, "env_vars": {**environment.get("env_vars", {}), **variables}}


def connect_and_prepare(config: Any, variables: Mapping[str, str]) -> Callable[[], None]:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one. Returns the function that trains.

    ``config``: as ``completed`` makes it; ``variables``: ``process_variables``. Raises ``InputError``, and
    ``SetupError`` where programs cannot be run, or where the cluster has fewer free CPUs or GPUs than veRL asks for,
    and would wait for without a word.
    """
    from ray._private import state

    trainer, is_on_cpu = config.trainer, config.cobalt.backend == CPU_BACKEND
    gpus, others = trainer.n_gpus_per_node, 1 + trainer.nnodes  # CPUs for controller and stores of veRL's queue
    arguments = {**asked_of_ray(config), "runtime_env": runtime_environment(config, variables)}
    os.environ |= arguments["runtime_env"]["env_vars"]
    given = arguments.pop("num_cpus")
    if os.environ.get("RAY_ADDRESS"):
        if given is not None:
            raise InputError(f"ray_kwargs.ray_init.num_cpus={given}: the Ray at RAY_ADDRESS has been started already")
        ray.init(address=cluster_address(), **arguments)
        refuse_other_training()
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


def refuse_other_training() -> None:
    """Raise ``SetupError`` if another training runs in this Ray: veRL's queue would mix the rows of both."""
    try:
        ray.get_actor(*QUEUE)
    except ValueError:
        return
    raise SetupError("another training runs in the Ray at RAY_ADDRESS: wait until it has ended, or use another Ray")


def train(config: Any) -> None:
    """Run veRL's main loop."""
    Runner().run(config)
    if (timeline := config.ray_kwargs.timeline_json_file) is not None:
        ray.timeline(filename=timeline)
