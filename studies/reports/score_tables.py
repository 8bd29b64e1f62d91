"""Tables of Pass@1.

Intervals are 95 % bootstrap intervals over problems and, where a run has several repetitions (training seeds), over
these too: how far another sample of both could lie. Few repetitions say little about others, so each one is listed too.
"""

from collections.abc import Sequence

from cobalt.statistics import hierarchical_mean
from cobalt.tables import PERCENT, Cell, Table
from studies.reports.material import CONDITIONS, Material, mean
from studies.reports.runs import estimates, paired


def pass1_table(material: Material, condition: str) -> Table | None:
    """Pass@1 on hidden tests by turn."""
    scores = material.scores[condition]
    if not scores:
        return None
    turns = max(score.turns for score in scores.values())
    rows: list[list[Cell]] = []
    for name, score in scores.items():
        last = ", ".join(f"{value:.1f}" for value in score.repetitions_ST[:, -1])
        rows.append([name, len(score.ids), *padded(score.pass1_T, turns), last, score.excluded])
    return Table(
        f"pass1_{condition}",
        f"Pass@1 by turn, {CONDITIONS[condition]} (%)",
        "Share of programs that pass all hidden tests, with 95 % intervals over problems and repetitions (training "
        "seeds). Turn t has seen t feedbacks; turn 0 is the first program. Repetitions are averaged; their last turns "
        f"stand apart. Samples with an infrastructure failure are excluded. {material.rules[condition]}",
        ("run", "problems", *turn_names(turns), "last turn of each repetition", "excluded"),
        rows,
    )


def perturbation_cost_table(material: Material) -> Table | None:
    """What wrong feedback costs at the last turn, on the problems that both conditions have."""
    clean, perturbed = material.scores["clean"], material.scores["perturbed"]
    rows: list[list[Cell]] = []
    for name in (name for name in clean if name in perturbed):
        clean_SP, perturbed_SP = (values_SPT[:, :, -1] for values_SPT in paired(clean[name], perturbed[name]))
        means = estimates(map(hierarchical_mean, (clean_SP, perturbed_SP, perturbed_SP - clean_SP)))
        rows.append([name, clean_SP.shape[1], *means])
    if not rows:
        return None
    return Table(
        "perturbation_cost",
        "What wrong feedback costs at the last turn (Pass@1, %)",
        "The same problems and repetitions under both kinds of feedback, paired.",
        ("run", "problems", "clean", "perturbed", "perturbed − clean"),
        rows,
    )


def repair_table(material: Material) -> Table | None:
    """What is gained by reading feedback, and which failed programs are repeated."""
    rows: list[list[Cell]] = []
    for name, control in material.controls.items():
        own = material.scores["clean"][name]
        last = control.turns - 1
        gains = estimates(score.gained(0, last) for score in (own, control))
        rows.append([name, last, *gains, *(_repeated(material, name, place) for place in (0, 1))])
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
    """Mean over the repetitions in which a program failed; ``place``: turn 1, or the last."""
    shares = [ends[place].after_failure.estimate for ends in material.repeats[name]]
    values = [share.value for share in shares if share is not None]
    return PERCENT * mean(values) if values else None


def turn_names(turns: int) -> tuple[str, ...]:
    """Columns of a table by turn."""
    return tuple(f"turn {turn}" for turn in range(turns))


def padded(cells: Sequence[Cell], length: int) -> list[Cell]:
    """With empty cells for the turns that are missing."""
    return [*cells, *[None] * (length - len(cells))]
