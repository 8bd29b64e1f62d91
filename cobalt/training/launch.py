"""Ray for a training run: the job's runtime environment, and veRL's ``run_ppo`` inside it."""

import os
from dataclasses import dataclass
from typing import Any

from cobalt.training.backends import BACKEND_VARIABLE, SEED_VARIABLE, patches_of

HOOK = "cobalt.training.backends.install"


@dataclass(frozen=True)
class RunSettings:
    """The ``cobalt`` section of the configuration."""

    backend: str = "verl"
    """``verl``, ``hf`` or ``cpu`` (``cobalt.training.backends``)."""
    seed: int = 0
    """Seed of Hugging Face rollouts."""


def train(config: Any) -> None:
    """Run veRL's main loop on a composed hydra configuration. Raises ``CobaltError`` or Ray's errors."""
    import ray

    settings = RunSettings(**config.get("cobalt", {}))
    patches_of(settings.backend)  # an unknown backend is refused here
    _connect(config, settings)
    from cobalt.training.runner import run_ppo

    try:
        run_ppo(config)
    finally:
        ray.shutdown()


def _connect(config: Any, settings: RunSettings) -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one: on a CPU with logical GPUs, which veRL asks for."""
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime_env = get_ppo_ray_runtime_env()
    runtime_env["env_vars"].update({BACKEND_VARIABLE: settings.backend, SEED_VARIABLE: str(settings.seed)})
    if settings.backend != "verl":
        runtime_env["worker_process_setup_hook"] = HOOK
        print(f"cobalt: BACKEND '{settings.backend}' IS ACTIVE: veRL is patched in every worker", flush=True)
    if settings.backend == "cpu":
        runtime_env["env_vars"].update(OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))), OMP_WAIT_POLICY="PASSIVE")
    if os.environ.get("RAY_ADDRESS"):
        ray.init(runtime_env=runtime_env)
        return
    gpus = config.trainer.n_gpus_per_node if settings.backend == "cpu" else None
    cpus = config.ray_init.num_cpus
    ray.init(address="local", runtime_env=runtime_env, num_cpus=cpus, num_gpus=gpus, include_dashboard=False)
