"""``cobalt train``: veRL's ``main_ppo`` with this project's reward manager, on the backend that is asked for.

Takes veRL's hydra overrides. Ours are under ``cobalt``: see ``verl/config``. Runs in the Ray cluster at
``RAY_ADDRESS``, or in a local one of its own. Exit codes: 0 done, 1 overrides that hydra refuses or a crash, 2 missing
files, settings that contradict each other or the checkpoint to resume from, 3 no execution service, too many failures
of it, or another version of veRL.
"""

import os
import sys
from typing import Any

import hydra

from cobalt.errors import CobaltError
from cobalt.training.launch import train


def main() -> None:
    """Compose the configuration from ``sys.argv`` and train."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    _main()


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def _main(config: Any) -> None:
    """One line and an exit code for what a user can mend."""
    from ray.exceptions import RayTaskError

    try:
        train(config)
    except (CobaltError, RayTaskError) as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if not isinstance(cause, CobaltError):
            raise
        print(f"cobalt train: error: {cause}", file=sys.stderr)
        sys.exit(cause.exit_code)
