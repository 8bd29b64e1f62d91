"""The style of all figures, and the one that several reports share: Pass@1 by turn.

Nothing here needs matplotlib until something is drawn.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil
from typing import TYPE_CHECKING

from cobalt.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable by colour-blind readers."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One for each colour: figures are also printed in black and white."""
DPI = 150
PASS1_INCHES = (6.4, 4.2)
LEGEND_ROW_INCHES = 0.25
LEGEND_COLUMNS = 2
COLUMN_CHARACTERS = 36
"""A longer label needs the figure's whole width."""
BAND_OPACITY = 0.15
MARGIN, SMALLEST_MARGIN = 0.05, 1.0
"""Of an axis beyond its values: a share of their range, and points."""


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
    """One colour per name; from the eighth on they repeat."""
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
    """Pass@1 by turn with 95 % bands, as PNG. Labels stand below the axes, so that they hide no curve."""
    from matplotlib.figure import Figure

    labels = [curve.label for curve in curves if curve.label is not None]
    columns = LEGEND_COLUMNS if all(len(label) <= COLUMN_CHARACTERS for label in labels) else 1
    width, height = PASS1_INCHES
    height += LEGEND_ROW_INCHES * ceil(len(labels) / columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    for curve in curves:
        _draw(axes, curve)
    axes.set_xticks(range(max((len(curve.percents_T) for curve in curves), default=0)))
    axes.set(xlabel="turn (feedbacks seen)", ylabel="Pass@1, hidden tests (%)", title=title)
    if scale is not None:
        axes.set_ylim(scale)
    make_plain(axes)
    if labels:
        figure.legend(loc="outside lower center", ncols=columns, frameon=False)
    return png_bytes(figure)


def _draw(axes: "Axes", curve: Curve) -> None:
    points = [(turn, estimate) for turn, estimate in enumerate(curve.percents_T) if estimate is not None]
    turns, values = [turn for turn, _ in points], [estimate.value for _, estimate in points]
    if curve.is_control:
        axes.plot(turns, values, "--", marker=curve.marker, color=curve.colour, label=curve.label)
        return
    axes.plot(turns, values, marker=curve.marker, color=curve.colour, label=curve.label)
    intervals = [interval_of(estimate) for _, estimate in points]
    lows, highs = ([interval[side] for interval in intervals] for side in (0, 1))
    axes.fill_between(turns, lows, highs, color=curve.colour, alpha=BAND_OPACITY, lw=0)


def interval_of(estimate: Estimate) -> tuple[float, float]:
    """The interval; without one (a single problem) the value itself."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


def make_plain(axes: "Axes") -> None:
    """Axes left and below, light horizontal lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)


def png_bytes(figure: "Figure") -> bytes:
    """The figure as PNG; equal figures are equal bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()
