"""The style of all figures: sizes, fonts, one line for each method, labels at the curves; and the figure of curves.

Nothing here needs matplotlib until something is drawn.
"""

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cobalt.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, FULL = 3.3, 6.9
"""Widths in inches: a column of a paper, and its text."""
HEIGHT = 2.3
DPI = 300
FONT_SIZE = 7
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), FONT_SIZE),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), FONT_SIZE),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "lines.markeredgewidth"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    **dict.fromkeys(("legend.frameon", "axes.spines.top", "axes.spines.right"), False),
    "legend.handlelength": 2.6,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "cobalt",
}
"""Of matplotlib's settings. Text stays text in SVG; the fixed salt makes equal figures equal bytes."""
OURS, VARIANT, PALEST, DARKEST = "#D1440C", "#8A2F0A", "#E8946A", "#451604"
"""The accent for Cobalt alone, its dark shade for variants of Cobalt, and the two ends of its shades."""
GREYS = ("#999999", "#7A7A7A", "#585858", "#2B2B2B")
"""For everything that is not ours."""
TURNS = "turn"
PASS1 = "Pass@1, hidden tests (%)"
MOST_TOGETHER = 5
"""More curves get panels of their own."""
CHARACTER_INCHES = 0.05
"""Of one character of text, about."""
BAND_OPACITY = 0.13

Dash = str | tuple[int, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", "--", "-.", (0, (3, 1, 1, 1, 1, 1)), ":", (0, (6, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Line:
    """How a method is drawn in every figure. Figures are also printed in black and white: dash and marker differ."""

    label: str
    """What a reader knows it by."""
    colour: str
    dash: Dash = "-"
    marker: str = "o"

    @property
    def face(self) -> str:
        """Colour inside the marker: filled for Cobalt itself, white for all others."""
        return self.colour if self.colour == OURS and self.marker == "o" else "white"


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
    "dev": "dev set",
    "shifted": "shifted set",
    "swapped": "swapped outputs",
    "off_by_one": "off by one",
    "other_problem": "another problem's output",
    "truncated": "truncated outputs",
    "inconsistent": "inconsistent pairs",
}
"""By the name of a set or of a kind of wrong feedback."""


def label_of(name: str) -> str:
    """What a reader knows a run, a policy or a kind of wrong feedback by."""
    if name in METHODS:
        return METHODS[name].label
    # the names that the studies give to runs of a sweep, and to policies of the theory
    if (run := re.fullmatch(r"Cobalt \+ (\w+)\+(.*)", name)) and run[1] in WORDS:
        return f"{WORDS[run[1]]}, share {run[2]}"
    if policy := re.fullmatch(r"kl\+1e-(\d)-\d+(?:-step-(\d+))?", name):
        return f"KL $10^{{-{policy[1]}}}$" + (f", step {policy[2]}" if policy[2] else "")
    return WORDS.get(name) or name.replace("$", r"\$")  # else the dollar sign would begin mathematics


def broken(text: str, inches: float) -> str:
    """``text`` in lines of at most ``inches``. Text with mathematics stays in one line."""
    return text if "$" in text else textwrap.fill(text, int(inches / CHARACTER_INCHES))


def _line(name: str, colour: str, number: int) -> Line:
    return Line(label_of(name), colour, DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])


def lines_of(names: Sequence[str]) -> dict[str, Line]:
    """The line of each name. Unknown names get our shade if they hold "Cobalt", else greys. Their dashes differ."""
    return {
        name: METHODS.get(name) or _line(name, VARIANT if "Cobalt" in name else GREYS[-1 - number % len(GREYS)], number)
        for number, name in enumerate(dict.fromkeys(names))
    }


def series_of(names: Sequence[str]) -> dict[str, Line]:
    """The line of each name, in shades of ours from pale to dark: for runs of ours that have an order."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    shades = LinearSegmentedColormap.from_list("ours", (PALEST, OURS, DARKEST))
    colours = [to_hex(shades(number / (len(names) - 1))) for number in range(len(names))] if len(names) > 1 else [OURS]
    return {name: _line(name, colours[number], number) for number, name in enumerate(names)}


@dataclass(frozen=True)
class Picture:
    """A finished figure. ``key`` names its files; ``alt`` describes it for readers who cannot see it."""

    key: str
    alt: str
    png: bytes
    svg: bytes
    wide: bool = False
    """Whether it takes the full width of a page."""

    def write(self, folder: Path) -> None:
        """``key``.png and ``key``.svg."""
        for suffix, content in (("png", self.png), ("svg", self.svg)):
            folder.joinpath(f"{self.key}.{suffix}").write_bytes(content)


@dataclass(frozen=True)
class Curve:
    """A quantity of one method, by turn or by ``x``. None stands where there is no value."""

    name: str
    estimates: Sequence[Estimate | None]
    x: Sequence[float] | None = None

    def points(self) -> tuple[list[float], list[Estimate]]:
        """Places that have a value, and the values."""
        places = self.x or range(len(self.estimates))
        known = [(float(x), found) for x, found in zip(places, self.estimates, strict=True) if found is not None]
        return [x for x, _ in known], [found for _, found in known]


@contextmanager
def styled() -> Iterator[None]:
    """Figures that the block draws and finishes have this style. Also a decorator: ``@styled()``."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def new_figure(width: float = COLUMN, height: float = HEIGHT) -> "Figure":
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def finished(figure: "Figure", key: str, alt: str) -> Picture:
    """In both formats; equal figures are equal bytes."""
    from PIL import Image

    drawn, png, svg = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    few_colours = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few_colours.save(png, format="png", dpi=(DPI, DPI), optimize=True)  # a third of the bytes
    return Picture(key, alt, png.getvalue(), svg.getvalue(), wide=figure.get_figwidth() > COLUMN)


@styled()
def pass1_picture(key: str, alt: str, curves: Sequence[Curve], title: str | None = None) -> Picture:
    """Pass@1 by turn."""
    return finished(curves_figure(curves, TURNS, PASS1, title=title), key, alt)


def curves_figure(
    curves: Sequence[Curve],
    xlabel: str,
    ylabel: str,
    *,
    behind: Sequence[str] = ("base", "Cobalt"),
    title: str | None = None,
    shaded_to: float | None = None,
    beside: Sequence[Curve] = (),
) -> "Figure":
    """Curves with 95 % bands: together, with labels at their ends; or, if they are many, a panel for each.

    The curves named ``behind`` are in all panels. With ``shaded_to`` there is a line at 0, and shade up to there. The
    scale also spans ``beside``, the curves of a figure that a reader compares this one with.
    """
    lines = lines_of([curve.name for curve in curves])
    drawn = [(curve, lines[curve.name]) for curve in curves]
    if len(curves) <= MOST_TOGETHER:
        figure = new_figure()
        panels = [figure.subplots()]
        for curve, line in sorted(drawn, key=lambda pair: pair[1].colour == OURS):  # ours on top
            draw_curve(panels[0], curve, line)
        panels[0].set_title(title or "")
    else:
        common = [pair for pair in drawn if pair[0].name in behind]
        own = [pair for pair in drawn if pair[0].name not in behind]
        columns = min((3, 4), key=lambda columns: -len(own) % columns)  # that leaves the fewest places empty
        rows = ceil(len(own) / columns)
        figure = new_figure(FULL, 1.25 * rows + 0.5)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat[: len(own)])
        for axes in grid.flat[len(own) :]:
            axes.set_visible(False)
        for number, (axes, (curve, line)) in enumerate(zip(panels, own, strict=True)):
            for other, other_line in common:
                draw_curve(axes, other, other_line, is_faint=True)
            draw_curve(axes, curve, line)
            axes.set_title(broken(line.label, FULL / columns - 0.3), color=line.colour)
            axes.xaxis.set_tick_params(labelbottom=number + columns >= len(own))
        in_all = [f"{line.label}, in every panel" for _, line in common]
        figure.legend(panels[0].lines[: len(common)], in_all, loc="outside upper right", ncols=2)
        figure.text(0.008, 1 - 0.17 / figure.get_figheight(), title or "", va="center", weight="bold")
    ends = [end for curve in (*curves, *beside) for estimate in curve.points()[1] for end in interval_of(estimate)]
    if shaded_to is not None and ends:
        ends.append(0)
    margin = max(0.04 * (max(ends) - min(ends)), 0.5) if ends else 0  # a share of the range, at least half a point
    for axes in panels:
        if shaded_to is not None:
            axes.axvspan(-0.5, shaded_to + 0.5, color="#FCF3E0", lw=0, zorder=0)
            axes.axhline(0, color="black", lw=0.6)
        if ends:
            axes.set_ylim(min(ends) - margin, max(ends) + margin)
        axes.locator_params(axis="y", steps=[1, 2, 5, 10])
        if all(curve.x is None for curve in curves):
            turns = max((len(curve.estimates) for curve in curves), default=0)
            axes.set_xticks(range(0, turns, 1 if len(panels) == 1 else 2))
            axes.set_xlim(-0.3, turns - 0.7)
    if len(panels) == 1:
        panels[0].set(xlabel=xlabel, ylabel=ylabel)
        if len(curves) > 1:
            label_ends(panels[0], drawn)
    else:
        figure.supxlabel(xlabel, fontsize=FONT_SIZE)
        figure.supylabel(ylabel, fontsize=FONT_SIZE)
    return figure


def draw_curve(axes: "Axes", curve: Curve, line: Line, is_faint: bool = False) -> None:
    """Draw a line through the known values, over their band. A faint line has neither markers nor band."""
    x, points = curve.points()
    look: dict[str, Any] = {"linewidth": 0.7, "marker": "", "zorder": 1.8} if is_faint else {"marker": line.marker}
    look = {"zorder": 3 if line.colour == OURS else 2, "markerfacecolor": line.face} | look
    values = [point.value for point in points]
    axes.plot(x, values, linestyle=line.dash, color=line.colour, clip_on=False, **look)
    if not is_faint:
        lows, highs = ([interval_of(point)[side] for point in points] for side in (0, 1))
        axes.fill_between(x, lows, highs, color=line.colour, alpha=BAND_OPACITY, lw=0, zorder=1.5)


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


def push_apart(wanted: Sequence[float], heights: Sequence[float], low: float = 0.0, high: float = 1.0) -> list[float]:
    """Centres of labels: without overlap, in their order, within [low, high], as near to ``wanted`` as possible.

    Labels that need more than the whole space begin at ``low``.

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
    places[order] = np.maximum(low, np.minimum(shifts, high - sum(heights))) + centres
    return places.tolist()


def interval_of(estimate: Estimate) -> tuple[float, float]:
    """The interval. Without one (a single problem): the value itself, twice."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


def bars_of(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Lengths of the intervals below and above the values, in the form that ``errorbar`` takes."""
    return [[abs(interval_of(estimate)[side] - estimate.value) for estimate in estimates] for side in (0, 1)]
