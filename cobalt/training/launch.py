"""A training run: its manifest, Ray with the job's runtime environment, and veRL's ``run_ppo`` inside it."""

import sys
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cobalt.errors import CobaltError, SetupError
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import file_sha256
from cobalt.records.training_run import (
    MANIFEST_NAME,
    METRICS_FILE,
    START_MODEL,
    hold_folder,
    read_metrics,
    resumed_step,
    set_lost_steps_aside,
)
from cobalt.training.cluster import cpu_variables, cpus_of_node, join_or_start
from cobalt.training.preflight import DATA_FILES, as_list, refuse_cut_prompts, refuse_unusable
from cobalt.training.resume import OPERATION_SETTINGS, finished_at, refuse_other_settings
from cobalt.training.scoring import MANAGER_NAME, RewardSettings
from cobalt.training.settings import CPU_BACKEND, NOW, ONLINE_MANAGER_NAME, PAPER, TrainingConfig
from cobalt.training.training_log import budget_of
from cobalt.training.verl09.config import adapted


def train(config: Any, lock: int | None = None) -> None:
    """Run veRL's main loop on a composed hydra configuration. Raises ``CobaltError`` or Ray's errors.

    ``lock``: ``descriptor`` of ``hold_folder``.
    """
    import ray
    from omegaconf import open_dict
    from ray.exceptions import RayTaskError

    settings, manifest = checked(config)
    with hold_folder(manifest.output, lock):
        if (step := finished_at(config)) is not None:
            print(f"cobalt: finished already: checkpoint {step}", flush=True)
            return
        is_beside = config.trainer.val_only and manifest.path.exists()  # a training keeps its manifest and metrics
        if not is_beside:
            set_lost_steps_aside(manifest.output, resumed_step(config.trainer))
            manifest.start()
        if (steps := config.trainer.total_training_steps) is not None:
            config.trainer.total_epochs = steps  # veRL ends with the epochs, and each has one step or more
        if len(counts := manifest.counts["overlong_prompts_left_out"]) == len(DATA_FILES) and not any(counts.values()):
            config.data.filter_overlong_prompts = False  # veRL would tokenize all prompts once more
        is_papers = version("verl") == PAPER
        if settings.online and is_papers:
            # veRL then asks rollouts for a row of every turn, and calls what drops the empty ones
            config.actor_rollout_ref.rollout.n *= settings.online.turns
            config.trainer.balance_batch = True
        with open_dict(config):
            # the part of the configuration that workers get
            config.actor_rollout_ref.cobalt = {
                **asdict(settings),
                "reward_kwargs": config.reward_model.get("reward_kwargs"),
            }
        print(f"cobalt: BACKEND '{settings.backend}' IS ACTIVE", flush=True)
        if not is_papers:
            from cobalt.training.verl09.runner import connect_and_prepare

            run_ppo = connect_and_prepare(config)
        else:
            _connect(config, settings)
            from verl.trainer import main_ppo

            from cobalt.training.trainer import CobaltTaskRunner

            # ``run_ppo`` makes it, and no setting names it
            main_ppo.TaskRunner = ray.remote(num_cpus=1)(CobaltTaskRunner)
            run_ppo = partial(main_ppo.run_ppo, config)
        try:
            run_ppo()
        except RayTaskError as error:  # raised in another process
            raise error.cause if isinstance(error.cause, CobaltError) else error from None
        finally:
            ray.shutdown()
        if not is_beside:
            metrics = manifest.output / METRICS_FILE
            manifest.counts["steps"] = int(read_metrics(metrics)[-1]["step"]) if metrics.exists() else 0
            manifest.done()


def checked(config: Any) -> tuple[TrainingConfig, Manifest]:
    """The run's own settings and its manifest, which is not written yet. Raises ``CobaltError`` for what would fail.

    The manifest is ``training.manifest.json`` beside the checkpoints: the resolved configuration, data hashes,
    versions. Its content identifies data, model and reward.
    """
    from omegaconf import OmegaConf

    settings = TrainingConfig.of(config)
    budget_of(config)
    if config.reward_model.reward_manager in (MANAGER_NAME, ONLINE_MANAGER_NAME):
        RewardSettings.read(config.reward_model.reward_kwargs)
    if (installed := version("verl")) not in (PAPER, NOW):
        raise SetupError(f"veRL {installed} is installed, and cobalt train is for veRL {PAPER} and {NOW} only")
    if installed == NOW:
        adapted(config)  # for what it refuses
    refuse_unusable(config, settings)
    left_out = refuse_cut_prompts(config)
    for name, count in left_out.items():
        if count:
            print(f"cobalt: {count} prompts of data.{name} are left out: too long", file=sys.stderr, flush=True)

    def fingerprint(path: str) -> str:
        """A local file's hash; the address of any other."""
        return file_sha256(path) if Path(path).is_file() else path

    resolved: Any = OmegaConf.to_container(config, resolve=True)
    function, reward_model = resolved["custom_reward_function"], resolved["reward_model"]
    scores = {k: v for k, v in (reward_model.get("reward_kwargs") or {}).items() if k not in OPERATION_SETTINGS}
    data = {name: as_list(resolved["data"][name]) for name in DATA_FILES}
    content = {
        **{f"data.{name}": [fingerprint(path) for path in paths] for name, paths in data.items()},
        START_MODEL: model_identity(resolved["actor_rollout_ref"]["model"]["path"]),
        "reward_model.reward_manager": reward_model["reward_manager"],
        **{f"reward_model.reward_kwargs.{name}": value for name, value in scores.items()},
        "custom_reward_function": {**function, "path": function["path"] and fingerprint(function["path"])},
        **({"cobalt.online": online} if (online := resolved.get("cobalt", {}).get("online")) else {}),
    }
    folder = Path(config.trainer.default_local_dir)
    inputs = [path for paths in data.values() for path in paths if "://" not in path]  # others: remote file systems
    resolved["seed"] = settings.seed
    manifest = Manifest(folder / MANIFEST_NAME, "cobalt train", resolved, content, inputs)
    manifest.output, manifest.counts = folder, {"overlong_prompts_left_out": left_out}
    refuse_other_settings(resolved, content)
    return settings, manifest


def _connect(config: Any, settings: TrainingConfig) -> None:
    """``join_or_start``: on a CPU with logical GPUs, which veRL asks for."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime_env: dict[str, Any] = get_ppo_ray_runtime_env()
    cpus, gpus = config.ray_init.num_cpus, None
    if settings.backend == CPU_BACKEND:
        gpus = config.trainer.n_gpus_per_node
        cpus = cpus or cpus_of_node(gpus)
        variables = runtime_env["env_vars"]
        variables.update(cpu_variables(gpus))
        # Ray shows its logical GPUs to workers. Where there are real ones, veRL would take them.
        variables.update(CUDA_VISIBLE_DEVICES="", RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES="1")
    join_or_start(config, runtime_env, cpus, gpus)
