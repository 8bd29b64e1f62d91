"""The figures of a report, drawn from its tables: at once, or later from ``report.json``.

Metrics over the steps of training are the exception: they stand in the training logs alone.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from cobalt import figures
from cobalt.figures import FONT_SIZE, FULL, PASS1, TURNS, Curve, Picture
from cobalt.statistics import Estimate
from research.figures import bars_of, curves_figure, lines_of
from research.reports.learning import REWARD_PARTS, TURN_MEASURES, LearningLog
from research.reports.page import Table
from research.reports.runs import CONDITIONS, SETS
from research.reports.scores import LAST_LEARNED

PANELS_PER_ROW = 3
BAR_INCHES = 0.19
"""Height of a run's row."""
MEASURES = {
    "cases per 100 opportunities": "hacks per 100 opportunities",
    "wrong test fitted (%)": "wrong test fitted (%)",
    "right program given up (%)": "right program given up (%)",
}
"""Columns of the table of hacking that are drawn, and what a reader knows them by."""


def pictures_of(tables: Sequence[Table]) -> list[Picture]:
    """Those that the tables allow, in their order."""
    pictures = [DRAWN[table.key](table) for table in tables if table.key in DRAWN]
    return [picture for picture in pictures if picture is not None]


@figures.styled()
def verdicts_picture(report: Mapping[str, Any]) -> Picture:
    """Of the record of ``research/benchmarks/bench_verdicts.py``."""
    programs = report["programs"]
    curves = [
        Curve(name, [Estimate(100 * count / programs, None, None) for count in counts])
        for name, counts in report["different"].items()
    ]
    xlabel, ylabel = "programs at a time", "verdicts that differ (%)"
    figure = curves_figure(curves, xlabel, ylabel, ticks=list(map(str, report["at_a_time"])))
    alt = "Verdicts that differ from those taken alone, by the number of programs at a time"
    return figures.finished(figure, "verdicts", alt)


def turn_curves(table: Table, names: Sequence[str] | None = None) -> list[Curve]:
    """A curve for each run of a table with columns ``turn 0``, ``turn 1``, ...; of ``names`` only, in their order."""
    turns = [name for name in table.columns if name.startswith("turn ")]
    rows = dict(zip(map(str, table.column("run")), zip(*map(table.estimates, turns), strict=True), strict=True))
    return [Curve(name, rows[name]) for name in names or rows]


def _condition_of(table: Table) -> str:
    return table.key.partition("_")[2]


@figures.styled()
def _pass1(table: Table) -> Picture:
    """Pass@1 by turn."""
    words = CONDITIONS[_condition_of(table)]
    figure = curves_figure(turn_curves(table), TURNS, PASS1, title=words.capitalize())
    return figures.finished(figure, table.key, f"Pass@1 by turn, {words}")


@figures.styled()
def _gain(table: Table) -> Picture | None:
    """Difference to the baseline by turn; None if no turn lies beyond those of training."""
    curves = turn_curves(table)
    if max(len(curve.estimates) for curve in curves) <= LAST_LEARNED + 1:
        return None
    words = CONDITIONS[_condition_of(table)]
    baseline = table.title.partition("Difference to ")[2].partition(",")[0]
    figure = curves_figure(
        curves,
        TURNS,
        f"Pass@1 beyond {baseline} (points)",
        title=f"{words.capitalize()} (shaded: turns learned from)",
        shaded_to=LAST_LEARNED,
    )
    return figures.finished(figure, table.key, f"Difference to {baseline} by turn, {words}; shaded: learned from")


@figures.styled()
def _hacking(table: Table) -> Picture:
    """Hacks, wrong tests fitted and right programs given up by run, each on a scale of its own."""
    names = [str(name) for name in table.column("run")]
    figure = figures.new_figure(FULL, 0.6 + BAR_INCHES * len(names))
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    for axes, (column, words) in zip(panels, MEASURES.items(), strict=True):
        found = table.estimates(column)
        for place, (line, estimate) in enumerate(zip(lines_of(names).values(), found, strict=True)):
            if estimate is not None:
                bars = bars_of([estimate])
                axes.errorbar(estimate.value, place, xerr=bars, marker=line.marker, color=line.colour, clip_on=False)
        if not any(estimate is not None and estimate.value for estimate in found):
            axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center")
        axes.set(title=words)
        axes.set_xlim(0, max(axes.get_xlim()[1], 1))
        axes.grid(axis="x")
    _name_rows(panels[0], names)
    return figures.finished(figure, "hacking", "Hacks, wrong tests fitted and right programs given up, by run")


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    lines = lines_of(names)
    axes.set_yticks(range(len(names)), [lines[name].label for name in names])
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set_color(lines[name].colour)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


DRAWN: Mapping[str, Callable[[Table], Picture | None]] = {
    **{f"pass1_{condition}": _pass1 for condition in CONDITIONS},
    **{f"gain_{condition}": _gain for condition in SETS},
    "hacking": _hacking,
}
"""By the key of the table."""


def training_pictures(logs: Mapping[str, Sequence[LearningLog]]) -> list[Picture]:
    """Reward parts, and what responses do after how many programs, over steps."""
    if not logs:
        return []
    parts = {part: part.removeprefix("reward/").replace("_", " ") for part in REWARD_PARTS}
    pictures = [_over_steps(logs, parts, "rewards", "Mean reward parts over training steps")]
    turns = sorted({turn for of_run in logs.values() for log in of_run for turn in log.turns})
    measures = [measure for measure in TURN_MEASURES if measure != "broken"]  # the rest of those that are kept
    by_turn = {f"turn_{turn}/{measure}": f"turn {turn}: {measure}" for turn in turns for measure in measures}
    if by_turn:
        words = "Shares of responses solved, kept, repaired and repeated by turn, over training steps"
        pictures.append(_over_steps(logs, by_turn, "learning_by_turn", words, len(measures)))
    return pictures


@figures.styled()
def _over_steps(
    logs: Mapping[str, Sequence[LearningLog]],
    panels: Mapping[str, str],
    key: str,
    alt: str,
    per_row: int = PANELS_PER_ROW,
) -> Picture:
    """A panel, with its title, for each metric: the mean over repetitions, and a band from the least to the most.

    The place of a metric that nobody logged stays empty.
    """
    lines = lines_of(list(logs))
    rows = ceil(len(panels) / per_row)
    figure = figures.new_figure(FULL, 1.6 * rows + 0.2 * ceil(len(logs) / PANELS_PER_ROW))
    grid = figure.subplots(rows, per_row, sharex=True, squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    for (metric, title), axes in zip(panels.items(), grid.flat, strict=False):
        for name, of_run in logs.items():
            series = [dict(log.series(metric)) for log in of_run]
            steps = sorted({step for values in series for step in values})
            values_by_step = [[values[step] for values in series if step in values] for step in steps]
            line = lines[name]
            axes.set_visible(axes.get_visible() or bool(steps))
            means = [np.mean(values) for values in values_by_step]
            axes.plot(steps, means, linestyle=line.dash, color=line.colour, label=line.label)
            lows, highs = (list(map(pick, values_by_step)) for pick in (min, max))
            axes.fill_between(steps, lows, highs, color=line.colour, alpha=figures.BAND_OPACITY, lw=0)
        axes.set(title=title)
        axes.xaxis.set_tick_params(labelbottom=True)
    figure.supxlabel("training step", fontsize=FONT_SIZE)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=PANELS_PER_ROW)
    return figures.finished(figure, key, alt)
