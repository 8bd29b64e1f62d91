"""How training comes to Ray."""

import os
from pathlib import Path
from typing import Any

from cobalt.errors import SetupError
from cobalt.records.manifest import without_userinfo
from cobalt.serving.handles import cluster_address

LOGGER_FOLDERS = {"WANDB_DIR": "", "TENSORBOARD_DIR": "tensorboard", "TRACKIO_DIR": "trackio"}
"""Environment variables that say where a logger writes, and where that is in a training folder."""

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


def logger_variables(folder: Path) -> dict[str, str]:
    """Environment variables of veRL's loggers, which write to the training folder unless ours names another place."""
    given = {name: os.environ.get(name) or folder / place for name, place in LOGGER_FOLDERS.items()}
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute()}/mlflow.db"
    return {**{name: os.path.abspath(path) for name, path in given.items()}, "MLFLOW_TRACKING_URI": uri}


def join_or_start(config: Any, runtime_env: dict[str, Any], cpus: int | None, gpus: int | None = None) -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one with so many CPUs and GPUs (None: those that it finds).

    ``runtime_env``: of all processes. Raises ``SetupError`` if it has fewer free CPUs or GPUs than veRL asks
    for, and would wait for without a word.
    """
    import ray
    import ray.autoscaler.v2.utils  # Ray's log thread imports it at its first message, in a race with this one
    from ray._private import state

    variables = logger_variables(Path(config.trainer.default_local_dir))
    variables |= {"WANDB_MODE": os.environ["WANDB_MODE"]} if "WANDB_MODE" in os.environ else {}
    # Ray would show a password
    runtime_env["env_vars"] |= {name: value for name, value in variables.items() if value == without_userinfo(value)}
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
