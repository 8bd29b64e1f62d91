"""``cobalt train``: veRL's ``main_ppo`` with this project's reward manager. ``HELP`` tells settings and exit codes.

Runs in the Ray cluster at ``RAY_ADDRESS``, or in a local one of its own. ``--services_fds`` is for the recipes, which
start one, and what runs the programs, when they are told that all is checked (``started_services``).

Hydra takes some overrides that training would not: misspelt settings that are added (``+KEY``), and values of another
type than veRL's. Both are refused here.
"""

import argparse
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

from cobalt.cli.entry import exit_codes
from cobalt.errors import EXIT_INTERRUPTED, InputError, SetupError
from cobalt.records.training_run import TRACKER_NAME
from cobalt.training.composition import CONFIG_NAME, composed, defaults
from cobalt.training.config import refuse_moved
from cobalt.training.console import quiet_console
from cobalt.training.launch import checked, refuse_other_verl, train

OPTIONS = """\
Options:
  --config-dir DIR    where recipes and presets are
  --check             look at settings, files and machine; start nothing
  --cfg job           print all settings, veRL's too, and start nothing; with --resolve, without interpolations
  --log FILE          {log}

Exit codes: 0 done, 1 a crash, 2 settings or files that cannot be used, 3 something is missing here, 130 Ctrl-C.
"""
"""Of the help, with what ``--log`` takes."""
HELP = """\
cobalt train: GRPO on veRL with rewards from tests. Arguments are settings, NAME=VALUE.

The recipes run it. They check the machine, start Ray and the service that runs programs, and stop them at the end:
  PRESET=cpu TRAIN_FILE=train.parquet VAL_FILE=test.parquet bash scripts/train_grpo_multi_turn.sh
  bash scripts/train_grpo_multi_turn.sh --help           its knobs

On its own, on the CPUs of this machine:
  cobalt train --config-dir verl/config +recipe=multi_turn +preset=cpu data.train_files=train.parquet \\
    data.val_files=test.parquet trainer.default_local_dir=runs/first reward.reward_kwargs.executor=local \\
    reward.custom_reward_function.path=verl/code_reward_func_think.py trainer.total_training_steps=20

Common settings (verl/config holds all of ours with their values, docs/training.md explains them):
  +recipe=NAME                                   multi_turn, single_turn, grpo_online, verpo_online
  +preset=NAME                                   cpu, one-gpu-vllm, one-gpu-coder, paper-qwen3, paper-qwen3-h200,
                                                 paper-qwen3-lora, paper-r1-llama
  actor_rollout_ref.model.path=NAME              the model, a folder or a name on the hub
  data.train_batch_size=N                        problems in a step
  actor_rollout_ref.rollout.n=N                  responses to each
  actor_rollout_ref.actor.optim.lr=X             learning rate
  data.max_response_length=N                     tokens
  trainer.total_training_steps=N                 or trainer.total_epochs=N
  trainer.save_freq=N, trainer.test_freq=N       steps between checkpoints, between validations
  cobalt.keep_checkpoints=N                      last ones that stay, beside the best by validation; null: all
  trainer.n_gpus_per_node=N                      GPUs; with +preset=cpu processes
  trainer.logger=[console,wandb]                 also tensorboard, mlflow, trackio
  cobalt.budget={responses: N}                   or {gpu_seconds: X}: what training may cost
  cobalt.seed=N                                  of sampling on a CPU

""" + OPTIONS.format(log="a progress bar on the console, everything else in FILE")
MISSPELT, NEARLY_MISSPELT = 0.9, 0.6
"""Similarity (difflib) to a setting from which a new one (``+KEY``), and one that hydra refuses, are taken for it."""
REAL = {"entropy_coeff", "temperature", "top_p"}
"""Settings whose default is an integer in veRL's files, and which are no integers."""
EACH_EPOCH = [("trainer.save_freq", "after_each_epoch"), ("trainer.test_freq", "after_each_epoch")]
"""Settings that veRL's trainer for supervised fine-tuning, and no other, also takes this word for."""
NULL_INTEGERS = re.compile(r"(\w+_)?micro_batch_size(_per_gpu)?|max_\w+|num_cpus|total_training_steps|val_batch_size")
"""Settings that are null in veRL's files, and otherwise integers."""


def main() -> None:
    """Compose the configuration from ``sys.argv`` and train, or only check it."""

    def start(config: Any, given: set[str], own: argparse.Namespace) -> None:
        services = partial(started_services, *own.services_fds) if own.services_fds else None
        train(config, given, services, quiet_console(own.log, config) if own.log else None)

    hydra_command("train", HELP, CONFIG_NAME, checked, start)


def started_services(answers: int, asks: int, limits: Mapping[str, Any]) -> None:
    """Have a recipe start Ray and what runs the programs, with ``limits``: ``RAY_ADDRESS`` is where.

    ``answers``, ``asks``: descriptors, where the recipe writes and reads. Exits as the recipe does where it cannot
    start them: it has said why. Raises ``SetupError`` where the recipe has ended.
    """
    with suppress(BrokenPipeError), os.fdopen(asks, "w") as asking:
        asking.write(f"{' '.join(['start', *(f'{name}={value}' for name, value in limits.items())])}\n")
    with warnings.catch_warnings(action="ignore"):  # of engines that veRL has, and that are not installed
        import_module("cobalt.training.runner")  # veRL, for as long as the services start
    with os.fdopen(answers) as answering:
        answer = answering.readline().strip()
    if answer.startswith("exit "):
        sys.exit(int(answer.split()[1]))
    if not answer:
        raise SetupError("the recipe ended while it started Ray and what runs the programs")
    os.environ["RAY_ADDRESS"] = answer


def hydra_command(
    name: str,
    help_text: str,
    config_name: str,
    check: Callable[[Any, set[str]], Any],
    start: Callable[[Any, set[str], argparse.Namespace], None],
) -> None:
    """A command that takes hydra overrides of veRL's configuration ``config_name``, and the options of the module.

    ``check``: is given the configuration and the names of the settings on the command line, and looks at settings,
    files and machine; ``start``: trains.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cfg", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--services_fds", type=int, nargs=2)
    parser.add_argument("--config-dir", "-cd", type=Path)
    tracker: Path | None = None
    # on CPU cores veRL warns twice that it finds no accelerator; what a training needs is checked and told below
    logging.getLogger("verl.plugin.platform.platform_manager").addFilter(lambda _: False)
    with exit_codes():
        try:
            own, overrides = parser.parse_known_args()
            if {"--help", "-h"} & set(overrides):
                print(help_text)
                return
            refuse_other_verl()
            if own.config_dir is not None and not own.config_dir.is_dir():
                raise InputError(f"--config-dir {own.config_dir}: no such folder")
            refuse_misspelt(overrides, own.config_dir, config_name)
            config = composed(overrides, own.config_dir, config_name)
            tracker = Path(config.trainer.default_local_dir, TRACKER_NAME)
            refuse_mistyped(config, config_name)
            if own.cfg:
                print(OmegaConf.to_yaml(config, resolve=own.resolve), flush=True)
            given = {one.key_or_group for one in OverridesParser.create().parse_overrides(list(overrides))}
            if own.check:
                check(config, given)
            elif not own.cfg:
                start(config, given, own)
        except argparse.ArgumentError as error:
            raise InputError(str(error)) from None
        except HydraException as error:
            override = f"{error.override}: " if isinstance(error, OverrideParseException) else ""
            raise InputError(override + str(error).partition("Config search path:")[0]) from None
        except KeyboardInterrupt:
            resumes = tracker is not None and tracker.exists()
            after = "resumes from the last checkpoint" if resumes else "starts over, as there is no checkpoint yet"
            print(f"cobalt {name}: interrupted; the same command {after}", file=sys.stderr)
            sys.exit(EXIT_INTERRUPTED)


def refuse_misspelt(overrides: Sequence[str], config_dir: Path | None, config_name: str = CONFIG_NAME) -> None:
    """Raise ``InputError`` for the first setting that veRL, recipe and preset do not know and that is nearly another.

    Also for one of older veRL.

    Raises ``HydraException`` for what is no override.
    """
    parsed = [one for one in OverridesParser.create().parse_overrides(list(overrides)) if not one.is_delete()]
    # those that set one value; the others choose files of the configuration
    given = [one for one in parsed if "." in one.key_or_group and "/" not in one.key_or_group and one.package is None]
    given = [one for one in given if one.key_or_group != "hydra.searchpath"]
    groups = [text for text in overrides if text not in {override.input_line for override in given}]
    try:
        known = composed(groups, config_dir, config_name, return_hydra_config=True)
    except HydraException:
        return  # as when there is no such recipe or preset: hydra says so itself
    for override in given:
        if override.value() is not None:
            refuse_moved(override.key_or_group)
        names = override.key_or_group.split(".")
        there: Any = OmegaConf.to_container(known, resolve=False)
        for depth, name in enumerate(names):
            if not isinstance(there, Mapping):
                break
            if name not in there:
                cutoff = MISSPELT if override.is_add() or override.is_force_add() else NEARLY_MISSPELT
                if matches := get_close_matches(name, map(str, there), n=1, cutoff=cutoff):
                    meant = ".".join([*names[:depth], *matches, *names[depth + 1 :]])
                    raise InputError(f"'{override.key_or_group}': no such setting; did you mean {meant}?")
            there = there.get(name)


def refuse_mistyped(config: Any, config_name: str = CONFIG_NAME) -> None:
    """Raise ``InputError`` for the first value of a composed configuration that is of another type than veRL's."""
    of_verl: Any = OmegaConf.to_container(defaults(config_name))
    for name, value, expected in _mismatches(OmegaConf.to_container(config), of_verl):
        if config_name != CONFIG_NAME and (name, value) in EACH_EPOCH:
            continue
        raise InputError(f"{name}={'null' if value is None else value}: expected {expected}")


def _mismatches(given: Any, defaults: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Name, value and what was expected instead, of values that are numbers, truth values or sections in veRL."""
    for name in (name for name in defaults if name in given):
        value, default = given[name], defaults[name]
        if isinstance(value, str) and value.startswith("${"):
            continue  # the complaint is about the setting that it takes its value from
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(default, Mapping):
            if isinstance(value, Mapping):
                yield from _mismatches(value, default, f"{prefix}{name}.")
                continue
            expected, fits = "settings in braces, {NAME: VALUE}", value is None
        elif isinstance(default, bool):
            expected, fits = "true or false", isinstance(value, bool)
        elif isinstance(default, float) or (isinstance(default, int) and name in REAL):
            expected, fits = "a number", is_integer or isinstance(value, float)
        elif isinstance(default, int) or (default is None and NULL_INTEGERS.fullmatch(name)):
            expected, fits = "an integer", is_integer or (value is None and default is None)
        else:
            continue  # texts and lists, which veRL often takes in place of each other
        if not fits:
            yield f"{prefix}{name}", value, expected
