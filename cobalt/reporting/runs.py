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
from cobalt.evaluation.scores import ProblemScores, problem_scores, read_scores
from cobalt.hacking.rates import COUNTED
from cobalt.records import id_key, read_jsonl
from cobalt.reporting.bill import Bill, read_bill
from cobalt.reporting.training_log import TrainingLog, read_training_log
from cobalt.statistics import Estimate, Resampled, hierarchical_mean, nanmean

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
FEEDBACK_TESTS = {"clean": "public", "shifted": "public", "perturbed": "perturbed"}
"""The records' ``feedback_tests`` in files of a kind; released files carry no such label."""


@dataclass
class NamedRun:
    """One named run. Each list has one entry per repetition."""

    name: str
    files: dict[str, list[Path]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Path]:
        """Files of one kind, in the order given."""
        return self.files.get(kind, [])


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


def read_run_scores(paths: Sequence[Path], condition: str) -> RunScores:
    """Pass@1 by problem and turn, over all repetitions (at least one).

    Raises ``InputError``, also for runs whose feedback came from other tests than ``condition`` (a kind of file) says.
    """
    repetitions, excluded = [], 0
    for path in paths:
        solved, missing = _read_evaluation(path, condition)
        repetitions.append(solved)
        excluded += missing
    turns = {len(row_T) for solved in repetitions for row_T in solved.values()}
    if len(turns) != 1:
        raise InputError.at(paths[0], None, f"runs of one name with different numbers of turns: {sorted(turns)}")
    ids = tuple(dict.fromkeys(id_ for solved in repetitions for id_ in solved))
    nothing = np.full(turns.pop(), np.nan)
    solved_SPT = np.array([[solved.get(id_, nothing) for id_ in ids] for solved in repetitions])
    return RunScores(ids, solved_SPT, excluded)


def _read_evaluation(path: Path, condition: str) -> tuple[dict[str, np.ndarray], int]:
    """Per cent of solved samples by problem (T values), and the number of samples left out."""
    tests = FEEDBACK_TESTS[condition]

    def scores_of(record: dict[str, Any]) -> ProblemScores:
        if record.get("feedback_tests", tests) != tests:
            raise ValueError(f"its feedback came from the {record['feedback_tests']} tests: not a '{condition}' file")
        return problem_scores(record)

    problems = read_scores(path, scores_of)
    turns = max((problem.turns for problem in problems), default=0)
    if not turns:
        raise InputError.at(path, None, "no evaluated problems in this file")
    nothing = np.full(turns, np.nan)
    solved = {
        id_key(problem.id): 100 * np.mean(problem.solved_NT, axis=0) if problem.solved_NT else nothing
        for problem in problems
    }
    return solved, sum(problem.excluded for problem in problems)


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
