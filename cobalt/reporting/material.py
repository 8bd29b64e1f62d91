"""Everything that a report is made of, read once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cobalt.errors import InputError
from cobalt.evaluation.scores import read_scores
from cobalt.evaluation.summary import Repeats, repeats_at
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

CONDITIONS = {
    "clean": "clean feedback",
    "shifted": "shifted test set",
    "perturbed": "perturbed feedback",
}
"""What Pass@1 was measured under; it is on clean hidden tests in all of them."""
SETS = ("clean", "shifted")
"""Conditions of the main results."""
NEEDED = {"judged": "hacking", "control": "clean"}
"""Kinds of files that say nothing without another."""
MATCHED = (("judged", "hacking"), ("log", "cost"), ("perturbed", "clean"))
"""Kinds whose files belong together one by one, where a run has both."""


@dataclass
class Material:
    """What was read, by run name, in the order of the runs."""

    baseline: str
    method: str | None = None
    """The run whose gains over all others are tested; None: no such test."""
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
    repeats: dict[str, list[tuple[Repeats, Repeats]]] = field(default_factory=dict)
    """Of the clean files, one per repetition: what programs repeat at turn 1 and at the last."""
    bills: dict[str, list[Bill]] = field(default_factory=dict)


def read_material(runs: Sequence[NamedRun], baseline: str, method: str | None = None) -> Material:
    """Read the files of all runs. Raises ``InputError``."""
    for flag, name in (("baseline", baseline), ("method", method)):
        if name is not None and name not in {run.name for run in runs}:
            raise InputError(f"--{flag} {name}: no run has this name")
    material = Material(baseline, method)
    for condition in CONDITIONS:
        material.rules[condition] = recorded_rule([path for run in runs for path in run.of(condition)])
    for run in runs:
        _check_kinds(run)
        for condition in CONDITIONS:
            if run.of(condition):
                material.scores[condition][run.name] = read_run_scores(run.of(condition), condition)
        if run.of("hacking"):
            material.hacking[run.name] = read_hacking(run.of("hacking"))
        if run.of("judged"):
            material.judged[run.name] = read_judged(run.of("judged"))
        if run.of("log"):
            material.logs[run.name] = read_logs(run.of("log"))
        if run.of("control"):
            material.controls[run.name] = read_run_scores(run.of("control"), "clean")
            material.repeats[run.name] = [_first_and_last_repeats(path) for path in run.of("clean")]
        if run.of("cost"):
            material.bills[run.name] = read_bills(run.of("cost"))
    return material


def _check_kinds(run: NamedRun) -> None:
    for kind, other in NEEDED.items():
        if run.of(kind) and not run.of(other):
            raise InputError(f"run {run.name}: '{kind}' files need '{other}' files beside them")
    for kind, other in MATCHED:
        ours, theirs = len(run.of(kind)), len(run.of(other))
        if ours and theirs and ours != theirs:
            raise InputError(
                f"run {run.name}: {ours} '{kind}' files and {theirs} '{other}' files; each needs the other"
            )


def _first_and_last_repeats(path: Path) -> tuple[Repeats, Repeats]:
    problems = [problem for problem in read_scores(path) if problem.solved_NT]
    turns = max((problem.turns for problem in problems), default=0)
    if turns < 2:
        raise InputError.at(path, None, "holds a single turn: nothing to compare a 'control' file with")
    return repeats_at(problems, 1), repeats_at(problems, turns - 1)


def mean_of(values_P: np.ndarray) -> Estimate | None:
    """Mean and 95 % interval over the problems that have a value; None if none has."""
    known = values_P[~np.isnan(values_P)]
    return mean_estimate(known.tolist()) if len(known) else None


def mean(values: Sequence[float]) -> float:
    """Plain mean of a non-empty sequence."""
    return sum(values) / len(values)
