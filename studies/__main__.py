"""The commands of the studies: ``cobalt NAME`` or ``python -m studies NAME`` in a checkout of the project."""

import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import tyro

from cobalt import __main__ as console
from cobalt.commands.entry import run
from studies.plans.arms import run_arms
from studies.plans.places import ROOT
from studies.plans.settings import SMALL, StudyConfig


def report() -> None:
    """result files of named runs to tables and figures"""
    from studies.reports.make_report import ReportConfig, make_report

    run(ReportConfig, make_report)


def report_loop() -> None:
    """Pass@1 per turn before and after training"""
    from studies.reports.loop import LoopConfig, main

    run(LoopConfig, main)


def report_figures() -> None:
    """the figures of reports again, from their JSON"""
    from studies.reports.redraw import RedrawConfig, main

    run(RedrawConfig, main)


def report_cost() -> None:
    """what a training took, in all and per example"""
    from studies.reports.bill import CostConfig, main

    run(CostConfig, main)


def report_sweep() -> None:
    """Pass@1 over the values of a setting"""
    from studies.reports.sweep import SweepConfig, main

    run(SweepConfig, main)


def minicode_generate() -> None:
    """write MiniCode problems"""
    from studies.minicode.generate import GenerateConfig, main

    run(GenerateConfig, main)


def minicode_pretrain() -> None:
    """make the MiniCoder checkpoint"""
    from studies.minicode.pretrain import PretrainConfig, main

    run(PretrainConfig, main)


def minicode_probe() -> None:
    """measure a policy on MiniCode"""
    from studies.minicode.probe import ProbeConfig, main

    run(ProbeConfig, main)


def minicode_signal() -> None:
    """the judge-free signal against labels by construction"""
    from studies.minicode.signal_check import SignalCheckConfig, main

    run(SignalCheckConfig, main)


def theory_measure() -> None:
    """J, J_step and the distance to the reference"""
    from studies.theory.measure import MeasureConfig, main

    run(MeasureConfig, main)


def theory_report() -> None:
    """the gap between J and J_step beside its bounds"""
    from studies.theory.report import TheoryReportConfig, main

    run(TheoryReportConfig, main)


@dataclass(frozen=True)
class Size:
    """Read before the other flags, because their defaults depend on it."""

    size: Literal["gpu", "cpu"] = "gpu"


def arms(study: type[Any], config_type: type[StudyConfig]) -> None:
    """Run a study that trains several policies."""
    size, _ = tyro.cli(Size, use_underscores=True, add_help=False, return_unknown_args=True)
    small = {**SMALL, **config_type.cpu} if size.size == "cpu" else {}
    in_the_project(config_type, partial(run_arms, study), config_type(**small))


def in_the_project(config_type: type[Any], main: Any, default: Any = None) -> None:
    """Run a plan in the project's folder. Signals end it as Ctrl-C does: its commands and services are ended."""
    os.chdir(ROOT)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    run(config_type, main, default)


def study_paper() -> None:
    """the paper's comparison: Cobalt, single-turn and online baselines"""
    from studies.plans.paper import Paper, PaperConfig

    arms(Paper, PaperConfig)


def study_hacking() -> None:
    """in-context reward hacking and its cures"""
    from studies.plans.hacking import Hacking, HackingConfig

    arms(Hacking, HackingConfig)


def study_theory() -> None:
    """the paper's bound over trainings and steps"""
    from studies.plans.theory import Theory, TheoryConfig

    arms(Theory, TheoryConfig)


def study_sweep_paper() -> None:
    """one setting of Cobalt at a time"""
    from studies.plans.sweeps import PaperSweep, PaperSweepConfig

    arms(PaperSweep, PaperSweepConfig)


def study_sweep_perturbation() -> None:
    """kinds and shares of perturbed contexts"""
    from studies.plans.sweeps import PerturbationSweep, PerturbationSweepConfig

    arms(PerturbationSweep, PerturbationSweepConfig)


def study_minicoder() -> None:
    """make the embedded policy from nothing"""
    from studies.plans.minicoder import MinicoderConfig, make_minicoder

    in_the_project(MinicoderConfig, make_minicoder)


def study_quickstart() -> None:
    """the whole loop once, on the CPU: what scripts/quickstart.sh runs"""
    from studies.plans.quickstart import QuickstartConfig, run_quickstart

    sys.argv[0] = "quickstart.sh"
    in_the_project(QuickstartConfig, run_quickstart)


COMMANDS: console.Commands = {
    **console.COMMANDS,
    "report": report,
    "report loop": report_loop,
    "report figures": report_figures,
    "report cost": report_cost,
    "report sweep": report_sweep,
    "minicode generate": minicode_generate,
    "minicode pretrain": minicode_pretrain,
    "minicode probe": minicode_probe,
    "minicode signal": minicode_signal,
    "theory measure": theory_measure,
    "theory report": theory_report,
    "study paper": study_paper,
    "study hacking": study_hacking,
    "study theory": study_theory,
    "study sweep-paper": study_sweep_paper,
    "study sweep-perturbation": study_sweep_perturbation,
    "study minicoder": study_minicoder,
    "study quickstart": study_quickstart,
}


if __name__ == "__main__":
    console.run_chosen(COMMANDS)
