"""Tables of Pass@1: by turn, its differences, the primary endpoint and its tests, repair, the cost of wrong feedback.

Intervals are 95 % intervals over problems and, where a run has several repetitions (training seeds), over these too:
how far another sample of both could lie (``research/seeds.py``). Differences are paired by problem.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cobalt.evaluation.summary import GAIN_TO_TURN
from cobalt.statistics import RESAMPLES
from cobalt.tables import PERCENT, Cell
from research.reports.p_values import holm
from research.reports.page import Table, mean, table_of
from research.reports.runs import CONDITIONS, Material, each_repetition, estimates, paired
from research.seeds import FEW_TRAININGS, hierarchical_mean

LAST_PLAYED = 2
"""Last turn of a trajectory that is learned from, whether it is played by the reference model or by the policy."""
LAST_LEARNED = GAIN_TO_TURN
"""Last turn that any method learns from: Cobalt completes contexts that hold a whole trajectory."""
ENDPOINT = (1, 8)
"""First and last turn of the primary endpoint: all programs that follow feedback, or those that were measured."""


def by_turn(cells: Sequence[Cell]) -> dict[str, Cell]:
    """Cells of a row, by column."""
    return {f"turn {turn}": cell for turn, cell in enumerate(cells)}


def pass1_table(material: Material, condition: str) -> Table:
    """Pass@1 on hidden tests by turn."""
    return table_of(
        f"pass1_{condition}",
        f"Pass@1 by turn, {CONDITIONS[condition]} (%)",
        "Share of programs that pass all hidden tests, with 95 % intervals over problems and repetitions (training "
        "seeds). Turn t has seen t feedbacks; turn 0 is the first program. Repetitions are averaged; their last turns "
        f"stand apart. Samples with an infrastructure failure are excluded. {material.rules[condition]}",
        [
            {
                "run": name,
                "problems": len(score.ids),
                **by_turn(score.pass1_T),
                "last turn of each repetition": each_repetition(score.pass1_SPT[:, :, -1]),
                "excluded": score.excluded,
            }
            for name, score in material.scores[condition].items()
        ],
    )


def difference_tables(material: Material, condition: str) -> Iterator[Table]:
    """By turn: each run against the baseline, then the method against each run; empty without the one or the other."""
    scores, baseline, method = material.scores[condition], material.baseline, material.method

    def row(first: str, second: str) -> dict[str, Cell]:
        """Of the turns and the problems that both have."""
        ours_SPT, theirs_SPT = paired(scores[first], scores[second])
        gains_T = map(hierarchical_mean, np.moveaxis(ours_SPT, 2, 0), np.moveaxis(theirs_SPT, 2, 0))
        return {"problems": ours_SPT.shape[1], **by_turn(estimates(gains_T))}

    yield table_of(
        f"gain_{condition}",
        f"Difference to {baseline}, {CONDITIONS[condition]} (points)",
        "Paired by problem, with 95 % intervals over problems and repetitions; one that excludes 0 shows a difference.",
        [{"run": name, **row(name, baseline)} for name in scores if name != baseline and baseline in scores],
    )
    yield table_of(
        f"method_gain_{condition}",
        f"Gain of {method} over each run, {CONDITIONS[condition]} (points)",
        "Paired by problem, with 95 % intervals over problems and repetitions. Not corrected for their number: what is "
        "tested is the mean over turns.",
        [{"over": name, **row(str(method), name)} for name in scores if name != method and method in scores],
    )


def horizon_table(material: Material, condition: str) -> Table:
    """Gains at turns that were learned from and at later ones; empty if no later turn was measured."""
    scores, baseline = material.scores[condition], material.baseline
    last = max((score.turns for score in scores.values()), default=0) - 1
    # first and last turn of: what all learn from, what contexts add, the rest
    ends = ((0, LAST_PLAYED), (LAST_PLAYED + 1, LAST_LEARNED), (LAST_LEARNED + 1, last))
    spans = [(first, to) for first, to in ends if first <= last]
    rows: list[dict[str, Cell]] = []
    for name, score in scores.items() if last > LAST_PLAYED else ():
        row: dict[str, Cell] = {"run": name}
        for first, to in spans:
            start = max(first - 1, 0)
            row[f"gained, turn {start} to {to}"] = estimates([score.gained(start, to)])[0]
        for first, to in spans:
            difference = None
            if name != baseline and baseline in scores and min(score.turns, scores[baseline].turns) > to:
                ours_SPT, theirs_SPT = paired(score, scores[baseline])
                span = np.s_[:, :, first : to + 1]
                difference = hierarchical_mean(ours_SPT[span].mean(axis=2), theirs_SPT[span].mean(axis=2))
            turns = f"turn {to}" if first == to else f"turns {first} to {to}"
            row[f"over {baseline}, {turns}"] = estimates([difference])[0]
        rows.append(row)
    return table_of(
        f"horizon_{condition}",
        f"Turns that were learned from and later ones, {CONDITIONS[condition]} (points)",
        f"Gained: between two turns, of the same conversations. Over {baseline}: mean difference at these "
        f"turns. Multi-turn training learns from turns 0 to {LAST_PLAYED}, and from turn {LAST_LEARNED} where contexts "
        f"hold {LAST_LEARNED} programs, as Cobalt's; single-turn training from turn 0; none from later turns. Where "
        "Pass@1 comes near 100 %, little is left to gain.",
        rows,
    )


def primary_tables(material: Material, condition: str) -> Iterator[Table]:
    """The mean of the later turns of each run, and one family of tests on it: the method against trained runs.

    The baseline is not trained, so its test is outside the family, as are ``--pairs``. Two tests answer each question:
    the resamples over problems and repetitions, and Welch's t-test over the repetitions alone. The latter comes first
    where there are few. Empty if there is no turn after the first.
    """
    scores, method = material.scores[condition], material.method
    first, last = ENDPOINT[0], min([ENDPOINT[1], *(score.turns - 1 for score in scores.values())])
    if not scores or last < first:
        return

    def endpoint(values_SPT: np.ndarray) -> np.ndarray:
        return values_SPT[:, :, first : last + 1].mean(axis=2)

    values = {name: endpoint(score.pass1_SPT) for name, score in scores.items()}
    yield table_of(
        f"primary_{condition}",
        f"Mean Pass@1 of turns {first} to {last}, {CONDITIONS[condition]} (%)",
        "With 95 % intervals over problems and repetitions (training seeds), each of which stands apart."
        + (" The primary endpoint of research/results/paper-in-miniature.md." if condition == "shifted" else ""),
        [
            {
                "run": name,
                "problems": len(scores[name].ids),
                "mean": estimates([hierarchical_mean(values_SP)])[0],
                "of each repetition": each_repetition(values_SP),
            }
            for name, values_SP in values.items()
        ],
    )
    own = [(method, name) for name in scores if name != method and method is not None]
    pairs = [pair for pair in dict.fromkeys((*own, *material.pairs)) if scores.keys() >= set(pair)]
    both = {pair: [endpoint(values_SPT) for values_SPT in paired(*map(scores.__getitem__, pair))] for pair in pairs}
    found = {pair: hierarchical_mean(ours_SP, theirs_SP) for pair, (ours_SP, theirs_SP) in both.items()}
    p_values = {pair: difference and difference.p_value for pair, difference in found.items()}
    family = {pair: p for pair, p in p_values.items() if pair in own and pair[1] != material.baseline and p is not None}
    corrected = dict(zip(family, holm(list(family.values())), strict=True))
    has_few = any(1 < len(values_SP) < FEW_TRAININGS for of_both in both.values() for values_SP in of_both)

    def row(pair: tuple[str, str]) -> dict[str, Cell]:
        difference = found[pair]
        welch = difference and difference.welch_p_value
        of_resamples: dict[str, Cell] = {"p": p_values[pair], "Holm": corrected.get(pair)}
        over_trainings: dict[str, Cell] = {"over trainings": difference and difference.over_trainings}
        tests = {"Welch": welch, **of_resamples} if has_few else {**of_resamples, "Welch": welch}
        problems = {"run": pair[0], "over": pair[1], "problems": both[pair][0].shape[1]}
        return {**problems, **(over_trainings if has_few else {}), "difference": estimates([difference])[0], **tests}

    yield table_of(
        f"primary_tests_{condition}",
        f"Tests of the mean of turns {first} to {last}, {CONDITIONS[condition]} (points)",
        f"Paired by problem. p: two-sided, from {RESAMPLES:,} resamples of problems and repetitions: none can be below "
        f"{2 / (RESAMPLES + 1):.1g}. Holm: the same, corrected for the number of runs that the method is compared "
        f"with on this set, {material.baseline} and further pairs left out. Welch: t-test over repetitions, where "
        "both have two."
        + (
            f" With fewer than {FEW_TRAININGS} repetitions the resamples are too sure. So Welch's interval over "
            "trainings comes first, and nothing is claimed without it."
            if has_few
            else ""
        ),
        [row(pair) for pair in pairs],
    )


def perturbation_cost_table(material: Material) -> Table:
    """What wrong feedback costs at the last turn, on the problems that both conditions have."""
    clean, perturbed = material.scores["clean"], material.scores["perturbed"]
    rows: list[dict[str, Cell]] = []
    for name in (name for name in clean if name in perturbed):
        clean_SP, perturbed_SP = (values_SPT[:, :, -1] for values_SPT in paired(clean[name], perturbed[name]))
        columns = {"clean": clean_SP, "perturbed": perturbed_SP, "perturbed − clean": perturbed_SP - clean_SP}
        means = dict(zip(columns, estimates(map(hierarchical_mean, columns.values())), strict=True))
        rows.append({"run": name, "problems": clean_SP.shape[1], **means})
    return table_of(
        "perturbation_cost",
        "What wrong feedback costs at the last turn (Pass@1, %)",
        "The same problems and repetitions under both kinds of feedback, paired.",
        rows,
    )


def repair_table(material: Material) -> Table:
    """What is gained by reading feedback, and which failed programs are repeated."""
    rows: list[Mapping[str, Cell]] = []
    for name, control in material.controls.items():
        last = control.turns - 1
        own, other = estimates(score.gained(0, last) for score in (material.scores["clean"][name], control))
        repeats = zip(*material.repeats[name], strict=True)  # of all repetitions: at turn 1, then at the last
        shares = [[found.after_failure.estimate for found in of_turn] for of_turn in repeats]
        known = [[share.value for share in of_turn if share is not None] for of_turn in shares]
        first_repeats, last_repeats = (PERCENT * mean(values) if values else None for values in known)
        rows.append(
            {
                "run": name,
                "to turn": last,
                "own feedback": own,
                "another problem's": other,
                "repeats, first": first_repeats,
                "repeats, last": last_repeats,
            }
        )
    return table_of(
        "repair",
        "Gained by reading feedback, and repeated programs",
        "Gains in points from turn 0 to the turn named: with the own feedback, and with that of another problem, where "
        "what is gained by reading must vanish. Share of failed programs that the next turn repeats, in per cent: "
        "after the first feedback, and after the last.",
        rows,
    )
