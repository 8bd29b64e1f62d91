"""The commands of our own experiments: ``python -m research NAME`` in a checkout of the project."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, get_type_hints

from cobalt import __main__ as console
from cobalt.cli.entry import exit_codes, run
from research.plans.arms import SMALL, run_arms
from research.plans.places import ROOT

HELP = {
    "report": "result files of named runs to tables and figures\n\n"
    "python -m research report --output_dir runs/report --files base:clean=runs/dev.jsonl",
    "report figures": "the figures of reports again, from their JSON",
    "report cost": "what a training took, in all and per example",
    "minicode generate": "write MiniCode problems\n\n"
    "python -m research minicode generate --output_file data/minicode_raw.jsonl --num_problems 40 --dev_size 16",
    "minicode pretrain": "make the MiniCoder checkpoint",
    "minicode probe": "measure a policy on MiniCode",
    "theory measure": "J, J_step and the distance to the reference",
    "theory report": "the gap between J and J_step beside its bounds",
    "study paper": "the paper's comparison: Cobalt, single-turn and online baselines\n\n"
    "python -m research study paper --plan",
    "study hacking": "in-context reward hacking and its cures",
    "study theory": "the paper's bound over trainings and steps",
    "study minicoder": "make the embedded policy from nothing",
}


def load_command(name: str) -> tuple[type[Any], Callable[[Any], None]]:
    """The flags and the function of a command. What it needs is imported here, not where it is only listed."""
    match name:
        case "report":
            from research.reports.make_report import make_report as main
        case "report figures":
            from research.reports.redraw import main
        case "report cost":
            from research.reports.bill import main
        case "minicode generate":
            from research.minicode.generate import main
        case "minicode pretrain":
            from research.minicode.pretrain import main
        case "minicode probe":
            from research.minicode.probe import main
        case "theory measure":
            from research.theory.measure import main
        case "theory report":
            from research.theory.report import main
        case "study minicoder":
            from research.plans.minicoder import make_minicoder as main
        case _:
            from research.plans import studies

            study = {
                "study paper": studies.Paper,
                "study hacking": studies.Hacking,
                "study theory": studies.Theory,
            }[name]
            return study.config_type, partial(run_arms, study)
    return get_type_hints(main)["config"], main


def command(name: str) -> Callable[[], None]:
    """What the console runs and lists."""

    def start() -> None:
        config_type, main = load_command(name)
        if not name.startswith("study "):
            run(config_type, main)
            return
        # A plan runs in the project's folder. Signals end it as Ctrl-C does: its commands and services are ended.
        os.chdir(ROOT)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        default = None
        if hasattr(config_type, "cpu"):
            is_small = "--size=cpu" in sys.argv or ("--size", "cpu") in pairwise(sys.argv)
            default = config_type(**({**SMALL, **config_type.cpu} if is_small else {}))  # what --size decides
        run(config_type, main, default)

    start.__doc__ = HELP[name]
    return start


COMMANDS: console.Commands = {name: command(name) for name in HELP}

if __name__ == "__main__":
    with exit_codes():
        console.run_chosen(COMMANDS, "python -m research")
