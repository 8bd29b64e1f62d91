"""Overrides that hydra would take and training would not: misspelt settings, and values of another type than veRL's."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from cobalt.errors import InputError

CONFIG_MODULE, CONFIG_NAME = "verl.trainer.config", "ppo_trainer"
INTEGER, NUMBER, TRUTH, SECTION = "an integer", "a number", "true or false", "settings in braces, {NAME: VALUE}"
MISSPELT, NEARLY_MISSPELT = 0.9, 0.6
"""Similarity (difflib) to a setting from which a new one (``+KEY``), and one that hydra refuses, are taken for it."""
REAL = {"entropy_coeff", "temperature", "top_p"}
"""Settings whose default is an integer in veRL's files, and which are no integers."""
NULL_INTEGERS = {
    "forward_micro_batch_size",
    "forward_micro_batch_size_per_gpu",
    "log_prob_micro_batch_size",
    "log_prob_micro_batch_size_per_gpu",
    "max_actor_ckpt_to_keep",
    "max_assistant_turns",
    "max_critic_ckpt_to_keep",
    "max_length",
    "max_model_len",
    "max_user_turns",
    "micro_batch_size",
    "micro_batch_size_per_gpu",
    "num_cpus",
    "ppo_micro_batch_size",
    "ppo_micro_batch_size_per_gpu",
    "total_training_steps",
    "val_batch_size",
}
"""Settings that are null in veRL's files, and otherwise integers."""


def refuse_faulty(overrides: Sequence[str], config_dir: Path | None) -> None:
    """Raise ``InputError`` for the first misspelt setting or value of a wrong type, hydra's errors for its own.

    ``config_dir``: of our recipes and presets, as in ``--config-dir``.
    """
    if config_dir is not None and not config_dir.is_dir():
        return  # hydra says so
    search = [] if config_dir is None else [f"hydra.searchpath=['file://{config_dir.absolute()}']"]
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    groups = [text for text, override in zip(overrides, parsed, strict=True) if not _is_setting(override)]
    with initialize_config_module(CONFIG_MODULE, version_base=None):
        known = compose(CONFIG_NAME, [*search, *groups], return_hydra_config=True)
        settings: Any = OmegaConf.to_container(known, resolve=False)
        for override in parsed:
            if _is_setting(override) and not override.is_delete():
                _refuse_misspelt(override, settings)
        given = compose(CONFIG_NAME, [*search, *overrides])
        refuse_other_types(given, compose(CONFIG_NAME))


def refuse_other_types(config: Any, defaults: Any) -> None:
    """Raise ``InputError`` for the first value of ``config`` whose type is not that of veRL's ``defaults``."""
    given: Any = OmegaConf.to_container(config, resolve=True)
    own: Any = OmegaConf.to_container(defaults, resolve=True)
    for name, value, expected in _mismatches(given, own):
        raise InputError(f"{name}={'null' if value is None else value}: expected {expected}")


def _is_setting(override: Override) -> bool:
    """Whether it sets one value; the others choose files of the configuration."""
    return "." in override.key_or_group and "/" not in override.key_or_group and override.package is None


def _refuse_misspelt(override: Override, settings: Mapping[str, Any]) -> None:
    names = override.key_or_group.split(".")
    there: Any = settings
    for depth, name in enumerate(names):
        if not isinstance(there, Mapping):
            return
        if name not in there:
            cutoff = MISSPELT if override.is_add() or override.is_force_add() else NEARLY_MISSPELT
            if matches := get_close_matches(name, map(str, there), n=1, cutoff=cutoff):
                meant = ".".join([*names[:depth], *matches, *names[depth + 1 :]])
                raise InputError(f"'{override.key_or_group}': no such setting; did you mean {meant}?")
            return
        there = there[name]


def _mismatches(
    given: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, str]]:
    """Name, value and what was expected instead, of values that are numbers, truth values or sections in veRL."""
    for name in (name for name in defaults if name in given):
        value, default = given[name], defaults[name]
        if isinstance(default, Mapping) and isinstance(value, Mapping):
            yield from _mismatches(value, default, f"{prefix}{name}.")
        elif (expected := _expected(name, default)) and not _is(value, expected, nullable=default is None):
            yield f"{prefix}{name}", value, expected


def _expected(name: str, default: Any) -> str | None:
    """None where anything goes: texts and lists, which veRL often takes in place of each other."""
    if isinstance(default, bool):
        return TRUTH
    if isinstance(default, float) or (isinstance(default, int) and name in REAL):
        return NUMBER
    if isinstance(default, int) or (default is None and name in NULL_INTEGERS):
        return INTEGER
    return SECTION if isinstance(default, Mapping) else None


def _is(value: Any, expected: str, nullable: bool) -> bool:
    if value is None:
        return nullable or expected == SECTION
    if expected == SECTION:
        return False
    if isinstance(value, bool) or expected == TRUTH:
        return isinstance(value, bool) and expected == TRUTH
    return isinstance(value, int) or (expected == NUMBER and isinstance(value, float))
