"""Everything that a report is made of, read once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cobalt.errors import InputError
from cobalt.evaluation.counts import Evaluation
from cobalt.evaluation.summary import Repeats, repeats_at
from cobalt.evaluation.verdict_rule import recorded_rule
from cobalt.training.training_log import TrainingLog
from studies.reports.bill import Bill
from studies.reports.runs import (
    NamedRun,
    RunScores,
    read_bills,
    read_hacking,
    read_judged,
    read_logs,
    run_scores,
)

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
    """The run that is tested against all others; None: no such test."""
    pairs: Sequence[tuple[str, str]] = ()
    """Further runs that are tested against one another."""
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


def read_material(
    runs: Sequence[NamedRun], baseline: str, method: str | None = None, pairs: Sequence[tuple[str, str]] = ()
) -> Material:
    """Read the files of all runs. Raises ``InputError``."""
    for flag, name in (("baseline", baseline), ("method", method)):
        if name is not None and name not in {run.name for run in runs}:
            raise InputError(f"--{flag} {name}: no run has this name")
    material = Material(baseline, method, pairs)
    for condition in CONDITIONS:
        material.rules[condition] = recorded_rule(source for run in runs for source in run.sources(condition))
    for run in runs:
        _check_kinds(run)
        for condition in CONDITIONS:
            if run.of(condition):
                material.scores[condition][run.name] = run_scores(run.evaluations[condition], condition)
        if run.of("hacking"):
            material.hacking[run.name] = read_hacking(run.of("hacking"))
        if run.of("judged"):
            material.judged[run.name] = read_judged(run.of("judged"))
        if run.of("log"):
            material.logs[run.name] = read_logs(run.of("log"))
        if run.of("control"):
            material.controls[run.name] = run_scores(run.evaluations["control"], "control")
            material.repeats[run.name] = [_first_and_last_repeats(found) for found in run.evaluations["clean"]]
        if run.of("cost"):
            material.bills[run.name] = read_bills(run.of("cost"))
    return material


def _check_kinds(run: NamedRun) -> None:
    for kind, other in NEEDED.items():
        if run.of(kind) and not run.of(other):
            raise InputError(f"run {run.name}: '{kind}' files need '{other}' files beside them")
    for kind, other in MATCHED:
        ours, theirs = len(run.sources(kind)), len(run.sources(other))
        if ours and theirs and ours != theirs:
            raise InputError(
                f"run {run.name}: {ours} '{kind}' files and {theirs} '{other}' files; each needs the other"
            )


def _first_and_last_repeats(evaluation: Evaluation) -> tuple[Repeats, Repeats]:
    problems = [problem for problem in evaluation.problems if problem.samples]
    turns = max((problem.turns for problem in problems), default=0)
    if turns < 2:
        raise InputError.at(evaluation.path, None, "holds a single turn: nothing to compare a 'control' file with")
    return repeats_at(problems, 1), repeats_at(problems, turns - 1)


def mean(values: Sequence[float]) -> float:
    """Plain mean of a non-empty sequence."""
    return sum(values) / len(values)
