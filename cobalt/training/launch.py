"""Ray for a training run: the job's runtime environment, and veRL's ``run_ppo`` inside it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records import Manifest
from cobalt.training.backends import BACKEND_VARIABLE, SEED_VARIABLE, patches_of

MANIFEST_NAME = "training"
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
    if settings.backend == "verl" and config.actor_rollout_ref.rollout.name == "hf":
        raise InputError("actor_rollout_ref.rollout.name=hf needs cobalt.backend=hf (or cpu): veRL's own is faulty")
    manifest = _manifest(config, settings)
    manifest.start()
    _connect(config, settings)
    from cobalt.training.runner import run_ppo

    try:
        run_ppo(config)
    finally:
        ray.shutdown()
    manifest.done()


def _manifest(config: Any, settings: RunSettings) -> Manifest:
    """``training.manifest.json`` beside the checkpoints: the resolved configuration, data hashes, versions."""
    from omegaconf import OmegaConf

    resolved: Any = OmegaConf.to_container(config, resolve=True)
    paths = [path for name in ("train_files", "val_files") for path in _as_list(resolved["data"][name])]
    output = Path(config.trainer.default_local_dir) / MANIFEST_NAME
    inputs = [path for path in paths if "://" not in path]  # the others live on remote file systems
    for path in inputs:
        if not Path(path).is_file():
            raise InputError.at(path, None, "no such file")
    return Manifest(output, "cobalt.train", {**resolved, "seed": settings.seed}, resolved, inputs)


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _connect(config: Any, settings: RunSettings) -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one: on a CPU with logical GPUs, which veRL asks for."""
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime_env: dict[str, Any] = get_ppo_ray_runtime_env()
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
