"""How training comes to Ray, on either stack."""

import os
from typing import Any

from cobalt.errors import SetupError
from cobalt.serving.handles import cluster_address

LOGGER_VARIABLES = ("WANDB_DIR", "WANDB_MODE", "TENSORBOARD_DIR")
"""Environment variables that the task runner gets. They hold no secrets: Ray would show them."""


def join_or_start(config: Any, runtime_env: dict[str, Any], cpus: int | None, gpus: int | None = None) -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one with so many CPUs and GPUs (None: those that it finds).

    ``runtime_env``: of all processes. Raises ``SetupError`` if the cluster has fewer GPUs than training asks for.
    """
    import ray
    import ray.autoscaler.v2.utils  # Ray's log thread imports it at its first message, in a race with this one

    runtime_env["env_vars"].update({name: os.environ[name] for name in LOGGER_VARIABLES if name in os.environ})
    if not os.environ.get("RAY_ADDRESS"):
        ray.init(address="local", runtime_env=runtime_env, num_cpus=cpus, num_gpus=gpus, include_dashboard=False)
        return
    ray.init(address=cluster_address(), runtime_env=runtime_env)
    wanted, found = config.trainer.n_gpus_per_node * config.trainer.nnodes, ray.cluster_resources().get("GPU", 0)
    if wanted > found:
        raise SetupError(f"GPUs asked for (N_GPUS times N_NODES): {wanted}, in the Ray cluster: {found:g}")
