"""Overrides that hydra would take and training would not: misspelt settings, and values of another type than veRL's."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

from cobalt.errors import InputError

CONFIG_MODULE, CONFIG_NAME = "verl.trainer.config", "ppo_trainer"
DEFAULTS_FILE = "_generated_ppo_trainer.yaml"
"""veRL's defaults as it composes them, in one file of its."""
MISSPELT, NEARLY_MISSPELT = 0.9, 0.6
"""Similarity (difflib) to a setting from which a new one (``+KEY``), and one that hydra refuses, are taken for it."""
REAL = {"entropy_coeff", "temperature", "top_p"}
"""Settings whose default is an integer in veRL's files, and which are no integers."""
NULL_INTEGERS = re.compile(r"(\w+_)?micro_batch_size(_per_gpu)?|max_\w+|num_cpus|total_training_steps|val_batch_size")
"""Settings that are null in veRL's files, and otherwise integers."""


def refuse_faulty(config: Any, overrides: Sequence[str]) -> None:
    """Raise ``InputError`` for the first setting that is misspelt, or whose value is of another type than veRL's.

    ``config``: composed with these ``overrides``. Hydra lets misspelt settings through where they are added (``+KEY``).
    """
    defaults: Any = OmegaConf.to_container(OmegaConf.load(str(files(CONFIG_MODULE) / DEFAULTS_FILE)), resolve=True)
    settings: Any = OmegaConf.to_container(config, resolve=True)
    hydras: Any = OmegaConf.to_container(HydraConfig.get(), resolve=False) if HydraConfig.initialized() else {}
    added = [override for override in _settings_in(overrides) if override.is_add() or override.is_force_add()]
    _refuse_misspelt(added, {**settings, "hydra": hydras}, {**defaults, "hydra": hydras})
    for name, value, expected in _mismatches(settings, defaults):
        raise InputError(f"{name}={'null' if value is None else value}: expected {expected}")


def refused_by_hydra(error: HydraException, overrides: Sequence[str], config_dir: Path | None) -> InputError:
    """What hydra has refused, in one line: the setting that was meant, if one is misspelt, else hydra's words.

    ``config_dir``: of our recipes and presets, as in ``--config-dir``.
    """
    told = InputError(" ".join(str(error).split()))
    if isinstance(error, OverrideParseException):
        return InputError(f"{error.override}: {told}")
    given = _settings_in(overrides)
    search = [] if config_dir is None else [f"hydra.searchpath=['file://{config_dir.absolute()}']"]
    groups = [text for text in overrides if text not in {override.input_line for override in given}]
    try:
        with initialize_config_module(CONFIG_MODULE, version_base=None):
            known = compose(CONFIG_NAME, [*search, *groups], return_hydra_config=True)
        settings: Any = OmegaConf.to_container(known, resolve=False)
        _refuse_misspelt(given, settings, settings)
    except HydraException:
        pass  # recipe or preset are not there
    except InputError as misspelt:
        return misspelt
    return told


def _settings_in(overrides: Sequence[str]) -> list[Override]:
    """Those that set one value or delete it; the others choose files of the configuration."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return [
        override
        for override in parsed
        if "." in override.key_or_group and "/" not in override.key_or_group and override.package is None
    ]


def _refuse_misspelt(overrides: Sequence[Override], settings: Any, known: Any) -> None:
    """Raise ``InputError`` for a name that ``known`` does not hold and that is nearly another one of ``settings``."""
    for override in (override for override in overrides if not override.is_delete()):
        cutoff = MISSPELT if override.is_add() or override.is_force_add() else NEARLY_MISSPELT
        names, there, own = override.key_or_group.split("."), settings, known
        for depth, name in enumerate(names):
            if not isinstance(there, Mapping):
                break
            if not isinstance(own, Mapping) or name not in own:
                others = [str(other) for other in there if other != name]
                if matches := get_close_matches(name, others, n=1, cutoff=cutoff):
                    meant = ".".join([*names[:depth], *matches, *names[depth + 1 :]])
                    raise InputError(f"'{override.key_or_group}': no such setting; did you mean {meant}?")
            there, own = there.get(name), own.get(name) if isinstance(own, Mapping) else None


def _mismatches(given: Any, defaults: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Name, value and what was expected instead, of values that are numbers, truth values or sections in veRL."""
    for name in (name for name in defaults if name in given):
        value, default = given[name], defaults[name]
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
        elif isinstance(default, int):
            expected, fits = "an integer", is_integer
        elif default is None and NULL_INTEGERS.fullmatch(name):
            expected, fits = "an integer", is_integer or value is None
        else:
            continue  # texts and lists, which veRL often takes in place of each other
        if not fits:
            yield f"{prefix}{name}", value, expected
