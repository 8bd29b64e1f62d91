"""``cobalt study NAME``, or ``python -m studies NAME`` in the project's folder: one of the studies."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import tyro

from cobalt.cli.entry import run
from cobalt.errors import InputError
from studies.arms import run_arms
from studies.hacking import Hacking, HackingConfig
from studies.minicoder import MinicoderConfig, make_minicoder
from studies.paper import Paper, PaperConfig
from studies.places import ROOT
from studies.quickstart import QuickstartConfig, run_quickstart
from studies.settings import SMALL, StudyConfig
from studies.sweeps import PaperSweep, PaperSweepConfig, PerturbationSweep, PerturbationSweepConfig
from studies.theory import Theory, TheoryConfig

Study = tuple[type[Any], Callable[[Any], None]]
STUDIES: dict[str, Study] = {
    "paper": (PaperConfig, partial(run_arms, Paper)),
    "hacking": (HackingConfig, partial(run_arms, Hacking)),
    "theory": (TheoryConfig, partial(run_arms, Theory)),
    "sweep-paper": (PaperSweepConfig, partial(run_arms, PaperSweep)),
    "sweep-perturbation": (PerturbationSweepConfig, partial(run_arms, PerturbationSweep)),
    "minicoder": (MinicoderConfig, make_minicoder),
    "quickstart": (QuickstartConfig, run_quickstart),
}
"""The flags of each study, and what they are given to."""


@dataclass(frozen=True)
class Size:
    """Read before the other flags, because their defaults depend on it."""

    size: Literal["gpu", "cpu"] = "gpu"


def main() -> None:
    """Run the study that the first word names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    overview = "\n".join(["Studies; each takes --help:", *(f"  cobalt study {name}" for name in STUDIES)])
    if name in ("--help", "-h"):
        print(overview)
        return
    if name not in STUDIES:
        print(f"{overview}\ncobalt study: error: no such study: '{name}'", file=sys.stderr)
        sys.exit(InputError.exit_code)
    os.chdir(ROOT)
    sys.argv = ["quickstart.sh" if name == "quickstart" else f"cobalt study {name}", *sys.argv[2:]]
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: commands and services are ended
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    config_type, study_main = STUDIES[name]
    default = None
    if issubclass(config_type, StudyConfig):
        size, _ = tyro.cli(Size, use_underscores=True, add_help=False, return_unknown_args=True)
        default = config_type(**({**SMALL, **config_type.cpu} if size.size == "cpu" else {}))
    run(config_type, study_main, default)


if __name__ == "__main__":
    main()
