"""Figures of many runs: one line for each method, labels at the curves, panels for many curves."""

import re
import textwrap
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from cobalt import figures
from cobalt.figures import FONT_SIZE, FULL, GREYS, OURS, Curve, Dash, Line
from cobalt.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VARIANT, PALEST, DARKEST = "#8A2F0A", "#E8946A", "#451604"
"""The dark shade of Cobalt's accent for variants of Cobalt, and the two ends of its shades."""
DASHES: tuple[Dash, ...] = ("-", "--", "-.", (0, (3, 1, 1, 1, 1, 1)), ":", (0, (6, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_TOGETHER = 5
"""More curves get panels of their own."""
BASE = "base"
IN_ALL = (BASE, "Cobalt")
"""Curves to compare each with, faint in its panel."""
CHARACTER_INCHES = 0.05
"""Of one character of text, about."""
METHODS = {
    "base": Line("base", GREYS[0], ":", "o"),
    "single-turn GRPO": Line("single-turn GRPO", GREYS[1], "--", "s"),
    "GRPO-MT": Line("GRPO-MT", GREYS[2], "-.", "^"),
    "VeRPO-MT": Line("VeRPO-MT", GREYS[3], (0, (3, 1, 1, 1, 1, 1)), "D"),
    "Cobalt": Line("Cobalt", OURS),
    "trained": Line("trained by Cobalt", OURS),
    "single-turn GRPO + Cobalt": Line("single-turn GRPO, then Cobalt", VARIANT, "-", "s"),
    "Cobalt + perturbation": Line("Cobalt, wrong feedback in training", VARIANT, "--", "v"),
    "Cobalt, other reference": Line("Cobalt, another model's trajectories", VARIANT, "-.", "^"),
    "Cobalt, penalty": Line("Cobalt, hacking penalised", VARIANT, "-", "D"),
    "Cobalt, hidden tests only": Line("Cobalt, hidden tests only", VARIANT, "--", "P"),
    "Cobalt, no improvement": Line("Cobalt, no improvement reward", VARIANT, "-.", "s"),
    "Cobalt, no expected output": Line("Cobalt, expected output hidden", VARIANT, ":", "o"),
}
"""By the name of a run."""
WORDS = {
    "swapped": "swapped outputs",
    "off_by_one": "off by one",
    "other_problem": "another problem's output",
    "truncated": "truncated outputs",
    "inconsistent": "inconsistent pairs",
}
"""By the name of a kind of wrong feedback."""


def line_of(label: str, colour: str, number: int) -> Line:
    """The line with the dash and the marker of this number."""
    return Line(label, colour, DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])


def series_of(labels: Sequence[str]) -> list[Line]:
    """A line for each label, in shades of ours from pale to dark: for what has an order."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    shades, last = LinearSegmentedColormap.from_list("ours", (PALEST, OURS, DARKEST)), len(labels) - 1
    colours = [to_hex(shades(number / last)) for number in range(len(labels))] if last else [OURS]
    return [line_of(label, colours[number], number) for number, label in enumerate(labels)]


def label_of(name: str) -> str:
    """What a reader knows a run, a policy or a kind of wrong feedback by."""
    if name in METHODS:
        return METHODS[name].label
    # runs with a kind and share of wrong feedback, and policies of the theory
    if (run := re.fullmatch(r"Cobalt \+ (\w+)\+(.*)", name)) and run[1] in WORDS:
        return f"{WORDS[run[1]]}, share {run[2]}"
    if policy := re.fullmatch(r"(?:kl\+1e-(\d)|cobalt)-\d+(?:-step-(\d+))?", name):
        parts = [f"KL $10^{{-{policy[1]}}}$" if policy[1] else "", f"step {policy[2]}" if policy[2] else ""]
        return ", ".join(filter(None, parts)) or name
    return WORDS.get(name) or name.replace("$", r"\$")  # else the dollar sign would begin mathematics


def broken(text: str, inches: float) -> str:
    """``text`` in lines of at most ``inches``. Text with mathematics stays in one line."""
    return text if "$" in text else textwrap.fill(text, int(inches / CHARACTER_INCHES))


def lines_of(names: Sequence[str]) -> dict[str, Line]:
    """The line of each name. Unknown names get our shade if they hold "Cobalt", else greys. Their dashes differ."""
    lines = {}
    for number, name in enumerate(dict.fromkeys(names)):
        colour = VARIANT if "Cobalt" in name else GREYS[-1 - number % len(GREYS)]
        lines[name] = METHODS.get(name) or line_of(label_of(name), colour, number)
    return lines


def curves_figure(
    curves: Sequence[Curve],
    xlabel: str,
    ylabel: str,
    *,
    title: str | None = None,
    shaded_to: float | None = None,
    ticks: Sequence[str] = (),
) -> "Figure":
    """Curves with 95 % bands: together, with labels at their ends; or, if they are many, a panel for each.

    Those of ``IN_ALL`` are in all panels. With ``shaded_to`` there is a line at 0, and shade up to there.
    ``ticks``: what stands at the places of the values, which then are no turns.
    """
    lines = lines_of([curve.name for curve in curves])
    drawn = [(curve, lines[curve.name]) for curve in curves]
    if len(curves) <= MOST_TOGETHER:
        figure = figures.new_figure()
        panels = [figure.subplots()]
        for curve, line in sorted(drawn, key=lambda pair: pair[1].colour == OURS):  # ours on top
            figures.draw_curve(panels[0], curve, line)
        panels[0].set_title(title or "")
    else:
        common = [pair for pair in drawn if pair[0].name in IN_ALL]
        own = [pair for pair in drawn if pair[0].name not in IN_ALL]
        columns = min((3, 4), key=lambda columns: -len(own) % columns)  # that leaves the fewest places empty
        rows = ceil(len(own) / columns)
        figure = figures.new_figure(FULL, 1.25 * rows + 0.5)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat[: len(own)])
        for axes in grid.flat[len(own) :]:
            axes.set_visible(False)
        for number, (axes, (curve, line)) in enumerate(zip(panels, own, strict=True)):
            for other, other_line in common:
                draw_faint(axes, other, other_line)
            figures.draw_curve(axes, curve, line)
            axes.set_title(broken(line.label, FULL / columns - 0.3), color=line.colour)
            axes.xaxis.set_tick_params(labelbottom=number + columns >= len(own))
        in_all = [f"{line.label}, in every panel" for _, line in common]
        figure.legend(panels[0].lines[: len(common)], in_all, loc="outside upper right", ncols=2)
        figure.text(0.008, 1 - 0.17 / figure.get_figheight(), title or "", va="center", weight="bold")
    if shaded_to is not None:
        for axes in panels:
            axes.axvspan(-0.5, shaded_to + 0.5, color="#FCF3E0", lw=0, zorder=0)
            axes.axhline(0, color="black", lw=0.6)
    scaled_to = spanned(curves) if len(panels) > 1 else curves
    figures.fit(panels, scaled_to if shaded_to is None else [*scaled_to, Curve("0", [Estimate(0, None, None)])])
    for axes in panels if ticks else ():
        axes.autoscale(axis="x")
        axes.set_xticks(range(len(ticks)), ticks)
    if len(panels) == 1:
        panels[0].set(xlabel=xlabel, ylabel=ylabel)
        if len(curves) > 1:
            label_ends(panels[0], drawn)
    else:
        figure.supxlabel(xlabel, fontsize=FONT_SIZE)
        figure.supylabel(ylabel, fontsize=FONT_SIZE)
    return figure


def draw_faint(axes: "Axes", curve: Curve, line: Line) -> None:
    """Draw a thin line without markers, which ends at the frame. Only ours has its band."""
    x, points = curve.points()
    look: dict[str, Any] = {"linewidth": 0.7, "marker": "", "zorder": 1.8}
    axes.plot(x, [point.value for point in points], linestyle=line.dash, color=line.colour, **look)
    if line.colour == OURS:
        figures.draw_band(axes, curve, line)


def spanned(curves: Sequence[Curve]) -> list[Curve]:
    """What the scale of panels spans: all but the base, which begins far below, where it ends among the others."""
    others = [curve for curve in curves if curve.name != BASE]
    ends = figures.ends_of(others)
    last = [curve.points()[1][-1].value for curve in curves if curve.name == BASE]
    return others if last and min(ends) < last[0] < max(ends) else [*curves]


def label_ends(axes: "Axes", drawn: Sequence[tuple[Curve, Line]]) -> None:
    """Put each curve's label right of the axes, at the height of its last value. Labels are pushed apart."""
    labelled = [(curve.points(), line) for curve, line in drawn if curve.points()[0]]
    ends = [(x[-1], points[-1].value) for (x, points), _ in labelled]
    texts = []
    for (_, height), (_, line) in zip(ends, labelled, strict=True):
        text = axes.text(1.06, height, broken(line.label, 1.0), va="center", transform=axes.get_yaxis_transform())
        text.set(color=line.colour, weight="bold" if line.colour == OURS else "normal")
        texts.append(text)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the layout makes room for the texts; from here on the axes keep their height
    points = 72 * axes.get_position().height * figure.get_figheight()
    starts = [axes.transAxes.inverted().transform(axes.transData.transform(end)) for end in ends]
    heights = [(text.get_text().count("\n") + 1) * 1.25 * FONT_SIZE / points for text in texts]
    places = push_apart([float(start[1]) for start in starts], heights)
    for text, start, place in zip(texts, starts, places, strict=True):
        text.set_transform(axes.transAxes)
        text.set_y(place)
        join = {"transform": axes.transAxes, "color": text.get_color(), "linewidth": 0.4, "clip_on": False}
        axes.plot([start[0] + 0.025, 1.05], [start[1], place], scalex=False, scaley=False, **join)


def push_apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Centres of labels: without overlap, in their order, within [0, 1], as near to ``wanted`` as possible.

    Labels that need more than the whole space begin at 0.

    >>> push_apart([0.5, 0.5], [0.25, 0.25])
    [0.375, 0.625]
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    # Stack the labels without gaps. Labels do not overlap if their shifts from there do not decrease upwards. Of all
    # such shifts take the nearest to the wanted ones, by least squares.
    order = np.argsort(wanted, kind="stable")
    centres = np.cumsum(np.array(heights)[order]) - np.array(heights)[order] / 2
    shifts = isotonic_regression(np.array(wanted)[order] - centres).x
    places = np.empty(len(wanted))
    places[order] = np.maximum(0, np.minimum(shifts, 1 - sum(heights))) + centres
    return places.tolist()


def bars_of(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Lengths of the intervals below and above the values, in the form that ``errorbar`` takes."""
    return [[abs(figures.interval_of(estimate)[side] - estimate.value) for estimate in estimates] for side in (0, 1)]
