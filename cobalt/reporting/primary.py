"""The primary endpoint, mean Pass@1 of turns 1 to 8, and one family of tests on it: the method against trained runs.

The baseline is not trained, so its test is outside the family, as are ``--pairs``. Two tests answer each question:
the resamples over problems and repetitions, and, as a check on them, Welch's t-test over the repetitions alone.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from cobalt.errors import InputError
from cobalt.reporting.material import CONDITIONS, Material
from cobalt.reporting.runs import NamedRun, RunScores, mean_difference, paired
from cobalt.statistics import RESAMPLES, hierarchical_mean, holm, nanmean, welch_p_value
from cobalt.tables import Cell, Table

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
            [name, len(score.ids), _estimate(score, last), ", ".join(f"{v:.1f}" for v in _of_repetitions(score, last))]
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


def _of_repetitions(score: RunScores, last: int) -> np.ndarray:
    return nanmean(score.pass1_SPT[:, :, FIRST : last + 1].mean(axis=2), 1)


def _estimate(score: RunScores, last: int) -> Cell:
    found = hierarchical_mean(score.pass1_SPT[:, :, FIRST : last + 1].mean(axis=2))
    return found and found.estimate


def _test_rows(material: Material, scores: dict[str, RunScores], last: int) -> list[list[Cell]]:
    method = material.method
    own = [(method, name) for name in scores if name != method] if method in scores else []
    pairs = [pair for pair in (*own, *material.pairs) if scores.keys() >= set(pair)]
    found = [mean_difference(scores[first], scores[second], FIRST, last) for first, second in pairs]
    p_values = [difference and difference.p_value for difference in found]
    family = [
        place
        for place, pair in enumerate(pairs[: len(own)])
        if p_values[place] is not None and pair[1] != material.baseline
    ]
    corrected = dict(zip(family, holm([p_values[place] or 0.0 for place in family]), strict=True))
    rows: list[list[Cell]] = []
    for place, (first, second) in enumerate(pairs):
        ours_SP, theirs_SP = (v[:, :, FIRST : last + 1].mean(axis=2) for v in paired(scores[first], scores[second]))
        difference = found[place]
        rows.append(
            [
                first,
                second,
                ours_SP.shape[1],
                difference and difference.estimate,
                p_values[place],
                corrected.get(place),
                welch_p_value(nanmean(ours_SP, 1), nanmean(theirs_SP, 1)),
            ]
        )
    return rows
