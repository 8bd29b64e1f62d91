"""The style of all figures, and the one that several reports share: Pass@1 by turn.

Nothing here needs matplotlib until something is drawn.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil
from typing import TYPE_CHECKING, Literal

from cobalt.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#888888", "#000000")
TOL = ("#332288", "#882255", "#999933", "#44AA99")
COLOURS = OKABE_ITO + TOL
"""Distinguishable by colour-blind readers."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "p", ">", "h")
"""One for each colour: figures are also printed in black and white."""
DPI = 150
PASS1_INCHES = (6.4, 4.2)
LEGEND_ROW_INCHES = 0.25
LEGEND_COLUMNS = 2
COLUMN_CHARACTERS = 36
"""A longer label needs the figure's whole width."""
MOST_BANDS = 4
"""More curves have intervals as bars side by side: more bands on each other cannot be told apart."""
BARS_WIDTH = 0.6
"""Of all bars of one turn."""
BAND_OPACITY = 0.15
SHADE_OPACITY = 0.06
MARGIN, SMALLEST_MARGIN = 0.05, 1.0
"""Of an axis beyond its values: a share of their range, and points."""


@dataclass(frozen=True)
class Picture:
    """A figure of a report. ``key`` names the file; ``alt`` describes it to who cannot see it."""

    key: str
    alt: str
    png: bytes
    wide: bool = False
    """Takes a page's full width."""


@dataclass(frozen=True)
class Curve:
    """Pass@1 by turn of one policy, in per cent; None: a turn without a value.

    A control is dashed and has no band: it is there to be compared with the curve of the same colour.
    """

    percents_T: Sequence[Estimate | None]
    label: str | None = None
    colour: str = COLOURS[0]
    is_control: bool = False

    @property
    def marker(self) -> str:
        """That of the colour."""
        return marker_of(self.colour)


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """One colour per name; from the thirteenth on they repeat, and ``turns_png`` draws them dotted."""
    return dict(zip(names, cycle(COLOURS), strict=False))


def marker_of(colour: str) -> str:
    """The marker that goes with one of ``COLOURS``."""
    return MARKERS[COLOURS.index(colour)]


def scale_of(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Limits of an axis that shows all of ``curves`` with their bands, for figures side by side; None: no values."""
    intervals = [interval_of(estimate) for curve in curves for estimate in curve.percents_T if estimate is not None]
    if not intervals:
        return None
    low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
    margin = max(MARGIN * (high - low), SMALLEST_MARGIN)
    return low - margin, high + margin


def pass1_png(curves: Sequence[Curve], title: str | None = None, scale: tuple[float, float] | None = None) -> bytes:
    """Pass@1 by turn with 95 % intervals, as PNG."""
    return turns_png(curves, "Pass@1, hidden tests (%)", title, scale)


def turns_png(
    curves: Sequence[Curve],
    quantity: str,
    title: str | None = None,
    scale: tuple[float, float] | None = None,
    shaded_to: int | None = None,
) -> bytes:
    """A quantity by turn with 95 % intervals, as PNG; the turns up to ``shaded_to`` on grey.

    Labels stand below the axes, so that they hide no curve.
    """
    from matplotlib.figure import Figure

    labels = [curve.label for curve in curves if curve.label is not None]
    columns = LEGEND_COLUMNS if all(len(label) <= COLUMN_CHARACTERS for label in labels) else 1
    width, height = PASS1_INCHES
    height += LEGEND_ROW_INCHES * ceil(len(labels) / columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    own = [curve for curve in curves if not curve.is_control]
    for curve in curves:
        if curve.is_control:
            _draw_control(axes, curve)
        elif len(own) <= MOST_BANDS:
            _draw_with_band(axes, curve)
        else:
            place = own.index(curve)
            is_repeated = curve.colour in {other.colour for other in own[:place]}
            _draw_with_bars(axes, curve, BARS_WIDTH * (place / (len(own) - 1) - 0.5), is_repeated)
    if shaded_to is not None:
        axes.axvspan(-0.5, shaded_to + 0.5, color="black", alpha=SHADE_OPACITY, lw=0)
        axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(range(max((len(curve.percents_T) for curve in curves), default=0)))
    axes.set(xlabel="turn (feedbacks seen)", ylabel=quantity, title=title)
    if scale is not None:
        axes.set_ylim(scale)
    make_plain(axes)
    if labels:
        figure.legend(loc="outside lower center", ncols=columns, frameon=False)
    return png_bytes(figure)


def _points(curve: Curve) -> tuple[list[int], list[Estimate]]:
    """Turns that have a value, and the values."""
    turns = [turn for turn, estimate in enumerate(curve.percents_T) if estimate is not None]
    return turns, [estimate for estimate in curve.percents_T if estimate is not None]


def _draw_control(axes: "Axes", curve: Curve) -> None:
    turns, points = _points(curve)
    values = [estimate.value for estimate in points]
    axes.plot(turns, values, "--", marker=curve.marker, color=curve.colour, label=curve.label)


def _draw_with_band(axes: "Axes", curve: Curve) -> None:
    turns, points = _points(curve)
    axes.plot(turns, [point.value for point in points], marker=curve.marker, color=curve.colour, label=curve.label)
    lows, highs = ([interval_of(point)[side] for point in points] for side in (0, 1))
    axes.fill_between(turns, lows, highs, color=curve.colour, alpha=BAND_OPACITY, lw=0)


def _draw_with_bars(axes: "Axes", curve: Curve, shift: float, is_repeated: bool) -> None:
    turns, points = _points(curve)
    axes.errorbar(
        [turn + shift for turn in turns],
        [point.value for point in points],
        yerr=bars_of(points),
        marker=curve.marker,
        markersize=4,
        markerfacecolor="white" if is_repeated else curve.colour,
        linestyle=":" if is_repeated else "-",
        lw=0.8,
        elinewidth=1,
        color=curve.colour,
        label=curve.label,
    )


def interval_of(estimate: Estimate) -> tuple[float, float]:
    """The interval; without one (a single problem) the value itself."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


def bars_of(estimates: Sequence[Estimate]) -> list[list[float]]:
    """How far the intervals reach below the values, and above, as ``errorbar`` takes it."""
    return [[abs(interval_of(estimate)[side] - estimate.value) for estimate in estimates] for side in (0, 1)]


def make_plain(axes: "Axes", values: Literal["x", "y"] = "y") -> None:
    """Axes left and below, light lines across the one of the values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=values, alpha=0.3)


def png_bytes(figure: "Figure") -> bytes:
    """The figure as PNG; equal figures are equal bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()
