"""Everything that a report is made of, read once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cobalt.errors import InputError
from cobalt.evaluation.scores import read_scores
from cobalt.evaluation.summary import Summary, summarise
from cobalt.evaluation.verdict_rule import recorded_rule
from cobalt.reporting.bill import Bill
from cobalt.reporting.runs import (
    NamedRun,
    RunScores,
    read_bills,
    read_hacking,
    read_judged,
    read_logs,
    read_run_scores,
)
from cobalt.reporting.training_log import TrainingLog
from cobalt.statistics import Estimate, mean_estimate

CONDITIONS = {"clean": "clean tests", "perturbed": "perturbed tests"}
"""The tests that gave the feedback; Pass@1 is on clean hidden tests in both."""


@dataclass
class Material:
    """What was read, by run name, in the order of the runs."""

    baseline: str
    scores: dict[str, dict[str, RunScores]] = field(default_factory=lambda: {name: {} for name in CONDITIONS})
    """``scores[condition][run]``."""
    rules: dict[str, str] = field(default_factory=dict)
    """What decided the verdicts, by condition."""
    hacking: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)
    """Problem records of each repetition."""
    judged: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)
    """Judged cases of each repetition."""
    logs: dict[str, list[TrainingLog]] = field(default_factory=dict)
    controls: dict[str, RunScores] = field(default_factory=dict)
    """Scores under another problem's feedback."""
    repeats: dict[str, list[Summary]] = field(default_factory=dict)
    """Of the clean files, one per repetition: what programs repeat."""
    bills: dict[str, list[Bill]] = field(default_factory=dict)


def read_material(runs: Sequence[NamedRun], baseline: str) -> Material:
    """Read the files of all runs. Raises ``InputError``."""
    if baseline not in {run.name for run in runs}:
        raise InputError(f"--baseline {baseline}: no run has this name")
    material = Material(baseline)
    for condition in CONDITIONS:
        material.rules[condition] = recorded_rule([path for run in runs for path in run.of(condition)])
    for run in runs:
        for condition in CONDITIONS:
            if run.of(condition):
                material.scores[condition][run.name] = read_run_scores(run.of(condition), condition)
        if run.of("hacking"):
            material.hacking[run.name] = read_hacking(run.of("hacking"))
        if run.of("judged"):
            if len(run.of("judged")) != len(run.of("hacking")):
                raise InputError(f"run {run.name}: each 'judged' file needs the 'hacking' file that it judges")
            material.judged[run.name] = read_judged(run.of("judged"))
        if run.of("log"):
            material.logs[run.name] = read_logs(run.of("log"))
        if run.of("control"):
            material.controls[run.name] = read_run_scores(run.of("control"), "clean")
            material.repeats[run.name] = [summarise(read_scores(path)) for path in run.of("clean")]
        if run.of("cost"):
            material.bills[run.name] = read_bills(run.of("cost"))
    return material


def mean_of(values_P: np.ndarray) -> Estimate | None:
    """Mean and 95 % interval over the problems that have a value; None if none has."""
    known = values_P[~np.isnan(values_P)]
    return mean_estimate(known.tolist()) if len(known) else None


def mean(values: Sequence[float]) -> float:
    """Plain mean of a non-empty sequence."""
    return sum(values) / len(values)
