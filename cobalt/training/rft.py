"""``cobalt rft``: rejection-sampling fine-tuning with veRL's own trainer, in processes of ``torch.distributed.run``.

Takes hydra overrides of veRL's configuration ``sft_trainer_engine``, with ``verl/config/rft`` over it. Nothing is
sampled and no program is run, so neither Ray nor an execution service is needed.
"""

import argparse
import math
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from cobalt.errors import InputError
from cobalt.preproc.bandit_prompts import load_tokenizer
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import refuse_unwritable, tell_other_origin
from cobalt.records.training_run import resumed_step
from cobalt.training.cluster import engine_variables
from cobalt.training.config import ROOM, lora_of_megatron, refuse_changed
from cobalt.training.hydra_main import OPTIONS, hydra_command
from cobalt.training.preflight import (
    DATA_FILES,
    as_list,
    refuse_checkpoints_without_model,
    refuse_missing_checkpoint,
    refuse_missing_data,
    refuse_missing_gpus,
    refuse_missing_liger,
    refuse_numbers,
    refuse_small_disk,
    refuse_unknown_layers,
    refuse_unusable_adapter,
    refuse_unusable_loggers,
    refuse_unusable_optimizer,
)
from cobalt.training.processes import train_in_processes
from cobalt.training.prompt_lengths import tokenizer_of
from cobalt.training.resume import manifest_of, refuse_new_optimizer
from cobalt.training.settings import CPU_BACKEND, KEEP, TOKENS, TrainingConfig, make_absolute

CONFIG_NAME = "sft_trainer_engine"
RECIPE = "rft"
"""Folder of ``verl/config``."""
HELP = """\
cobalt rft: fine-tuning on stored answers that pass, with veRL's trainer. Arguments are settings, NAME=VALUE.

The recipe runs it:
  PRESET=cpu TRAIN_FILE=data/rft.jsonl bash scripts/train_rft.sh optim.lr=1e-4
  bash scripts/train_rft.sh --help               its knobs

Common settings (verl/config/rft holds ours, docs/training.md explains them):
  +rft=NAME                                      gpu, cpu
  model.path=NAME                                the model, a folder or a name on the hub
  data.train_files=FILE                          examples of process_multi_turn_taco.py --for rft
  data.val_files=FILE                            others, whose loss is measured; with trainer.test_freq=N
  data.train_batch_size=N                        examples in a step
  data.max_length=N                              tokens of an example; longer ones are left out
  data.max_token_len_per_gpu=N                   tokens of a micro-batch
  +data.apply_chat_template_kwargs.NAME=VALUE    as the model was served: enable_thinking=false
  optim.lr=X                                     learning rate
  trainer.total_epochs=N                         or trainer.total_training_steps=N
  trainer.save_freq=N                            steps between checkpoints, or after_each_epoch
  cobalt.keep_checkpoints=N                      last ones that stay, beside the best by validation; null: all
  trainer.n_gpus_per_node=N                      GPUs; with +rft=cpu processes
  trainer.logger=[console,wandb]                 also tensorboard, mlflow, trackio

""" + OPTIONS.format(log="what the processes print; default: train.log in the output folder")
NEEDED = {
    "data.use_dynamic_bsz": True,
    "data.pad_mode": "no_padding",
    "data.custom_cls.path": "pkg://cobalt.training.rft_data",
    "data.custom_cls.name": "StoredAnswers",
    "engine.ulysses_sequence_parallel_size": 1,
    "model.use_fused_kernels": False,
    "trainer.nnodes": 1,
}
"""Settings that our data set and engine rely on. The recipe sets those that are not veRL's defaults."""
IGNORED = (
    *("data.messages_key", "data.tools_key", "data.enable_thinking_key", "data.enable_thinking_default"),
    *("data.truncation", "data.balance_dp_token", "data.train_max_samples", "data.val_max_samples", "data.use_shm"),
    *("data.ignore_input_ids_mismatch", "engine.entropy_checkpointing", "engine.entropy_from_logits_with_chunking"),
    *("model.mtp.enable_train", "trainer.balance_batch", "optim.total_training_steps"),
)
"""Settings that have no effect with our data set and engine, so that others than veRL's defaults are refused."""
NUMBERS = (
    *("data.train_batch_size", "data.max_length", "data.max_token_len_per_gpu", "trainer.n_gpus_per_node"),
    *("trainer.total_epochs", "trainer.total_training_steps"),
)
"""Settings that are 1 or more, or null."""


class Plan(NamedTuple):
    """A run that was checked: its manifest, which is not written yet, and how many steps it has."""

    manifest: Manifest
    steps: int
    per_epoch: int


def main() -> None:
    """Compose the configuration from ``sys.argv`` and train, or only check it."""
    hydra_command(RECIPE, HELP, CONFIG_NAME, checked, train)


def refuse_ignored(config: Any) -> None:
    """Raise ``InputError`` for settings that would have no effect, and for those that we cannot work with."""
    if "cobalt" not in config:
        told = "give --config-dir verl/config +rft=gpu data.train_files=FILE, or run scripts/train_rft.sh"
        raise InputError(f"no recipe: {told}; see cobalt rft --help")
    for name, value in NEEDED.items():
        if (found := OmegaConf.select(config, name)) != value:
            raise InputError(f"{name}={found}: cobalt rft needs {value}")
    if config.trainer.max_ckpt_to_keep is not None:
        raise InputError(f"trainer.max_ckpt_to_keep: {KEEP}")
    told = dict.fromkeys(IGNORED, "it has no effect on cobalt rft: leave it out")
    refuse_changed(config, CONFIG_NAME, told | lora_of_megatron(CONFIG_NAME, "model"))


def checked(config: Any, _given: Collection[str] = ()) -> Plan:
    """The manifest and the steps. Raises ``CobaltError`` for what would fail."""
    from cobalt.training.rft_data import StoredAnswers

    refuse_ignored(config)
    TrainingConfig.of(config)
    make_absolute(config.model, "path", "tokenizer_path")  # cobalt merge looks for them, from wherever it is called
    refuse_missing_data(config.data, "preproc/process_multi_turn_taco.py --for rft makes it")
    data, trainer = config.data, config.trainer
    refuse_numbers(config, NUMBERS, "optim.lr")
    refuse_unusable_optimizer(config.optim, "optim.")
    if data.max_token_len_per_gpu < data.max_length:
        raise InputError(
            f"data.max_token_len_per_gpu={data.max_token_len_per_gpu} has no room for an example of"
            f" data.max_length={data.max_length} tokens"
        )
    if data.train_batch_size % (ranks := trainer.n_gpus_per_node):
        raise InputError(f"data.train_batch_size={data.train_batch_size} cannot be shared by {ranks} GPUs")
    if trainer.test_freq not in (0, -1) and not data.val_files:
        raise InputError(f"trainer.test_freq={trainer.test_freq} needs data.val_files")
    refuse_unwritable(trainer.default_local_dir)
    if config.model.use_liger:
        refuse_missing_liger()
    refuse_unusable_loggers(as_list(trainer.logger))
    setting, name, options = tokenizer_of(config.model, "model.")
    tokenizer = load_tokenizer(name, setting, **options)
    refuse_unusable_adapter(config.model, "model.")
    refuse_unknown_layers(config.model, "model.")
    refuse_missing_checkpoint(trainer)
    refuse_checkpoints_without_model(config.checkpoint, "checkpoint")
    refuse_small_disk(trainer, config.model, config.engine, config.checkpoint.save_contents)
    if config.cobalt.backend != CPU_BACKEND:
        refuse_missing_gpus(ranks)

    files = {name: as_list(data[name] or []) for name in DATA_FILES}
    sets = {name: StoredAnswers(paths, tokenizer, data) for name, paths in files.items() if paths}
    for name, examples in sets.items():
        if examples.left_out:
            told = f"{examples.left_out} examples of data.{name} are left out: more than {data.max_length} tokens"
            print(f"cobalt: {told}", file=sys.stderr, flush=True)
        if len(examples) < data.train_batch_size:  # veRL's loader gives whole batches only
            told = f"data.{name} hold only {len(examples)} examples of at most data.max_length={data.max_length} tokens"
            raise InputError(f"data.train_batch_size={data.train_batch_size}, but {told}")
    if "val_files" in sets and (rest := len(sets["val_files"]) % data.train_batch_size):
        told = f"of the last {rest} examples of data.val_files no loss is measured: veRL 0.9.1 takes whole batches of"
        print(f"cobalt: {told} data.train_batch_size", file=sys.stderr, flush=True)
    # as veRL's sampler and loader count
    per_epoch = len(sets["train_files"]) // ranks // (data.train_batch_size // ranks)
    steps = trainer.total_training_steps or per_epoch * trainer.total_epochs

    resolved: Any = OmegaConf.to_container(config, resolve=True)
    resolved["seed"] = trainer.seed
    model = model_identity(config.model.path)
    for path in files["train_files"]:
        tell_other_origin(path, model_id=model)
    counts = {name: {"examples": len(found), "left_out": found.left_out} for name, found in sets.items()}
    manifest = manifest_of("cobalt rft", resolved, {"model.path": model}, files, counts)
    if 0 < resumed_step(trainer) < steps:
        refuse_new_optimizer(resolved["checkpoint"], "checkpoint")
    return Plan(manifest, steps, per_epoch)


def train(config: Any, _given: Collection[str], own: argparse.Namespace) -> None:
    """Run veRL's trainer on a composed configuration. Raises ``CobaltError``."""
    manifest, steps, per_epoch = checked(config)
    trainer = config.trainer
    begun = resumed_step(trainer)
    if trainer.resume_mode == "auto" and begun >= steps:
        print(f"cobalt: finished already: checkpoint {begun}", flush=True)
        return
    trainer.total_training_steps, trainer.total_epochs = steps, math.ceil(steps / per_epoch)
    for name in ("save_freq", "test_freq"):
        trainer[name] = trainer[name] or -1  # never; veRL would divide by 0
    processes, variables = trainer.n_gpus_per_node, engine_variables(config, TOKENS, is_shared=True)
    settings = OmegaConf.to_yaml(config, resolve=True)
    train_in_processes(manifest, begun, steps, f"{ROOM}.rft_worker", settings, processes, variables, own.log)
