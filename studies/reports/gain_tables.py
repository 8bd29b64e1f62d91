"""Tables of differences in Pass@1: to the baseline, of the method to every other run, and beyond the turns of training.

All are paired by problem, with 95 % intervals over problems and repetitions (training seeds).
"""

from cobalt.evaluation.summary import GAIN_TO_TURN
from cobalt.statistics import Resampled, hierarchical_mean
from cobalt.tables import Cell, Table
from studies.reports.material import CONDITIONS, Material
from studies.reports.runs import RunScores, estimates, paired
from studies.reports.score_tables import padded, turn_names

Gains = dict[str, list[Resampled | None]]
"""Differences in points by run and turn."""
LAST_PLAYED = 2
"""Last turn of a trajectory that is learned from, whether it is played by the reference model or by the policy."""
LAST_LEARNED = GAIN_TO_TURN
"""Last turn that any method learns from: Cobalt completes contexts that hold a whole trajectory."""


def gains_over_baseline(material: Material, condition: str) -> Gains:
    """Of each other run; {} where the baseline has no file of this condition."""
    scores = material.scores[condition]
    base = scores.get(material.baseline)
    if base is None:
        return {}
    return {name: score.minus(base) for name, score in scores.items() if name != material.baseline}


def gain_table(material: Material, condition: str, gains: Gains) -> Table | None:
    """Difference to the baseline by turn, paired by problem; None where there is nothing to compare."""
    if not gains:
        return None
    return Table(
        f"gain_{condition}",
        f"Difference to {material.baseline}, {CONDITIONS[condition]} (points)",
        "Paired by problem, with 95 % intervals over problems and repetitions; one that excludes 0 shows a difference.",
        ("run", "problems", *turn_names(_turns(gains))),
        _gain_rows(material, condition, material.baseline, gains),
    )


def method_table(material: Material, condition: str) -> Table | None:
    """Gains of the method over every other run; None without a method."""
    scores = material.scores[condition]
    method = material.method
    if method is None or method not in scores:
        return None
    gains = {name: scores[method].minus(score) for name, score in scores.items() if name != method}
    if not gains:
        return None
    return Table(
        f"method_gain_{condition}",
        f"Gain of {method} over each run, {CONDITIONS[condition]} (points)",
        "Paired by problem, with 95 % intervals over problems and repetitions. Not corrected for their number: what is "
        "tested is the primary endpoint.",
        ("over", "problems", *turn_names(_turns(gains))),
        _gain_rows(material, condition, method, gains),
    )


def _gain_rows(material: Material, condition: str, other: str, gains: Gains) -> list[list[Cell]]:
    scores = material.scores[condition]
    problems = {name: paired(scores[name], scores[other])[0].shape[1] for name in gains}
    return [[name, problems[name], *padded(estimates(gains_T), _turns(gains))] for name, gains_T in gains.items()]


def horizon_table(material: Material, condition: str) -> Table | None:
    """Gains at turns that were learned from and at later ones; None where no later turn was measured."""
    scores = material.scores[condition]
    last = max((score.turns for score in scores.values()), default=0) - 1
    if last <= LAST_PLAYED:
        return None
    spans = _spans(last)
    base = scores.get(material.baseline)
    others = {name: None if name == material.baseline else base for name in scores}
    rows: list[list[Cell]] = [
        [
            name,
            *estimates(score.gained(max(first - 1, 0), to) for first, to in spans),
            *estimates(_mean_difference(score, others[name], first, to) for first, to in spans),
        ]
        for name, score in scores.items()
    ]
    return Table(
        f"horizon_{condition}",
        f"Turns that were learned from and later ones, {CONDITIONS[condition]} (points)",
        f"Gained: between two turns, of the same conversations. Over {material.baseline}: mean difference at these "
        f"turns. Multi-turn training learns from turns 0 to {LAST_PLAYED}, and from turn {LAST_LEARNED} where contexts "
        f"hold {LAST_LEARNED} programs, as Cobalt's; single-turn training from turn 0; none from later turns. Where "
        "Pass@1 comes near 100 %, little is left to gain.",
        (
            "run",
            *(f"gained, turn {max(first - 1, 0)} to {to}" for first, to in spans),
            *(f"over {material.baseline}, {_turns_text(first, to)}" for first, to in spans),
        ),
        rows,
    )


def _spans(last: int) -> list[tuple[int, int]]:
    """First and last turn of: what all learn from, what contexts add, the rest."""
    ends = (LAST_PLAYED, LAST_LEARNED, last)
    starts = (0, LAST_PLAYED + 1, LAST_LEARNED + 1)
    return [(first, to) for first, to in zip(starts, ends, strict=True) if first <= last]


def _turns_text(first: int, to: int) -> str:
    return f"turn {to}" if first == to else f"turns {first} to {to}"


def _mean_difference(score: RunScores, base: RunScores | None, first: int, to: int) -> Resampled | None:
    """Of the mean over turns; None without a base, or if one of the two has not all of these turns."""
    if base is None or min(score.turns, base.turns) <= to:
        return None
    return hierarchical_mean(*(values_SPT[:, :, first : to + 1].mean(axis=2) for values_SPT in paired(score, base)))


def _turns(gains: Gains) -> int:
    return max(map(len, gains.values()))
