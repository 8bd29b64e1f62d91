"""Ray for a training run: the job's runtime environment, and veRL's ``run_ppo`` inside it."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from cobalt.errors import InputError, SetupError
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import file_sha256
from cobalt.records.training_run import MANIFEST_NAME, TRACKER_NAME, hold_folder
from cobalt.serving.handles import cluster_address
from cobalt.training.budget import budget_of
from cobalt.training.online.settings import OnlineSettings, online_settings, prepare
from cobalt.training.patches.install import HOOK, install, usable_patches
from cobalt.training.patches.table import (
    BACKEND_VARIABLE,
    CPU_BACKEND,
    ONLINE_VARIABLE,
    RELEASE,
    SEED_VARIABLE,
    SHARE_VARIABLE,
    WEIGHTS_VARIABLE,
)
from cobalt.training.preflight import DATA_FILES, as_list, refuse_unusable

OPERATION_SETTINGS = {"executor", "workers", "mode", "max_queue", "max_in_flight", "max_infra_rate"}
"""Those of ``reward_model.reward_kwargs`` that say how programs are run, not what they score."""
LOGGER_VARIABLES = ("WANDB_DIR", "WANDB_MODE", "TENSORBOARD_DIR")
"""Where the task runner's loggers write, and whether they need a network; no secrets, which Ray would show."""
OWN_CPUS = 2
"""CPUs that veRL asks Ray for beside one per worker: its task runner's, and an asynchronous reward's."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainingConfig:
    """The ``cobalt`` section of the configuration."""

    backend: str = "verl"
    """``verl``, ``hf`` or ``cpu`` (``cobalt.training.patches.table``)."""
    seed: int = 0
    """Seed of Hugging Face rollouts."""
    budget: Any = None
    """What training may cost: ``{responses: N}``, ``{gpu_seconds: X}`` (``cobalt.training.budget``); None: no limit."""
    online: Any = None
    """Multi-turn training with trajectories of the policy's own (``cobalt.training.online.settings``); None: none."""
    share_prompts: bool = False
    """Compute each prompt once, not once for each of its responses; needs ``use_remove_padding``."""
    loss_weights: Literal["release", "tokens"] = RELEASE
    """What a response token counts for in the loss (``cobalt.training.patches.loss_weights``)."""


def train(config: Any, lock: int | None = None) -> None:
    """Run veRL's main loop on a composed hydra configuration. Raises ``CobaltError`` or Ray's errors.

    ``lock``: ``descriptor`` of ``hold_folder``.
    """
    settings, manifest = checked(config)
    with hold_folder(manifest.output, lock):
        _run(config, settings, manifest)


def _run(config: Any, settings: TrainingConfig, manifest: Manifest) -> None:
    import ray

    online = online_settings(config)
    manifest.start()
    if online is not None:
        prepare(config, online)
    _connect(config, settings, online)
    from verl.trainer.main_ppo import run_ppo  # only now that the patches are installed

    try:
        run_ppo(config)
    finally:
        ray.shutdown()
    manifest.done()


def checked(config: Any) -> tuple[TrainingConfig, Manifest]:
    """The run's own settings and its manifest, which is not written yet. Raises ``CobaltError`` for what would fail."""
    settings = _own_settings(config)
    budget_of(config)
    # an unknown backend and another veRL are refused here
    usable_patches(settings.backend, settings.share_prompts, online_settings(config) is not None)
    if settings.backend == "verl":
        refuse_faulty_rollouts(config.actor_rollout_ref.rollout)
    if settings.share_prompts:
        refuse_unshareable(config.actor_rollout_ref)
    refuse_unweighable(config.actor_rollout_ref.actor, settings.loss_weights)
    refuse_unusable(config, settings.backend)
    manifest = _manifest(config, settings)
    if config.trainer.resume_mode == "auto" and (manifest.output / TRACKER_NAME).exists():
        manifest.refuse_other_content()
    return settings, manifest


def refuse_faulty_rollouts(rollout: Any) -> None:
    """Raise ``InputError`` for settings of veRL's own rollouts with which it samples from another policy."""
    if rollout.name == "hf":
        raise InputError("actor_rollout_ref.rollout.name=hf needs cobalt.backend=hf (or cpu): veRL's own is faulty")
    if not rollout.free_cache_engine:
        raise InputError(
            "actor_rollout_ref.rollout.free_cache_engine=False: veRL 0.5.0 then never empties vLLM's prefix cache, and"
            " prompts are answered with keys and values of older weights"
        )


def _own_settings(config: Any) -> TrainingConfig:
    try:
        return TrainingConfig(**config.get("cobalt", {}))
    except ValidationError as error:
        raise InputError.of_setting(error, "cobalt.", (field.name for field in fields(TrainingConfig))) from None


def refuse_unshareable(actor_rollout_ref: Any) -> None:
    """Raise ``InputError`` for settings under which prompts cannot be shared."""
    wanted = {
        "model.use_remove_padding": True,
        "model.use_fused_kernels": False,
        "actor.ulysses_sequence_parallel_size": 1,
    }
    for name, value in wanted.items():
        section, key = name.split(".")
        if (found := actor_rollout_ref[section][key]) != value:
            raise InputError(f"cobalt.share_prompts needs actor_rollout_ref.{name}={value}, not {found}")


def refuse_unweighable(actor: Any, loss_weights: str) -> None:
    """Raise ``InputError`` for settings under which tokens cannot be weighed. veRL's fixed micro-batches need none."""
    if loss_weights == RELEASE and not actor.use_dynamic_bsz:
        return
    setting, found = f"cobalt.loss_weights={loss_weights}", (actor.loss_agg_mode, actor.policy_loss.loss_mode)
    if found != ("token-mean", "vanilla"):
        raise InputError(
            f"{setting} needs actor_rollout_ref.actor.loss_agg_mode=token-mean and policy_loss.loss_mode=vanilla, "
            f"not {' and '.join(found)}"
        )
    if loss_weights == RELEASE and actor.ppo_micro_batch_size_per_gpu is None:
        raise InputError(f"{setting} needs actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu")


def _manifest(config: Any, settings: TrainingConfig) -> Manifest:
    """``training.manifest.json`` beside the checkpoints: the resolved configuration, data hashes, versions."""
    from omegaconf import OmegaConf

    resolved: Any = OmegaConf.to_container(config, resolve=True)
    paths = [path for name in DATA_FILES for path in as_list(resolved["data"][name])]
    folder = Path(config.trainer.default_local_dir)
    inputs = [path for path in paths if "://" not in path]  # the others live on remote file systems
    config_with_seed = {**resolved, "seed": settings.seed}
    manifest = Manifest(folder / MANIFEST_NAME, "cobalt train", config_with_seed, _content(resolved), inputs)
    manifest.output = folder
    return manifest


def _content(resolved: dict[str, Any]) -> dict[str, Any]:
    """What a run that resumes must have in common with its checkpoint: data, model, reward, and how it plays online.

    The rest may change.
    """
    function, reward_model = resolved["custom_reward_function"], resolved["reward_model"]
    reward_kwargs = reward_model.get("reward_kwargs") or {}
    return {
        **{f"data.{name}": [_fingerprint(path) for path in as_list(resolved["data"][name])] for name in DATA_FILES},
        "actor_rollout_ref.model.path": model_identity(resolved["actor_rollout_ref"]["model"]["path"]),
        "reward_model.reward_manager": reward_model["reward_manager"],
        **{
            f"reward_model.reward_kwargs.{name}": value
            for name, value in reward_kwargs.items()
            if name not in OPERATION_SETTINGS
        },
        "custom_reward_function": {**function, "path": function["path"] and _fingerprint(function["path"])},
        **({"cobalt.online": online} if (online := resolved.get("cobalt", {}).get("online")) else {}),
    }


def _fingerprint(path: str) -> str:
    """A local file's hash; the address of any other."""
    return file_sha256(path) if Path(path).is_file() else path


def _connect(config: Any, settings: TrainingConfig, online: OnlineSettings | None) -> None:
    """Join the cluster at ``RAY_ADDRESS``, or start a local one: on a CPU with logical GPUs, which veRL asks for."""
    import ray
    import ray.autoscaler.v2.utils  # Ray's log thread imports it at its first message, in a race with this one

    runtime_env = _patching_environment(config, settings, online)
    if os.environ.get("RAY_ADDRESS"):
        ray.init(address=cluster_address(), runtime_env=runtime_env)
        wanted, found = config.trainer.n_gpus_per_node * config.trainer.nnodes, ray.cluster_resources().get("GPU", 0)
        if wanted > found:
            raise SetupError(f"{wanted} GPUs are asked for (N_GPUS times N_NODES), the Ray cluster has {found:g}")
        return
    cpus, gpus = config.ray_init.num_cpus, None
    if settings.backend == CPU_BACKEND:
        gpus = config.trainer.n_gpus_per_node
        cpus = cpus or gpus + OWN_CPUS
    ray.init(address="local", runtime_env=runtime_env, num_cpus=cpus, num_gpus=gpus, include_dashboard=False)


def _patching_environment(config: Any, settings: TrainingConfig, online: OnlineSettings | None) -> dict[str, Any]:
    """Patch veRL in this process; the runtime environment that patches it in every worker of the job."""
    backend = {
        BACKEND_VARIABLE: settings.backend,
        SEED_VARIABLE: str(settings.seed),
        SHARE_VARIABLE: str(int(settings.share_prompts)),
        WEIGHTS_VARIABLE: settings.loss_weights,
        ONLINE_VARIABLE: "" if online is None else online.to_json(),
    }
    os.environ.update(backend)
    print(f"cobalt: BACKEND '{settings.backend}' IS ACTIVE: veRL is patched in every worker", flush=True)
    install()
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime_env: dict[str, Any] = {**get_ppo_ray_runtime_env(), "worker_process_setup_hook": HOOK}
    runtime_env["env_vars"].update(backend)
    runtime_env["env_vars"].update({name: os.environ[name] for name in LOGGER_VARIABLES if name in os.environ})
    if settings.backend == CPU_BACKEND:
        threads = max(1, len(os.sched_getaffinity(0)) // config.trainer.n_gpus_per_node)
        runtime_env["env_vars"].update(OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE")
    return runtime_env
