"""Named runs and their result files, read once into what the tables are made of.

A run is a policy under one name. Several files of one kind are its repetitions (training seeds). Shapes: P problems,
S repetitions, T turns. A problem's value is the mean over its samples, then over the repetitions that have it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cobalt.errors import InputError
from cobalt.evaluation.files import Evaluation, Source, read_evaluations, source_of, verdict_rule
from cobalt.evaluation.summary import Repeats, repeats_at
from cobalt.hacking.rates import COUNTED
from cobalt.records import id_key, read_jsonl
from cobalt.records.training_run import METRICS_FILE, training_manifest
from cobalt.statistics import Estimate
from research.reports.bill import Bill, read_bill
from research.reports.learning import LearningLog, read_learning_log
from research.reports.page import Table, table_of
from research.seeds import Resampled, hierarchical_mean, nanmean

T = TypeVar("T")
KINDS = ("clean", "shifted", "perturbed", "hacking", "judged", "log", "control", "cost")
"""``ReportConfig.files`` says what each of them is."""
EVALUATED = ("clean", "shifted", "perturbed", "control")
"""Kinds of evaluated files; a counts file may stand for any number of them."""
CONDITIONS = {"clean": "clean feedback", "shifted": "shifted test set", "perturbed": "perturbed feedback"}
"""What Pass@1 was measured under; it is on clean hidden tests in all of them."""
SETS = ("clean", "shifted")
"""Conditions of the main results."""
NEEDED = {"judged": "hacking", "control": "clean"}
"""Kinds of files that say nothing without another."""
MATCHED = (("judged", "hacking"), ("log", "cost"), ("perturbed", "clean"))
"""Kinds whose files belong together one by one, where a run has both."""


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
        files = runs.setdefault(name, NamedRun(name)).files.setdefault(kind, [])
        if Path(path).resolve() in (file.resolve() for file in files):
            raise InputError.at(path, None, f"given twice for {head}; each repetition has a file of its own")
        files.append(Path(path))
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

    @cached_property
    def pass1_T(self) -> list[Estimate | None]:
        """Mean over problems and repetitions by turn; None at a turn without a value."""
        return estimates(map(hierarchical_mean, np.moveaxis(self.pass1_SPT, 2, 0)))

    def gained(self, first: int, last: int) -> Resampled | None:
        """Difference between two turns of the same conversations; None if there is no such turn."""
        if last >= self.turns:
            return None
        return hierarchical_mean(self.pass1_SPT[:, :, last] - self.pass1_SPT[:, :, first])


def estimates(resampled: Iterable[Resampled | None]) -> list[Estimate | None]:
    """Values with intervals."""
    return [None if found is None else found.estimate for found in resampled]


def each_repetition(values_SP: np.ndarray) -> str:
    """Mean over problems of each repetition by itself: few repetitions say little about others, so all are listed."""
    return ", ".join(f"{value:.1f}" for value in nanmean(values_SP, 1))


def paired(first: RunScores, second: RunScores) -> tuple[np.ndarray, np.ndarray]:
    """Values [S, P, T] of each, at the problems and the turns that both have."""
    places = {id_: index for index, id_ in enumerate(second.ids)}
    common = [(index, places[id_]) for index, id_ in enumerate(first.ids) if id_ in places]
    rows_1, rows_2 = ([pair[side] for pair in common] for side in (0, 1))
    turns = min(first.turns, second.turns)
    return first.pass1_SPT[:, rows_1, :turns], second.pass1_SPT[:, rows_2, :turns]


def run_scores(evaluations: Sequence[Evaluation], kind: str) -> RunScores:
    """Pass@1 by problem and turn, over all repetitions (at least one).

    Raises ``InputError``, also for runs whose feedback was another than ``kind`` says. Released files carry no label.
    """
    repetitions: list[dict[str, np.ndarray]] = []
    for found in evaluations:
        if found.feedback_tests not in (None, "perturbed" if kind == "perturbed" else "public"):
            wrong = f"its feedback came from the {found.feedback_tests} tests: not a '{kind}' file"
            raise InputError.at(found.path, None, wrong)
        if found.feedback_from not in (None, "other_problem" if kind == "control" else "own"):
            raise InputError.at(found.path, None, f"--feedback_from {found.feedback_from}: not a '{kind}' file")
        turns = max((problem.turns for problem in found.problems), default=0)
        if not turns:
            raise InputError.at(found.path, None, "no evaluated problems in this file")
        nothing = np.full(turns, np.nan)
        solved = {
            id_key(problem.id): 100 * (np.array(problem.solved_T) / problem.samples) if problem.samples else nothing
            for problem in found.problems
        }
        repetitions.append(solved)
    widths = {len(row_T) for solved in repetitions for row_T in solved.values()}
    if len(widths) != 1:
        path = evaluations[0].path
        raise InputError.at(path, None, f"runs of one name with different numbers of turns: {sorted(widths)}")
    ids = tuple(dict.fromkeys(id_ for solved in repetitions for id_ in solved))
    nothing = np.full(widths.pop(), np.nan)
    solved_SPT = np.array([[solved.get(id_, nothing) for id_ in ids] for solved in repetitions])
    return RunScores(ids, solved_SPT, sum(problem.excluded for found in evaluations for problem in found.problems))


@dataclass(frozen=True)
class Material:
    """Everything that a report is made of, by run name, in the order of the runs; lists by repetition."""

    baseline: str
    method: str | None
    """The run that is tested against all others; None: no such test."""
    pairs: Sequence[tuple[str, str]]
    """Further runs that are tested against one another."""
    scores: dict[str, dict[str, RunScores]]
    """``scores[condition][run]``."""
    rules: dict[str, str]
    """What decided the verdicts, by condition."""
    controls: dict[str, RunScores]
    """Scores under another problem's feedback."""
    repeats: dict[str, list[tuple[Repeats, Repeats]]]
    """Of the clean files beside a control: what programs repeat at turn 1 and at the last."""
    hacking: dict[str, list[list[dict[str, Any]]]]
    """Problem records."""
    judged: dict[str, list[list[dict[str, Any]]]]
    """Judged cases."""
    logs: dict[str, list[LearningLog]]
    bills: dict[str, list[Bill]]


def read_material(
    runs: Sequence[NamedRun], baseline: str, method: str | None = None, pairs: Sequence[str] = ()
) -> Material:
    """Read the files of all runs; ``pairs`` are FIRST=SECOND texts. Raises ``InputError``."""
    names = {run.name for run in runs}
    for flag, name in (("baseline", baseline), ("method", method)):
        if name is not None and name not in names:
            raise InputError(f"--{flag} {name}: no run has this name")
    parsed = [(spec.partition("=")[0], spec.partition("=")[2]) for spec in pairs]
    for first, second in parsed:
        if not {first, second} <= names or first == second:
            wanted = f"not FIRST=SECOND with two of the runs {', '.join(sorted(names))}"
            raise InputError(f"--pairs {first}={second}: {wanted}")
    for run in runs:
        for kind, other in NEEDED.items():
            if run.of(kind) and not run.of(other):
                raise InputError(f"run {run.name}: '{kind}' files need '{other}' files beside them")
        for kind, other in MATCHED:
            ours, theirs = len(run.sources(kind)), len(run.sources(other))
            if ours and theirs and ours != theirs:
                raise InputError(
                    f"run {run.name}: {ours} '{kind}' files and {theirs} '{other}' files; each needs the other"
                )

    def scores_of(kind: str) -> dict[str, RunScores]:
        return {run.name: run_scores(run.evaluations[kind], kind) for run in runs if run.of(kind)}

    def read(kind: str, read_file: Callable[[Path], T]) -> dict[str, list[T]]:
        return {run.name: [read_file(path) for path in run.of(kind)] for run in runs if run.of(kind)}

    cases = (*("id", *COUNTED), "opportunities_by_turn", "cases")
    judgements = ("judge_seq_id", "id", "majority")
    hacking = read("hacking", lambda path: list(read_jsonl(f"{path}.problems.jsonl", cases)))
    judged = read("judged", lambda path: list(read_jsonl(path, judgements, "judge_seq_id", may_be_empty=True)))
    for run in runs:
        read_files = (of_kind.get(run.name, []) for of_kind in (judged, hacking))
        for path, votes, records in zip(run.of("judged"), *read_files, strict=False):
            cases_found = [case for record in records for case in record["cases"]]
            names = {f"{case['id']}-{case['trajectory']}-{case['turn']}" for case in cases_found}
            if other := names ^ {vote["judge_seq_id"] for vote in votes}:
                raise InputError.at(path, None, f"judges other cases than the 'hacking' file has, such as {min(other)}")
            if missing := [vote["judge_seq_id"] for vote in votes if vote["majority"] is None]:
                told = f"case {missing[0]} has no majority, as a vote failed; run_llm_judge.py again asks for it"
                raise InputError.at(path, None, told)
    return Material(
        baseline,
        method,
        parsed,
        scores={condition: scores_of(condition) for condition in CONDITIONS},
        rules={
            condition: recorded_rule(source for run in runs for source in run.sources(condition))
            for condition in CONDITIONS
        },
        controls=scores_of("control"),
        repeats={
            run.name: [_first_and_last_repeats(found) for found in run.evaluations["clean"]]
            for run in runs
            if run.of("control")
        },
        hacking=hacking,
        judged=judged,
        logs=read("log", read_learning_log),
        bills=read("cost", read_bill),
    )


def recorded_rule(sources: Iterable[Source]) -> str:
    """``verdict_rule`` of evaluated files; several sentences if they differ."""
    return " ".join(dict.fromkeys(verdict_rule(source.execution) for source in sources))


def _first_and_last_repeats(evaluation: Evaluation) -> tuple[Repeats, Repeats]:
    problems = [problem for problem in evaluation.problems if problem.samples]
    turns = max((problem.turns for problem in problems), default=0)
    if turns < 2:
        raise InputError.at(evaluation.path, None, "holds a single turn: nothing to compare a 'control' file with")
    return repeats_at(problems, 1), repeats_at(problems, turns - 1)


def origin_tables(runs: Sequence[NamedRun]) -> tuple[Table, Table]:
    """Which files were given, and where they come from: model, sampling, seed and commit, as their manifests say."""
    kinds = [kind for kind in KINDS if any(run.of(kind) for run in runs)]
    files = table_of(
        "files",
        "Files of each run",
        "A run is missing from the tables of kinds that it has no file of. A counts file is as many as it stands for.",
        [{"run": run.name, **{kind: len(run.sources(kind)) or None for kind in kinds}} for run in runs],
    )
    origins = table_of(
        "origins",
        "Where the numbers come from",
        "From the manifests of the files, and of those that they were made from.",
        [
            {
                "run": run.name,
                "kind": kind,
                "file": source.file,
                "model": source.model,
                "sampling": ", ".join(f"{name} {value}" for name, value in (source.sampling or {}).items()) or None,
                "seed": source.seed,
                "checker": source.checker,
                "commit": source.commit,
            }
            for run in runs
            for kind in run.files
            for source in run.sources(kind)
        ],
    )
    return files, origins
