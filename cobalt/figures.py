"""The style of all figures: sizes, fonts, one line for each method, labels at the curves; and the figure of curves.

Nothing here needs matplotlib until something is drawn.
"""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from cobalt.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")
COLUMN, FULL = 3.3, 6.9
"""Widths in inches: a column of a paper, and its text."""
HEIGHT = 2.3
DPI = 300
PNG_COLOURS = 256
POINTS_PER_INCH = 72
FONT_SIZE = 7
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.titlelocation": "left",
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": FONT_SIZE,
    "ytick.labelsize": FONT_SIZE,
    "legend.fontsize": FONT_SIZE,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "lines.markeredgewidth": 0.6,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "cobalt",
}
"""Of matplotlib's settings. Text stays text in SVG; the fixed salt makes equal figures equal bytes."""
OURS, VARIANT, PALEST, DARKEST = "#D1440C", "#8A2F0A", "#E8946A", "#451604"
"""The accent, for Cobalt alone; its dark shade, for variants of Cobalt; the ends of its shades."""
GREYS = ("#999999", "#7A7A7A", "#585858", "#2B2B2B")
"""For everything that is not ours."""
TURNS = "turn"
PASS1 = "Pass@1, hidden tests (%)"
MOST_TOGETHER = 5
"""More curves get panels of their own."""
LABEL_INCHES = 1.0
"""Of text beside a curve, before it is broken."""
CHARACTER_INCHES = 0.05
"""Of one character of text, about."""
LEADER_GAP = 0.025
"""Between a curve's end and the line to its label, in widths of the axes."""
LINE_HEIGHT = 1.25
"""Of text, in font sizes."""
BAND_OPACITY = 0.13
SHADE = "#FCF3E0"
"""Of a part of the axis; no curve's band is like it."""
MARGIN, SMALLEST_MARGIN = 0.04, 0.5
"""Of an axis beyond its values: a share of their range, and points."""
PANEL_HEIGHT = 1.25

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
        """Of the marker: filled for Cobalt as it is."""
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
WORDS = (
    (r"Cobalt \+ swapped\+(.*)", r"swapped outputs, share \1"),
    (r"Cobalt \+ off_by_one\+(.*)", r"off by one, share \1"),
    (r"Cobalt \+ other_problem\+(.*)", r"another problem's output, share \1"),
    (r"Cobalt \+ truncated\+(.*)", r"truncated outputs, share \1"),
    (r"Cobalt \+ inconsistent\+(.*)", r"inconsistent pairs, share \1"),
    (r"dev", "dev set"),
    (r"shifted", "shifted set"),
    (r"swapped", "swapped outputs"),
    (r"off_by_one", "off by one"),
    (r"other_problem", "another problem's output"),
    (r"truncated", "truncated outputs"),
    (r"inconsistent", "inconsistent pairs"),
    (r"kl\+1e-(\d)-\d+-step-(\d+)", r"KL $10^{-\1}$, step \2"),
    (r"kl\+1e-(\d)-\d+", r"KL $10^{-\1}$"),
)
"""Names that scripts of this repository give, as patterns, and what a reader knows them by."""


def label_of(name: str) -> str:
    """What a reader knows a run, a policy or a kind of wrong feedback by."""
    if name in METHODS:
        return METHODS[name].label
    for pattern, words in WORDS:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, words, name)
    return name.replace("$", r"\$")  # else it were mathematics


def broken(text: str, inches: float) -> str:
    """Text in lines that are no longer than that, but for mathematics, which is kept in one."""
    return text if "$" in text else textwrap.fill(text, int(inches / CHARACTER_INCHES))


def lines_of(names: Sequence[str]) -> dict[str, Line]:
    """By name. Names of no known method: shades of ours if they hold "Cobalt", greys if not; dashes tell them apart."""
    lines: dict[str, Line] = {}
    for number, name in enumerate(dict.fromkeys(names)):
        colour = VARIANT if "Cobalt" in name else GREYS[-1 - number % len(GREYS)]
        new = Line(label_of(name), colour, DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)])
        lines[name] = METHODS.get(name, new)
    return lines


def series_of(names: Sequence[str]) -> dict[str, Line]:
    """By name: shades of ours from pale to dark, for what is ours throughout and comes in an order."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    shades = LinearSegmentedColormap.from_list("ours", (PALEST, OURS, DARKEST))
    return {
        name: Line(
            label_of(name),
            to_hex(shades(number / (len(names) - 1))) if len(names) > 1 else OURS,
            DASHES[number % len(DASHES)],
            MARKERS[number % len(MARKERS)],
        )
        for number, name in enumerate(names)
    }


@dataclass(frozen=True)
class Picture:
    """A finished figure. ``key`` names its files; ``alt`` describes it to who cannot see it."""

    key: str
    alt: str
    png: bytes
    svg: bytes
    wide: bool = False
    """Takes a page's full width."""

    def write(self, folder: Path) -> None:
        """``key``.png and ``key``.svg."""
        for suffix, content in (("png", self.png), ("svg", self.svg)):
            folder.joinpath(f"{self.key}.{suffix}").write_bytes(content)


@dataclass(frozen=True)
class Curve:
    """A quantity of one method, by turn or by ``x``; None: a place without a value."""

    name: str
    estimates: Sequence[Estimate | None]
    x: Sequence[float] | None = None
    line: Line | None = None
    """Default: the method's."""

    def points(self) -> tuple[list[float], list[Estimate]]:
        """Places that have a value, and the values."""
        known = [
            (place, estimate)
            for place, estimate in zip(self.x or range(len(self.estimates)), self.estimates, strict=True)
            if estimate is not None
        ]
        return [float(place) for place, _ in known], [estimate for _, estimate in known]


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorator: what is drawn and finished within has this style."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return in_style


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
    few_colours = Image.open(drawn).convert("RGB").quantize(PNG_COLOURS, dither=Image.Dither.NONE)
    few_colours.save(png, format="png", dpi=(DPI, DPI), optimize=True)  # a third of the bytes
    return Picture(key, alt, png.getvalue(), svg.getvalue(), wide=figure.get_figwidth() > COLUMN)


@styled
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
) -> "Figure":
    """Curves with 95 % bands: together, with labels at their ends; or, if they are many, a panel for each.

    The curves named ``behind`` are in all panels. With ``shaded_to`` there is a line at 0, and shade up to there.
    """
    lines = lines_of([curve.name for curve in curves])
    drawn = [(curve, curve.line or lines[curve.name]) for curve in curves]
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
        figure = new_figure(FULL, PANEL_HEIGHT * rows + 0.5)
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
    limits = _limits(curves, with_zero=shaded_to is not None)
    for axes in panels:
        if shaded_to is not None:
            axes.axvspan(-0.5, shaded_to + 0.5, color=SHADE, lw=0, zorder=0)
            axes.axhline(0, color="black", lw=0.6)
        if limits is not None:
            axes.set_ylim(limits)
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


def _limits(curves: Sequence[Curve], with_zero: bool) -> tuple[float, float] | None:
    """Of an axis that shows all of ``curves`` with their bands; None: no values."""
    ends = [end for curve in curves for estimate in curve.points()[1] for end in interval_of(estimate)]
    if not ends:
        return None
    low, high = min(ends), max(ends)
    if with_zero:
        low, high = min(low, 0), max(high, 0)
    margin = max(MARGIN * (high - low), SMALLEST_MARGIN)
    return low - margin, high + margin


def draw_curve(axes: "Axes", curve: Curve, line: Line, is_faint: bool = False) -> None:
    """A line through the known values, over their band; faint: without markers and band."""
    x, points = curve.points()
    ours_on_top = 3 if line.colour == OURS else 2
    axes.plot(
        x,
        [point.value for point in points],
        linestyle=line.dash,
        marker="" if is_faint else line.marker,
        markerfacecolor=line.face,
        color=line.colour,
        linewidth=0.7 if is_faint else None,
        zorder=1.8 if is_faint else ours_on_top,
        clip_on=False,
    )
    if not is_faint:
        lows, highs = ([interval_of(point)[side] for point in points] for side in (0, 1))
        axes.fill_between(x, lows, highs, color=line.colour, alpha=BAND_OPACITY, lw=0, zorder=1.5)


def label_ends(axes: "Axes", drawn: Sequence[tuple[Curve, Line]]) -> None:
    """Each curve's label right of the axes, at the height of its last value or pushed from others just enough."""
    labelled = [(curve.points(), line) for curve, line in drawn if curve.points()[0]]
    ends = [(x[-1], points[-1].value) for (x, points), _ in labelled]
    texts = [
        axes.text(
            1.06,
            end[1],
            broken(line.label, LABEL_INCHES),
            va="center",
            transform=axes.get_yaxis_transform(),
            color=line.colour,
            weight="bold" if line.colour == OURS else "normal",
        )
        for end, (_, line) in zip(ends, labelled, strict=True)
    ]
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the layout makes room for the texts; from here on the axes keep their height
    height = axes.get_position().height * figure.get_figheight() * POINTS_PER_INCH
    starts = [axes.transAxes.inverted().transform(axes.transData.transform(end)) for end in ends]
    heights = [(text.get_text().count("\n") + 1) * LINE_HEIGHT * FONT_SIZE / height for text in texts]
    places = push_apart([float(start[1]) for start in starts], heights)
    for text, start, place in zip(texts, starts, places, strict=True):
        text.set_transform(axes.transAxes)
        text.set_y(place)
        axes.plot(
            [start[0] + LEADER_GAP, 1.05],
            [start[1], place],
            transform=axes.transAxes,
            color=text.get_color(),
            linewidth=0.4,
            clip_on=False,
            scalex=False,
            scaley=False,
        )


def push_apart(wanted: Sequence[float], heights: Sequence[float], low: float = 0.0, high: float = 1.0) -> list[float]:
    """Centres of labels that do not overlap, lie in their order within [low, high] and as near as can be to ``wanted``.

    Least squares: what overlaps becomes a block around the mean of what its members want. Labels that need more than
    the whole space begin at ``low``.

    >>> push_apart([0.5, 0.5], [0.25, 0.25])
    [0.375, 0.625]
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    offsets, top = {}, 0.0
    for index in order:
        offsets[index] = top + heights[index] / 2
        top += heights[index]
    blocks: list[tuple[float, int]] = []  # sum of the members' wishes for the lower end of the stack, and their number
    for index in order:
        total, count = wanted[index] - offsets[index], 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before, members = blocks.pop()
            total, count = total + before, count + members
        blocks.append((total, count))
    lowest = [total / count for total, count in blocks for _ in range(count)]
    places = [0.0] * len(wanted)
    for index, start in zip(order, lowest, strict=True):
        places[index] = max(low, min(start, high - top)) + offsets[index]
    return places


def interval_of(estimate: Estimate) -> tuple[float, float]:
    """The interval; without one (a single problem) the value itself."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


def bars_of(estimates: Sequence[Estimate]) -> list[list[float]]:
    """How far the intervals reach below the values, and above, as ``errorbar`` takes it."""
    return [[abs(interval_of(estimate)[side] - estimate.value) for estimate in estimates] for side in (0, 1)]
