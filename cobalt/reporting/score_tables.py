"""Tables of Pass@1.

Intervals are 95 % bootstrap intervals over problems: they say how far another sample of problems could lie, not how
far another training seed could; the repetitions are therefore listed too.
"""

import numpy as np

from cobalt.reporting.material import CONDITIONS, Material, mean, mean_of
from cobalt.reporting.runs import RunScores
from cobalt.tables import PERCENT, Cell, Table


def pass1_table(material: Material, condition: str) -> Table:
    """Pass@1 on hidden tests by turn."""
    scores = material.scores[condition]
    turns = max(score.turns for score in scores.values())
    rows: list[list[Cell]] = []
    for name, score in scores.items():
        cells = [mean_of(values_P) for values_P in score.pass1_PT.T]
        last = ", ".join(f"{value:.1f}" for value in score.repetitions_ST[:, -1])
        rows.append([name, len(score.ids), *_padded(cells, turns), last, score.excluded])
    return Table(
        f"pass1_{condition}",
        f"Pass@1 by turn, feedback from {CONDITIONS[condition]} (%)",
        "Share of programs that pass all hidden tests, with 95 % intervals over problems. Turn t has seen t feedbacks; "
        "turn 0 is the first program. Repetitions (training seeds) are averaged; their last turns stand apart. "
        f"Samples with an infrastructure failure are excluded. {material.rules[condition]}",
        ("run", "problems", *_turn_names(turns), "last turn of each repetition", "excluded"),
        rows,
    )


def gain_table(material: Material, condition: str) -> Table | None:
    """Difference to the baseline by turn, paired by problem; None where there is nothing to compare."""
    scores = material.scores[condition]
    base = scores.get(material.baseline)
    others = {name: score for name, score in scores.items() if name != material.baseline}
    if base is None or not others:
        return None
    rows: list[list[Cell]] = []
    for name, score in others.items():
        before_PT, after_PT = paired(base, score)
        cells = [mean_of(values_P) for values_P in (after_PT - before_PT).T]
        rows.append([name, len(before_PT), *_padded(cells, base.turns)])
    return Table(
        f"gain_{condition}",
        f"Difference to {material.baseline}, feedback from {CONDITIONS[condition]} (points)",
        "Paired by problem; an interval that excludes 0 shows a difference on problems of this kind.",
        ("run", "problems", *_turn_names(base.turns)),
        rows,
    )


def perturbation_cost_table(material: Material) -> Table | None:
    """What wrong feedback costs at the last turn, on the problems that both conditions have."""
    clean, perturbed = material.scores["clean"], material.scores["perturbed"]
    rows: list[list[Cell]] = []
    for name in (name for name in clean if name in perturbed):
        clean_P, perturbed_P = (values_PT[:, -1] for values_PT in paired(clean[name], perturbed[name]))
        rows.append([name, len(clean_P), mean_of(clean_P), mean_of(perturbed_P), mean_of(perturbed_P - clean_P)])
    if not rows:
        return None
    return Table(
        "perturbation_cost",
        "What wrong feedback costs at the last turn (Pass@1, %)",
        "The same problems under both kinds of feedback, paired.",
        ("run", "problems", "clean", "perturbed", "perturbed − clean"),
        rows,
    )


def repair_table(material: Material) -> Table | None:
    """What is gained by reading feedback, and which failed programs are repeated."""
    rows: list[list[Cell]] = []
    for name, control in material.controls.items():
        own = material.scores["clean"][name]
        last = control.turns - 1
        gains_P = [score.pass1_PT[:, last] - score.pass1_PT[:, 0] for score in (own, control)]
        repeated = [_repeated(material, name, place) for place in (0, -1)]
        rows.append([name, last, *map(mean_of, gains_P), *repeated])
    if not rows:
        return None
    return Table(
        "repair",
        "Gained by reading feedback, and repeated programs",
        "Gains in points from turn 0 to the turn named: with the own feedback, and with that of another problem, where "
        "what is gained by reading must vanish. Share of failed programs that the next turn repeats, in per cent: "
        "after the first feedback, and after the last.",
        ("run", "to turn", "own feedback", "another problem's", "repeats, first", "repeats, last"),
        rows,
    )


def _repeated(material: Material, name: str, place: int) -> Cell:
    """Mean over the repetitions in which a program failed."""
    shares = [summary.repeats[place].after_failure.estimate for summary in material.repeats[name]]
    values = [share.value for share in shares if share is not None]
    return PERCENT * mean(values) if values else None


def paired(first: RunScores, second: RunScores) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the problems that both have, and the turns that both have."""
    places = {id_: index for index, id_ in enumerate(second.ids)}
    common = [(index, places[id_]) for index, id_ in enumerate(first.ids) if id_ in places]
    rows_1, rows_2 = ([pair[side] for pair in common] for side in (0, 1))
    turns = min(first.turns, second.turns)
    return first.pass1_PT[rows_1, :turns], second.pass1_PT[rows_2, :turns]


def _turn_names(turns: int) -> tuple[str, ...]:
    return tuple(f"turn {turn}" for turn in range(turns))


def _padded(cells: list, length: int) -> list[Cell]:
    return cells + [None] * (length - len(cells))
