"""What a training run needs, looked at before anything starts: Ray and veRL would say it minutes later, at length."""

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cobalt.errors import InputError, SetupError
from cobalt.records.identity import refuse_missing_model
from cobalt.records.manifest import refuse_unwritable
from cobalt.sampler import packages
from cobalt.serving.handles import cluster_address
from cobalt.training.budget import budget_of
from cobalt.training.patches.table import CPU_BACKEND

DATA_FILES = ("train_files", "val_files")
LOGGER_PACKAGES = ("wandb", "tensorboard", "mlflow", "swanlab", "clearml")
"""Loggers of veRL that need the package of their name."""
GROUND_TRUTH = "ground_truth"
CROSS_ENTROPY = "ops/triton/cross_entropy.py"
"""In the folder of flash_attn."""


def refuse_unusable(config: Any, backend: str) -> None:
    """Raise ``InputError`` or ``SetupError`` for the first thing that a run of this configuration would fail on."""
    refuse_unwritable(config.trainer.default_local_dir)
    rows = {name: sum(_rows(path, config) for path in _local(config.data[name])) for name in DATA_FILES}
    _refuse_batches(config, rows)
    _refuse_missing_packages(config)
    refuse_missing_model(config.actor_rollout_ref.model.path, "actor_rollout_ref.model.path=")
    if (function := config.custom_reward_function.path) and not Path(function).is_file():
        raise InputError(f"custom_reward_function.path={function}: no such file")
    if os.environ.get("RAY_ADDRESS"):
        cluster_address()
    else:
        _refuse_missing_gpus(config.trainer, backend)


def total_steps(config: Any) -> int | None:
    """Steps of the whole run. Raises ``InputError``.

    None where that is not known: a budget ends it, or the training files live on remote file systems.
    """
    if budget_of(config):
        return None
    if config.trainer.total_training_steps is not None:
        return config.trainer.total_training_steps
    if any("://" in path for path in as_list(config.data.train_files)):
        return None
    rows = sum(_rows(path, config) for path in as_list(config.data.train_files))
    return rows // config.data.train_batch_size * config.trainer.total_epochs


def as_list(value: Any) -> list[str]:
    """The paths of ``data.train_files`` or ``data.val_files``."""
    return [value] if isinstance(value, str) else list(value)


def _local(files: Any) -> Iterable[str]:
    return (path for path in as_list(files) if "://" not in path)  # the others live on remote file systems


def _rows(path: str, config: Any) -> int:
    """Rows of a data file. Raises ``InputError`` if veRL or the reward manager cannot use them."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    if not Path(path).is_file():
        raise InputError.at(path, None, "no such file")
    try:
        file = ParquetFile(path)
    except ArrowInvalid:
        maker = "preproc/verl_preproc_multi_turn.py or preproc/verl_preproc_single_turn.py makes one of JSONL"
        raise InputError.at(path, None, f"not a parquet file; {maker}") from None
    columns = {field.name: field.type for field in file.schema_arrow}
    wanted = (config.data.prompt_key, config.data.reward_fn_key, "reward_model")
    if missing := [name for name in wanted if name not in columns]:
        raise InputError.at(path, None, f"missing column {', '.join(map(repr, missing))}")
    if GROUND_TRUTH not in {field.name for field in columns["reward_model"]}:
        raise InputError.at(path, None, f"column 'reward_model' has no field '{GROUND_TRUTH}'")
    return file.metadata.num_rows


def _refuse_batches(config: Any, rows: dict[str, int]) -> None:
    batch, mini_batch = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    is_known = {name: all("://" not in path for path in as_list(config.data[name])) for name in DATA_FILES}
    if is_known["train_files"] and rows["train_files"] < batch:
        raise InputError(f"data.train_batch_size={batch}, but data.train_files hold only {rows['train_files']} rows")
    if is_known["val_files"] and not rows["val_files"]:
        raise InputError("data.val_files hold no rows")
    if mini_batch > batch:
        name = "actor_rollout_ref.actor.ppo_mini_batch_size"
        raise InputError(f"{name}={mini_batch} is more than data.train_batch_size={batch}")
    workers = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if batch * config.actor_rollout_ref.rollout.n % workers:
        samples = (
            f"data.train_batch_size={batch} times actor_rollout_ref.rollout.n={config.actor_rollout_ref.rollout.n}"
        )
        raise InputError(f"{samples} cannot be shared by {workers} GPUs (trainer.n_gpus_per_node times trainer.nnodes)")


def _refuse_missing_packages(config: Any) -> None:
    rollout = config.actor_rollout_ref.rollout.name
    if rollout in ("vllm", "sglang") and find_spec(rollout) is None:
        raise SetupError(
            f"actor_rollout_ref.rollout.name={rollout}, and {rollout} is not installed: scripts/setup_gpu.sh installs "
            "vLLM; without it there are ROLLOUT=hf and the presets one-gpu and cpu"
        )
    if rollout == "hf":
        packages.refuse_missing_packages()
    if config.actor_rollout_ref.model.use_liger:
        refuse_missing_liger()
    if config.actor_rollout_ref.model.use_remove_padding and not config.cobalt.share_prompts:
        refuse_missing_cross_entropy()
    for name in as_list(config.trainer.logger):
        if name in LOGGER_PACKAGES and find_spec(name) is None:
            raise SetupError(f"LOGGER names {name}, which is not installed: pip install {name}")
    if "wandb" in as_list(config.trainer.logger) and os.environ.get("WANDB_MODE", "online") == "online":
        _refuse_missing_key()


def refuse_missing_liger() -> None:
    """Raise ``SetupError`` without the kernels of ``model.use_liger``."""
    if find_spec("liger_kernel") is None:
        raise SetupError(
            "actor_rollout_ref.model.use_liger=true, and liger-kernel is not installed: scripts/setup_gpu.sh installs "
            "it; without it there is actor_rollout_ref.model.use_liger=false"
        )


def refuse_missing_cross_entropy() -> None:
    """Raise ``SetupError`` without flash-attn's cross-entropy, which veRL's own passes need for rows without padding.

    Where it is missing, veRL 0.5.0 says nothing and takes log-probabilities one token after the other
    (``logprobs_from_logits_v2``): all that follows the rollouts takes 5 times as long.
    """
    found = find_spec("flash_attn")
    if found is None or not any(Path(at, CROSS_ENTROPY).is_file() for at in found.submodule_search_locations or ()):
        missing = "flash-attn" if found is None else f"flash-attn's {CROSS_ENTROPY}"
        raise SetupError(
            f"veRL's own passes over rows without padding need {missing}, which is not installed: scripts/setup_gpu.sh "
            "installs it; without it there are cobalt.share_prompts=true and "
            "actor_rollout_ref.model.use_remove_padding=false"
        )


def _refuse_missing_key() -> None:
    import wandb

    if not wandb.api.api_key:
        raise SetupError("LOGGER names wandb, which has no key here: run 'wandb login', or set WANDB_MODE=offline")


def _refuse_missing_gpus(trainer: Any, backend: str) -> None:
    if trainer.nnodes > 1:
        raise SetupError(f"trainer.nnodes={trainer.nnodes} needs a Ray cluster, and RAY_ADDRESS names none")
    if backend == CPU_BACKEND:
        return
    import torch

    if trainer.n_gpus_per_node > (found := torch.cuda.device_count()):
        raise SetupError(
            f"{trainer.n_gpus_per_node} GPUs are asked for (N_GPUS, trainer.n_gpus_per_node), and this machine shows "
            f"{found}; PRESET=cpu trains a small model without any"
        )
