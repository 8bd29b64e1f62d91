"""``cobalt train``: veRL's ``main_ppo`` with this project's reward manager, on the backend that is asked for.

Takes veRL's hydra overrides. Ours are under ``cobalt``: see ``verl/config``. Runs in the Ray cluster at
``RAY_ADDRESS``, or in a local one of its own. With ``--check`` it looks at configuration, files and machine, and starts
nothing. Exit codes: 0 done, 1 a crash, 2 overrides that hydra refuses, files that are missing or unusable, settings
that contradict each other or the checkpoint to resume from, 3 no execution service, too many failures of it, GPUs or
packages that are not there, or another version of veRL.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import hydra
from hydra.errors import HydraException, OverrideParseException

from cobalt.errors import CobaltError, InputError
from cobalt.training.launch import checked, train

CHECK = "--check"
WITHOUT_FILES = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled")
"""Hydra otherwise writes the configuration and a log to a folder."""


def main() -> None:
    """Compose the configuration from ``sys.argv`` and train, or only check it."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else hydra ends the program itself, after many lines
    arguments = sys.argv[1:]
    if CHECK in arguments:
        sys.argv[1:] = [argument for argument in arguments if argument != CHECK] + [*WITHOUT_FILES]
    try:
        _main(checked if CHECK in arguments else train)
    except HydraException as error:
        override = f"{error.override}: " if isinstance(error, OverrideParseException) else ""
        _stop(InputError(override + " ".join(str(error).split())))


def _main(action: Callable[[Any], Any]) -> None:
    decorate = hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
    decorate(partial(_act, action))()


def _act(action: Callable[[Any], Any], config: Any) -> None:
    """One line and an exit code for what a user can mend."""
    from ray.exceptions import RayTaskError

    try:
        action(config)
    except (CobaltError, RayTaskError) as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if not isinstance(cause, CobaltError):
            raise
        _stop(cause)


def _stop(error: CobaltError) -> NoReturn:
    print(f"cobalt train: error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
