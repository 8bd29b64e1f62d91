"""How training comes to Ray."""

import os
from typing import Any

from cobalt.errors import SetupError
from cobalt.serving.handles import cluster_address

LOGGER_VARIABLES = ("WANDB_DIR", "WANDB_MODE", "TENSORBOARD_DIR")
"""Environment variables that the task runner gets. They hold no secrets: Ray would show them."""


CPUS_PER_GPU = 3
"""Ray's CPUs that veRL asks for with each GPU, on the GPU's node."""


def other_cpus(nodes: int) -> int:
    """What it asks for beside them, anywhere: for controller and stores of its queue."""
    return 1 + nodes


def cpus_of_node(gpus: int) -> int:
    """What it may ask for on one node with so many GPUs."""
    return gpus * CPUS_PER_GPU + 2


def cpu_variables(processes: int) -> dict[str, str]:
    """Environment variables of training on CPU cores, where each of so many processes gets its share of them."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def join_or_start(config: Any, runtime_env: dict[str, Any], cpus: int | None, gpus: int | None = None) -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one with so many CPUs and GPUs (None: those that it finds).

    ``runtime_env``: of all processes. Raises ``SetupError`` if it has fewer free CPUs or GPUs than veRL asks
    for, and would wait for without a word.
    """
    import ray
    import ray.autoscaler.v2.utils  # Ray's log thread imports it at its first message, in a race with this one
    from ray._private import state

    runtime_env["env_vars"].update({name: os.environ[name] for name in LOGGER_VARIABLES if name in os.environ})
    trainer, per_gpu = config.trainer, CPUS_PER_GPU
    others = other_cpus(trainer.nnodes)
    if os.environ.get("RAY_ADDRESS"):
        ray.init(address=cluster_address(), runtime_env=runtime_env)
    else:
        # they are logical, and those of a small machine would not do
        cpus = cpus or max(len(os.sched_getaffinity(0)), trainer.n_gpus_per_node * per_gpu + others)
        ray.init(address="local", runtime_env=runtime_env, num_cpus=cpus, num_gpus=gpus, include_dashboard=False)
    wanted, there = trainer.n_gpus_per_node * trainer.nnodes, ray.cluster_resources().get("GPU", 0)
    if wanted > there:
        raise SetupError(f"GPUs asked for (N_GPUS times N_NODES): {wanted}, in the Ray cluster: {there:g}")
    free = state.available_resources_per_node().values()
    fitting = [
        node
        for node in free
        if node.get("CPU", 0) >= trainer.n_gpus_per_node * per_gpu and node.get("GPU", 0) >= trainer.n_gpus_per_node
    ]
    if len(fitting) < trainer.nnodes or sum(node.get("CPU", 0) for node in free) < wanted * per_gpu + others:
        by_node = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in free)
        raise SetupError(
            f"veRL asks Ray for {per_gpu} CPUs with each GPU, on its node, and for {others} more. Free are, by node: "
            f"{by_node}. Start Ray with more (--num-cpus), or an evaluator that reserves fewer (EVALUATOR_ARGS)"
        )
