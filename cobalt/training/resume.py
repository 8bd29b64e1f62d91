"""What a training that goes on from a checkpoint may change, and whether anything is left for it to do."""

import json
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records import Manifest
from cobalt.records.manifest import changes, file_sha256, read_manifest, without_secrets
from cobalt.records.training_run import MANIFEST_NAME, START_MODEL, resumed_step, training_manifest, weights_of
from cobalt.training.config import flat
from cobalt.training.preflight import total_steps
from cobalt.training.settings import gpus_of

CHECKPOINT = "global_step_{}"
RANKS_FILE = "fsdp_config.json"
"""Beside veRL's shards: how many ranks have saved them."""
TO_GO_ON = ("model", "optimizer", "extra")
"""What veRL must load of a checkpoint: else the optimizer and the learning rate's schedule begin anew, in silence."""
FSDP2 = 2
OPERATION_SETTINGS = {"executor", "workers", "mode", "max_in_flight", "max_infra_rate"}
"""The keys of ``reward.reward_kwargs`` that change how programs run, but not what they score."""
MAY_CHANGE = (
    # how long it trains
    *("trainer.total_training_steps", "trainer.total_epochs", "cobalt.budget*"),
    # saving and validating
    *("trainer.save_freq", "cobalt.keep_checkpoints", "trainer.esi_redundant_time", "*.checkpoint.save_contents"),
    *("trainer.test_freq", "trainer.val_before_train", "trainer.val_only", "trainer.default_*_dir", "trainer.resume_*"),
    *("trainer.del_local_ckpt_after_load", "trainer.remove_previous_ckpt_in_save"),
    # logging
    *("trainer.logger", "trainer.project_name", "trainer.experiment_name", "trainer.log_val_generations"),
    *("trainer.rollout_data_dir", "trainer.validation_data_dir", "*.rollout.trace.*", "*.disable_log_stats"),
    "*profile*",
    # the machine, and how much of it is used
    *("*.n_gpus_per_node", "*.nnodes", "trainer.ray_wait_register_center_timeout", "ray_kwargs.*"),
    *("transfer_queue.*", "*.param_offload", "*.optimizer_offload", "*.reshard_after_forward"),
    *("*.model.enable_gradient_checkpointing", "*.ppo_max_token_len_per_gpu", "*.log_prob_micro_batch_size*"),
    *("*.log_prob_max_token_len_per_gpu", "*.rollout.gpu_memory_utilization", "*.rollout.max_num_*"),
    *("*.rollout.tensor_model_parallel_size", "*.rollout.enforce_eager", "*.rollout.free_cache_engine"),
    "*.rollout.agent.num_workers",
    *(f"reward.reward_kwargs.{name}" for name in OPERATION_SETTINGS),
)
"""Settings that a resumed training takes over, and that do not change what it learns. veRL restores the others with
the optimizer and the data's order, whatever the configuration says, or trains on as something else."""
IN_CONTENT = (
    *("data.train_files", "data.val_files", START_MODEL, "reward.custom_reward_function.*", "cobalt.online.*"),
    *("reward.reward_manager.*", "reward.reward_kwargs.*"),
)
"""Settings that a manifest's content holds, files by their hashes."""


def manifest_of(
    command: str,
    config: dict[str, Any],
    content: dict[str, Any],
    files: Mapping[str, Sequence[str]],
    counts: dict[str, Any],
    reshards: bool = False,
) -> Manifest:
    """A training's manifest, ``training.manifest.json`` beside the checkpoints. It is not written yet.

    ``config``: the whole resolved configuration; ``content``: what identifies model and reward; ``files``: of ``data``,
    which are identified by hashes, on remote file systems by addresses. Raises as ``refuse_other_settings``.
    """
    inputs = [path for paths in files.values() for path in paths if "://" not in path]
    hashes = {f"data.{name}": [fingerprint(path) for path in paths] for name, paths in files.items()}
    content, folder = {**hashes, **content}, Path(config["trainer"]["default_local_dir"])
    manifest = Manifest(folder / MANIFEST_NAME, command, config, content, inputs)
    manifest.output, manifest.counts = folder, counts
    refuse_other_settings(config, content, reshards)
    return manifest


def fingerprint(path: str) -> str:
    """A local file's hash; the address of any other."""
    return file_sha256(path) if Path(path).is_file() else path


def refuse_other_settings(config: Mapping[str, Any], content: Mapping[str, Any], reshards: bool) -> None:
    """Raise ``InputError`` if the training that made the checkpoint had other settings than may change.

    ``reshards``: the number of GPUs may differ, with FSDP2.
    """
    trainer = config["trainer"]
    if not (step := resumed_step(trainer)):
        return
    is_ours = trainer["resume_mode"] == "auto"  # else any checkpoint, of which we may know nothing
    folder = Path(trainer["default_local_dir"] if is_ours else Path(trainer["resume_from_path"]).parent)
    if (path := training_manifest(folder)).exists():
        stored = read_manifest(path)
        if (before := stored.get("versions", {}).get("verl")) not in (None, installed := version("verl")):
            raise InputError.at(folder, None, f"was trained on veRL {before}, and {installed} is installed")
        old = {**fixed(stored.get("config", {})), **stored.get("content", {})}
        if changed := changes(old, {**fixed(without_secrets(config)), **content}):
            problem = f"was made with other settings ({changed}); take those, or choose another output folder"
            raise InputError.at(folder, None, problem)
    elif is_ours:
        raise InputError.at(folder, None, "holds checkpoints and no manifest; choose another output folder")
    refuse_other_ranks(folder / CHECKPOINT.format(step), gpus_of(trainer), reshards)


def refuse_new_optimizer(checkpoint: Mapping[str, Any], setting: str) -> None:
    """Raise ``InputError`` where a training would go on with the model alone.

    ``checkpoint``: that section; without ``load_contents`` of its own, what is not saved is not loaded.
    """
    if not set(TO_GO_ON) <= set(contents := checkpoint["load_contents"]):
        raise InputError(
            f"{setting}.load_contents=[{','.join(contents)}]: no training goes on from a checkpoint without"
            f" {', '.join(TO_GO_ON)}; choose another output folder"
        )


def refuse_other_ranks(checkpoint: Path, ranks: int, reshards: bool) -> None:
    """Raise ``InputError`` if so many ranks cannot load a checkpoint's shards."""
    saved, fsdp = saved_ranks(weights_of(checkpoint))
    if saved != ranks and not (reshards and fsdp == FSDP2):
        how = ", with actor.strategy=fsdp, which does not split it anew" if reshards else ""
        raise InputError.at(checkpoint, None, f"was saved by {saved} GPUs{how}; {ranks} cannot go on from it")


def saved_ranks(shards: Path) -> tuple[int, int]:
    """How many ranks have saved a folder of veRL's shards, and with which version of FSDP. Raises ``InputError``."""
    if not (path := shards / RANKS_FILE).is_file():
        raise InputError.at(path, None, f"no such file; {shards} is no whole checkpoint")
    config = json.loads(path.read_text())
    return config["world_size"], config["FSDP_version"]


def fixed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that may not change, by dotted names. Left out: those in the content, and those that are null."""
    settings = dict(flat(config))
    model = settings.get(START_MODEL)
    kept = {
        name: value
        for name, value in settings.items()
        if value is not None and not any(fnmatchcase(name, pattern) for pattern in (*MAY_CHANGE, *IN_CONTENT))
    }
    for name, value in kept.items():
        if name.endswith(".tokenizer_path") and os.path.exists(value):  # older manifests hold it as it was given
            kept[name] = os.path.abspath(value)
    return {name: START_MODEL if value == model else value for name, value in kept.items()}  # veRL repeats the path


def finished_at(config: Any) -> int | None:
    """The step of the checkpoint, if the training in the folder is done and is not asked for more."""
    trainer = config.trainer
    if trainer.resume_mode != "auto" or trainer.val_only or not (step := resumed_step(trainer)):
        return None
    stored = read_manifest(training_manifest(trainer.default_local_dir))
    steps = total_steps(config)
    if steps is None and _length(stored["config"]) == _length(config):  # a budget, or files that cannot be counted
        steps = stored["counts"].get("steps")
    return step if stored["status"] == "done" and steps is not None and step >= steps else None


def _length(config: Mapping[str, Any]) -> tuple[Any, ...]:
    trainer, budget = config["trainer"], config["cobalt"].get("budget")
    return trainer["total_training_steps"], trainer["total_epochs"], budget and dict(budget)
