"""The figures of a report, as PNG bytes. A run has the same colour in all of them."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cobalt.hacking.rates import abandoned_rate, case_rate, fitted_rate
from cobalt.reporting.hacking_tables import WAYS, category_rates, percent
from cobalt.reporting.material import CONDITIONS, Material, mean_of
from cobalt.reporting.training_log import REWARD_PARTS
from cobalt.statistics import Estimate

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
WAY_COLOURS = ("#B2182B", "#EF8A62", "#67A9CF", "#2166AC", "#999999")
DPI = 150
LABEL_WIDTH = 14
"""Characters per line of a run's name under a bar."""


@dataclass(frozen=True)
class Picture:
    """``key`` names the file; ``alt`` describes it to who cannot see it."""

    key: str
    alt: str
    png: bytes
    wide: bool = False
    """Takes a page's full width."""


def all_pictures(material: Material, colours: Mapping[str, str]) -> list[Picture]:
    """The figures that the material allows."""
    pictures = [pass1_picture(material, condition, colours) for condition in CONDITIONS if material.scores[condition]]
    if material.hacking:
        pictures.append(hacking_picture(material, colours))
    if material.logs:
        pictures.append(reward_picture(material, colours))
    return pictures


def run_colours(names: Sequence[str]) -> dict[str, str]:
    """One colour per run, distinguishable by colour-blind readers for up to seven."""
    return dict(zip(names, cycle(COLOURS), strict=False))


def pass1_picture(material: Material, condition: str, colours: Mapping[str, str]) -> Picture:
    """Pass@1 by turn with 95 % bands."""
    figure, axes = _figure(6.4, 4.0)
    for name, score in material.scores[condition].items():
        estimates = [mean_of(values_P) for values_P in score.pass1_PT.T]
        points = [(turn, estimate) for turn, estimate in enumerate(estimates) if estimate is not None]
        turns = [turn for turn, _ in points]
        axes.plot(turns, [e.value for _, e in points], marker="o", color=colours[name], label=name)
        lows, highs = zip(*(_bounds(estimate) for _, estimate in points), strict=True)
        axes.fill_between(turns, lows, highs, color=colours[name], alpha=0.15, lw=0)
    axes.set_xticks(range(max(score.turns for score in material.scores[condition].values())))
    axes.set(xlabel="turn (feedbacks seen)", ylabel="Pass@1 (%)", title=f"Feedback from {CONDITIONS[condition]}")
    axes.legend(frameon=False)
    return Picture(f"pass1_{condition}", f"Pass@1 by turn, feedback from {CONDITIONS[condition]}", _png(figure))


def hacking_picture(material: Material, colours: Mapping[str, str]) -> Picture:
    """Cases (with a judge stacked by category), wrong tests fitted and right programs given up, each in per cent."""
    names = list(material.hacking)
    figure = Figure(figsize=(3 * max(3.2, 0.9 * len(names)), 3.2), layout="constrained")
    panels = (
        ("cases per 100 opportunities", case_rate),
        ("wrong test fitted (%)", fitted_rate),
        ("right program given up (%)", abandoned_rate),
    )
    for axes, (title, rate_of) in zip(figure.subplots(1, 3), panels, strict=True):
        totals = [percent(rate_of(record for part in material.hacking[name] for record in part)) for name in names]
        if rate_of is case_rate and all(name in material.judged for name in names):
            _stack_categories(axes, material, names)
        else:
            axes.bar(names, [_value(total) for total in totals], 0.6, color=[colours[name] for name in names])
        for place, total in enumerate(totals):
            if total is not None:
                low, high = _bounds(total)
                spread = [[total.value - low], [high - total.value]]
                axes.errorbar(place, total.value, yerr=spread, color="black", capsize=4, lw=1)
        axes.set_xticks(range(len(names)), [textwrap.fill(name, LABEL_WIDTH) for name in names], fontsize="small")
        axes.set_ylim(0, max(axes.get_ylim()[1], 1))
        axes.set(title=title)
        _plain(axes)
    return Picture(
        "hacking", "Hacking cases, wrong tests fitted and right programs given up, by run", _png(figure), wide=True
    )


def _stack_categories(axes: Axes, material: Material, names: Sequence[str]) -> None:
    rates_NW = np.array([[_value(rate) for rate in category_rates(material, name)] for name in names])
    bottoms = np.hstack([np.zeros((len(names), 1)), rates_NW.cumsum(axis=1)[:, :-1]])
    for way, label in enumerate(WAYS):
        axes.bar(names, rates_NW[:, way], 0.6, bottoms[:, way], color=WAY_COLOURS[way], label=label)
    axes.legend(frameon=False, fontsize="small")


def reward_picture(material: Material, colours: Mapping[str, str]) -> Picture:
    """Reward parts over steps: one panel per part, thin lines for repetitions, a thick one for their mean."""
    figure = Figure(figsize=(3.2 * 3, 2.6 * 2), layout="constrained")
    panels = figure.subplots(2, 3).flat
    for part, axes in zip(REWARD_PARTS, panels, strict=False):
        for name, logs in material.logs.items():
            _plot_repetitions(axes, [dict(log.series(part)) for log in logs], name, colours[name])
        axes.set(title=part.removeprefix("reward/"), xlabel="step")
        _plain(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend_panel = figure.axes[-1]
    legend_panel.axis("off")
    legend_panel.legend(handles, labels, frameon=False, loc="center")
    return Picture("rewards", "Mean reward parts over training steps", _png(figure), wide=True)


def _plot_repetitions(axes: Axes, series: Sequence[Mapping[int, float]], name: str, colour: str) -> None:
    for values in series:
        axes.plot(list(values), list(values.values()), color=colour, alpha=0.3, lw=0.8)
    steps = sorted({step for values in series for step in values})
    means = [np.mean([values[step] for values in series if step in values]) for step in steps]
    axes.plot(steps, means, color=colour, lw=1.8, label=name)


def _bounds(estimate: Estimate) -> tuple[float, float]:
    """The interval; without one (a single problem) the value itself."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


def _value(estimate: Estimate | None) -> float:
    return 0.0 if estimate is None else estimate.value


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()
