"""Named runs and their result files, read into arrays that the tables are made of.

A run is a policy under one name; several files of one kind are repetitions of it (training seeds). Shapes: P problems,
S repetitions, T turns. A problem's value is the mean over its samples, then over the repetitions that have it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cobalt.errors import InputError
from cobalt.evaluation.counts import Evaluation, read_evaluations
from cobalt.evaluation.source import Source, source_of
from cobalt.records import id_key, read_jsonl
from cobalt.records.training_run import METRICS_FILE, training_manifest
from cobalt.statistics import Estimate, Resampled, hierarchical_mean, nanmean
from cobalt.training.training_log import TrainingLog, read_training_log
from studies.hacking.rates import COUNTED
from studies.reports.bill import Bill, read_bill

KINDS = {
    "clean": "eval_multi_turn.py output on clean tests",
    "shifted": "the same on a second set of problems, unlike those of training",
    "perturbed": "eval_multi_turn.py output of a run whose feedback came from perturbed tests",
    "hacking": "extract_turn_level_errors.py output",
    "judged": "run_llm_judge.py output",
    "log": "metrics.jsonl of a training folder, or a console log of veRL",
    "control": "eval_multi_turn.py output of conversations that were shown another problem's feedback",
    "cost": "output of cobalt report cost",
}
HACKING_FIELDS = ("id", *COUNTED, "opportunities_by_turn", "cases")
EVALUATED = ("clean", "shifted", "perturbed", "control")
"""Kinds of evaluated files; a counts file may stand for any number of them."""
FEEDBACK_TESTS = {"clean": "public", "shifted": "public", "perturbed": "perturbed", "control": "public"}
"""The records' ``feedback_tests`` in files of a kind; released files carry no such label."""


@dataclass
class NamedRun:
    """One named run. Each list has one entry per repetition."""

    name: str
    files: dict[str, list[Path]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Path]:
        """Files of one kind, in the order given."""
        return self.files.get(kind, [])

    @cached_property
    def evaluations(self) -> dict[str, list[Evaluation]]:
        """What the evaluated files hold, by kind, one for each repetition."""
        return {
            kind: [found for path in self.of(kind) for found in read_evaluations(path)]
            for kind in EVALUATED
            if self.of(kind)
        }

    def sources(self, kind: str) -> list[Source]:
        """Where each repetition comes from."""
        if kind in EVALUATED:
            return [evaluation.source for evaluation in self.evaluations.get(kind, [])]
        return [
            source_of(path, training_manifest(path.parent) if path.name == METRICS_FILE else None)
            for path in self.of(kind)
        ]


def parse_runs(specs: Sequence[str]) -> list[NamedRun]:
    """``NAME:KIND=PATH`` texts to runs, in order of first mention. Raises ``InputError``."""
    runs: dict[str, NamedRun] = {}
    for spec in specs:
        head, equals, path = spec.partition("=")
        name, colon, kind = head.rpartition(":")
        if not equals or not colon or not name or kind not in KINDS:
            raise InputError(f"'{spec}' is not NAME:KIND=PATH with KIND one of {', '.join(KINDS)}")
        if not Path(path).is_file():
            raise InputError.at(path, None, "no such file")
        runs.setdefault(name, NamedRun(name)).files.setdefault(kind, []).append(Path(path))
    if not runs:
        raise InputError("no files given: --files NAME:KIND=PATH ...")
    return list(runs.values())


@dataclass(frozen=True)
class RunScores:
    """Pass@1 in per cent. ``pass1_SPT`` is NaN where every sample met an infrastructure failure."""

    ids: tuple[str, ...]
    pass1_SPT: np.ndarray
    excluded: int
    """Samples left out because of infrastructure failures."""

    @property
    def turns(self) -> int:
        """Number of turns, the first program included."""
        return self.pass1_SPT.shape[2]

    @property
    def repetitions_ST(self) -> np.ndarray:
        """Mean over problems of each repetition by itself."""
        return nanmean(self.pass1_SPT, 1)

    @cached_property
    def pass1_T(self) -> list[Estimate | None]:
        """Mean over problems and repetitions by turn; None at a turn without a value."""
        return estimates(map(hierarchical_mean, np.moveaxis(self.pass1_SPT, 2, 0)))

    def gained(self, first: int, last: int) -> Resampled | None:
        """Difference between two turns of the same conversations; None if there is no such turn."""
        if last >= self.turns:
            return None
        return hierarchical_mean(self.pass1_SPT[:, :, last] - self.pass1_SPT[:, :, first])

    def minus(self, other: "RunScores") -> list[Resampled | None]:
        """Difference by turn, of the turns that both have, paired on the problems that both have."""
        ours_SPT, theirs_SPT = paired(self, other)
        return list(map(hierarchical_mean, np.moveaxis(ours_SPT, 2, 0), np.moveaxis(theirs_SPT, 2, 0)))


def estimates(resampled: Iterable[Resampled | None]) -> list[Estimate | None]:
    """Values with intervals."""
    return [None if found is None else found.estimate for found in resampled]


def paired(first: RunScores, second: RunScores) -> tuple[np.ndarray, np.ndarray]:
    """Values [S, P, T] of each, at the problems and the turns that both have."""
    places = {id_: index for index, id_ in enumerate(second.ids)}
    common = [(index, places[id_]) for index, id_ in enumerate(first.ids) if id_ in places]
    rows_1, rows_2 = ([pair[side] for pair in common] for side in (0, 1))
    turns = min(first.turns, second.turns)
    return first.pass1_SPT[:, rows_1, :turns], second.pass1_SPT[:, rows_2, :turns]


def run_scores(evaluations: Sequence[Evaluation], kind: str) -> RunScores:
    """Pass@1 by problem and turn, over all repetitions (at least one).

    Raises ``InputError``, also for runs whose feedback came from other tests than ``kind`` says.
    """
    repetitions = [_percent_solved(evaluation, kind) for evaluation in evaluations]
    turns = {len(row_T) for solved in repetitions for row_T in solved.values()}
    if len(turns) != 1:
        path = evaluations[0].path
        raise InputError.at(path, None, f"runs of one name with different numbers of turns: {sorted(turns)}")
    ids = tuple(dict.fromkeys(id_ for solved in repetitions for id_ in solved))
    nothing = np.full(turns.pop(), np.nan)
    solved_SPT = np.array([[solved.get(id_, nothing) for id_ in ids] for solved in repetitions])
    return RunScores(ids, solved_SPT, sum(problem.excluded for found in evaluations for problem in found.problems))


def _percent_solved(evaluation: Evaluation, kind: str) -> dict[str, np.ndarray]:
    """Per cent of solved samples by problem (T values)."""
    tests = FEEDBACK_TESTS[kind]
    if evaluation.feedback_tests not in (None, tests):
        wrong = f"its feedback came from the {evaluation.feedback_tests} tests: not a '{kind}' file"
        raise InputError.at(evaluation.path, None, wrong)
    turns = max((problem.turns for problem in evaluation.problems), default=0)
    if not turns:
        raise InputError.at(evaluation.path, None, "no evaluated problems in this file")
    nothing = np.full(turns, np.nan)
    return {
        id_key(problem.id): 100 * (np.array(problem.solved_T) / problem.samples) if problem.samples else nothing
        for problem in evaluation.problems
    }


def read_hacking(paths: Iterable[Path]) -> list[list[dict[str, Any]]]:
    """Per repetition the problem records beside each cases file (``<cases>.problems.jsonl``)."""
    return [list(read_jsonl(f"{path}.problems.jsonl", HACKING_FIELDS)) for path in paths]


def read_judged(paths: Iterable[Path]) -> list[list[dict[str, Any]]]:
    """Judged cases of each repetition."""
    return [
        list(read_jsonl(path, ("judge_seq_id", "id", "majority"), unique="judge_seq_id", may_be_empty=True))
        for path in paths
    ]


def read_bills(paths: Iterable[Path]) -> list[Bill]:
    """One bill per repetition."""
    return [read_bill(path) for path in paths]


def read_logs(paths: Iterable[Path]) -> list[TrainingLog]:
    """One training log per repetition."""
    return [read_training_log(path) for path in paths]
