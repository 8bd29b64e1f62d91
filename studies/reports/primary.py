"""The primary endpoint, mean Pass@1 of turns 1 to 8, and one family of tests on it: the method against trained runs.

The baseline is not trained, so its test is outside the family, as are ``--pairs``. Two tests answer each question:
the resamples over problems and repetitions, and, as a check on them, Welch's t-test over the repetitions alone.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cobalt.errors import InputError
from cobalt.statistics import RESAMPLES, hierarchical_mean, holm, nanmean, welch_p_value
from cobalt.tables import Cell, Table
from studies.reports.material import CONDITIONS, Material
from studies.reports.runs import NamedRun, RunScores, paired

FIRST, LAST = 1, 8
"""Turns of the endpoint: all programs that follow feedback. Where fewer were measured, those that were."""


def parse_pairs(specs: Sequence[str], runs: Sequence[NamedRun]) -> list[tuple[str, str]]:
    """``FIRST=SECOND`` texts. Raises ``InputError``."""
    names = {run.name for run in runs}
    pairs = []
    for spec in specs:
        first, _, second = spec.partition("=")
        if not {first, second} <= names or first == second:
            raise InputError(f"--pairs {spec}: not FIRST=SECOND with two of the runs {', '.join(sorted(names))}")
        pairs.append((first, second))
    return pairs


def primary_tables(material: Material, condition: str) -> Iterator[Table]:
    """The endpoint of each run, and its tests, where there is a turn after the first."""
    scores = material.scores[condition]
    last = min([LAST, *(score.turns - 1 for score in scores.values())])
    if not scores or last < FIRST:
        return
    what = f"mean Pass@1 of turns {FIRST} to {last}, {CONDITIONS[condition]}"
    yield Table(
        f"primary_{condition}",
        f"Primary endpoint: {what} (%)",
        "With 95 % intervals over problems and repetitions (training seeds), each of which stands apart.",
        ("run", "problems", "mean", "of each repetition"),
        [
            [
                name,
                len(score.ids),
                _estimate(score, last),
                ", ".join(f"{value:.1f}" for value in _of_repetitions(_endpoint(score.pass1_SPT, last))),
            ]
            for name, score in scores.items()
        ],
    )
    rows = _test_rows(material, scores, last)
    if rows:
        yield Table(
            f"primary_tests_{condition}",
            f"Tests of the primary endpoint, {CONDITIONS[condition]} (points)",
            f"Paired by problem. p: two-sided, from the {RESAMPLES:,} resamples of problems and repetitions that make "
            f"the interval: none can be below {2 / (RESAMPLES + 1):.1g}. Holm: the same, corrected for the number of "
            f"runs that the method is compared with on this set, {material.baseline} and further pairs left out. "
            "Welch: t-test over repetitions, where both have two.",
            ("run", "over", "problems", "difference", "p", "Holm", "Welch"),
            rows,
        )


def _endpoint(values_SPT: np.ndarray, last: int) -> np.ndarray:
    """[S, P]"""
    return values_SPT[:, :, FIRST : last + 1].mean(axis=2)


def _of_repetitions(values_SP: np.ndarray) -> list[float]:
    return nanmean(values_SP, 1).tolist()


def _estimate(score: RunScores, last: int) -> Cell:
    found = hierarchical_mean(_endpoint(score.pass1_SPT, last))
    return found and found.estimate


def _test_rows(material: Material, scores: Mapping[str, RunScores], last: int) -> list[list[Cell]]:
    """The method against each run, then the further pairs."""
    method = material.method
    own = [] if method is None else [(method, name) for name in scores if name != method]
    pairs = [pair for pair in dict.fromkeys((*own, *material.pairs)) if scores.keys() >= set(pair)]
    values = {pair: [_endpoint(of_run, last) for of_run in paired(*(scores[name] for name in pair))] for pair in pairs}
    found = {pair: hierarchical_mean(ours_SP, theirs_SP) for pair, (ours_SP, theirs_SP) in values.items()}
    p_values = {pair: difference and difference.p_value for pair, difference in found.items()}
    family = {pair: p for pair, p in p_values.items() if pair in own and pair[1] != material.baseline and p is not None}
    corrected = dict(zip(family, holm(list(family.values())), strict=True))
    rows: list[list[Cell]] = []
    for pair in pairs:
        difference, seeds = found[pair], [_of_repetitions(of_run) for of_run in values[pair]]
        estimate = difference and difference.estimate
        problems = values[pair][0].shape[1]
        rows.append([*pair, problems, estimate, p_values[pair], corrected.get(pair), welch_p_value(*seeds)])
    return rows
