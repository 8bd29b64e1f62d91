"""The commands of our own experiments: ``python -m research NAME`` in a checkout of the project."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pkgutil import resolve_name
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


AT = {
    "report": "research.reports.make_report:make_report",
    "report figures": "research.reports.redraw:main",
    "report cost": "research.reports.bill:main",
    "minicode generate": "research.minicode.generate:main",
    "minicode pretrain": "research.minicode.pretrain:main",
    "minicode probe": "research.minicode.probe:main",
    "theory measure": "research.theory.measure:main",
    "theory report": "research.theory.report:main",
    "study paper": "research.plans.studies:Paper",
    "study hacking": "research.plans.studies:Hacking",
    "study theory": "research.plans.studies:Theory",
    "study minicoder": "research.plans.minicoder:make_minicoder",
}
"""The function of each command, or its study."""


def load_command(name: str) -> tuple[type[Any], Callable[[Any], None]]:
    """The flags and the function of a command. What it needs is imported here, not where it is only listed."""
    found = resolve_name(AT[name])
    if isinstance(found, type):
        return found.config_type, partial(run_arms, found)
    return get_type_hints(found)["config"], found


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
