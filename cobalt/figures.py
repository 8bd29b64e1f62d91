"""The style of all figures: sizes, fonts, colours, curves with their bands.

Nothing here needs matplotlib until something is drawn.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
OURS = "#D1440C"
"""The accent, for Cobalt alone."""
GREYS = ("#999999", "#7A7A7A", "#585858", "#2B2B2B")
"""For everything that is not ours."""
TURNS = "turn"
PASS1 = "Pass@1, hidden tests (%)"
BAND_OPACITY = 0.13

Dash = str | tuple[int, tuple[float, ...]]


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
    """A quantity of one method, by turn. None stands where there is no value."""

    name: str
    estimates: Sequence[Estimate | None]

    def points(self) -> tuple[list[float], list[Estimate]]:
        """Turns that have a value, and the values."""
        known = [(float(turn), estimate) for turn, estimate in enumerate(self.estimates) if estimate is not None]
        return [x for x, _ in known], [estimate for _, estimate in known]


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
    """The figure in both formats. Equal figures give equal bytes."""
    from PIL import Image

    drawn, png, svg = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    few_colours = Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    few_colours.save(png, format="png", dpi=(DPI, DPI), optimize=True)  # a quarter of the bytes
    return Picture(key, alt, png.getvalue(), svg.getvalue(), wide=figure.get_figwidth() > COLUMN)


@styled()
def pass1_picture(key: str, alt: str, curve: Curve, title: str) -> Picture:
    """Pass@1 by turn of one file."""
    figure = new_figure()
    axes = figure.subplots()
    draw_curve(axes, curve, Line(curve.name, GREYS[-1]))
    fit([axes], [curve])
    axes.set(xlabel=TURNS, ylabel=PASS1)
    axes.set_title(title)
    return finished(figure, key, alt)


def draw_curve(axes: "Axes", curve: Curve, line: Line) -> None:
    """Draw a line through the known values, over their band."""
    x, points = curve.points()
    look: dict[str, Any] = {"marker": line.marker, "markerfacecolor": line.face, "clip_on": False}
    zorder = 3 if line.colour == OURS else 2
    axes.plot(x, [point.value for point in points], linestyle=line.dash, color=line.colour, zorder=zorder, **look)
    draw_band(axes, curve, line)


def draw_band(axes: "Axes", curve: Curve, line: Line) -> None:
    """Fill the intervals."""
    x, points = curve.points()
    lows, highs = ([interval_of(point)[side] for point in points] for side in (0, 1))
    axes.fill_between(x, lows, highs, color=line.colour, alpha=BAND_OPACITY, lw=0, zorder=1.5)


def fit(panels: Sequence["Axes"], curves: Sequence[Curve]) -> None:
    """Scale panels to ``curves``, with a margin. Turns are whole numbers."""
    ends = ends_of(curves)
    margin = max(0.04 * (max(ends) - min(ends)), 0.5) if ends else 0  # a share of the range, at least half a point
    turns = max((len(curve.estimates) for curve in curves), default=0)
    for axes in panels:
        if ends:
            axes.set_ylim(min(ends) - margin, max(ends) + margin)
        axes.locator_params(axis="y", steps=[1, 2, 5, 10])
        axes.set_xticks(range(0, turns, 1 if len(panels) == 1 else 2))
        axes.set_xlim(-0.3, turns - 0.7)


def ends_of(curves: Sequence[Curve]) -> list[float]:
    """The ends of all intervals."""
    return [end for curve in curves for estimate in curve.points()[1] for end in interval_of(estimate)]


def interval_of(estimate: Estimate) -> tuple[float, float]:
    """The interval. Without one (a single problem): the value itself, twice."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high
