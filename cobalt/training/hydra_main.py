"""``cobalt train``: veRL's ``main_ppo`` with this project's reward manager, on the backend that is asked for.

Takes veRL's hydra overrides. Ours are under ``cobalt``: see ``verl/config``. Runs in the Ray cluster at
``RAY_ADDRESS``, or in a local one of its own. With ``--check`` it looks at configuration, files and machine, and starts
nothing. ``--cfg job`` prints the configuration (with ``--resolve`` without interpolations), and starts nothing either.
With ``--log FILE`` the console shows a progress bar, and the file everything else. ``--lock_fd`` is for the recipes:
the descriptor of ``training.lock`` in the output folder, which they have locked.

Exit codes: 0 done, 1 a crash, 2 overrides that hydra or their types refuse, files that are missing or unusable,
settings that contradict each other or the checkpoint to resume from, a folder in which another training runs, 3 no
execution service, too many failures of it, GPUs or packages that are not there, or another version of veRL, 130 Ctrl-C.
"""

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import OmegaConf

from cobalt.errors import EXIT_INTERRUPTED, CobaltError
from cobalt.training.console import quiet_console
from cobalt.training.launch import checked, train
from cobalt.training.overrides import CONFIG_MODULE, CONFIG_NAME, refuse_faulty, refused_by_hydra

WITHOUT_FILES = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled")
"""Hydra otherwise writes the configuration and a log to a folder."""


def main() -> None:
    """Compose the configuration from ``sys.argv`` and train, or only check it."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else hydra ends the program itself, after many lines
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cfg", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--lock_fd", type=int)
    parser.add_argument("--config-dir", "-cd", type=Path)
    own, rest = parser.parse_known_args()
    folder = [] if own.config_dir is None else ["--config-dir", str(own.config_dir)]
    sys.argv[1:] = [*folder, *rest, *(WITHOUT_FILES if own.check or own.cfg else ())]
    overrides = [argument for argument in rest if argument[0] != "-" and ("=" in argument or argument[0] == "~")]
    refused: list[CobaltError] = []

    def act(config: Any) -> None:
        try:
            refuse_faulty(config, overrides)
            if own.cfg:
                print(OmegaConf.to_yaml(config, resolve=own.resolve), flush=True)
            if own.check:
                checked(config)
            elif not own.cfg:
                with quiet_console(own.log, config) if own.log else nullcontext():
                    train(config, own.lock_fd)
        except CobaltError as error:
            refused.append(error)  # hydra would add a line with all overrides

    try:
        hydra.main(config_path=f"pkg://{CONFIG_MODULE}", config_name=CONFIG_NAME, version_base=None)(act)()
    except HydraException as error:
        refused.append(refused_by_hydra(error, overrides, own.config_dir))
    except KeyboardInterrupt:
        print("cobalt train: interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    for error in refused:
        print(f"cobalt train: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
