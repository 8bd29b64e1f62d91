"""The figures of a report, as PNG bytes. A run has the same colour in all of them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cobalt.figures import (
    LEGEND_COLUMNS,
    LEGEND_ROW_INCHES,
    PASS1_INCHES,
    Curve,
    Picture,
    bars_of,
    make_plain,
    marker_of,
    pass1_png,
    png_bytes,
    scale_of,
    turns_png,
)
from cobalt.hacking.rates import ABANDONED, CASES, FITTED
from cobalt.reporting.gain_tables import LAST_LEARNED, Gains
from cobalt.reporting.hacking_tables import WAYS, category_rates, percent
from cobalt.reporting.material import CONDITIONS, Material
from cobalt.reporting.runs import estimates
from cobalt.reporting.training_log import REWARD_PARTS
from cobalt.reporting.training_tables import learning_curves
from cobalt.statistics import Estimate

WAY_COLOURS = ("#B2182B", "#EF8A62", "#67A9CF", "#2166AC", "#999999")
PANELS_PER_ROW = 3
MARKERS_PER_LINE = 8
BAR_INCHES = 0.32
"""Height of a run's bar with its share of the space between."""


def pass1_pictures(material: Material, colours: Mapping[str, str]) -> dict[str, Picture]:
    """Pass@1 by turn with 95 % bands, by condition; all on one scale."""
    curves = {
        condition: [Curve(score.pass1_T, name, colours[name]) for name, score in scores.items()]
        for condition, scores in material.scores.items()
        if scores
    }
    scale = scale_of([curve for of_condition in curves.values() for curve in of_condition])
    return {
        condition: Picture(
            f"pass1_{condition}",
            f"Pass@1 by turn, {CONDITIONS[condition]}",
            pass1_png(of_condition, CONDITIONS[condition].capitalize(), scale),
        )
        for condition, of_condition in curves.items()
    }


def gain_pictures(material: Material, gains: Mapping[str, Gains], colours: Mapping[str, str]) -> list[Picture]:
    """Difference to the baseline by turn with 95 % bands; ``gains`` by condition, all on one scale."""
    curves = {
        condition: [Curve(estimates(gains_T), name, colours[name]) for name, gains_T in of_condition.items()]
        for condition, of_condition in gains.items()
        if of_condition
    }
    scale = scale_of([curve for of_condition in curves.values() for curve in of_condition])
    return [
        Picture(
            f"gain_{condition}",
            f"Difference to {material.baseline} by turn, {CONDITIONS[condition]}; grey: learned from",
            turns_png(
                of_condition,
                f"Pass@1, difference to {material.baseline} (points)",
                CONDITIONS[condition].capitalize(),
                scale,
                LAST_LEARNED,
            ),
        )
        for condition, of_condition in curves.items()
    ]


def hacking_picture(material: Material, colours: Mapping[str, str]) -> Picture:
    """Cases (with a judge stacked by category), wrong tests fitted and right programs given up, each in per cent.

    Each has a scale of its own: runs are compared, and cases are much rarer than the rest.
    """
    names = list(material.hacking)
    figure = Figure(figsize=(3.6 * 3, 1.6 + BAR_INCHES * len(names)), layout="constrained")
    panels = (
        ("cases per 100 opportunities", CASES, "0 cases"),
        ("wrong test fitted (%)", FITTED, "none fitted"),
        ("right program given up (%)", ABANDONED, "none given up"),
    )
    for axes, (title, rate, nothing) in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
        totals = [percent(rate, material.hacking[name]) for name in names]
        if rate is CASES and all(name in material.judged for name in names):
            _stack_categories(axes, material, names)
        else:
            axes.barh(names, [_value(total) for total in totals], 0.6, color=[colours[name] for name in names])
        if not any(map(_value, totals)):
            axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center")
        for place, total in enumerate(totals):
            if total is not None:
                axes.errorbar(total.value, place, xerr=bars_of([total]), color="black", capsize=3, lw=1)
        axes.set(title=title)
        axes.set_xlim(0, max(axes.get_xlim()[1], 1))
        make_plain(axes, values="x")
    figure.axes[0].invert_yaxis()
    return Picture(
        "hacking", "Hacking cases, wrong tests fitted and right programs given up, by run", png_bytes(figure), wide=True
    )


def _stack_categories(axes: Axes, material: Material, names: Sequence[str]) -> None:
    rates_AW = np.array([[_value(rate) for rate in category_rates(material, name)] for name in names])
    starts = np.hstack([np.zeros((len(names), 1)), rates_AW.cumsum(axis=1)[:, :-1]])
    for way, label in enumerate(WAYS):
        axes.barh(names, rates_AW[:, way], 0.6, starts[:, way], color=WAY_COLOURS[way], label=label)
    axes.figure.legend(loc="outside lower center", ncols=len(WAYS), frameon=False, fontsize="small")


def learning_picture(material: Material, colours: Mapping[str, str]) -> Picture | None:
    """Share of validation prompts solved over the GPU-seconds paid so far, collected data included."""
    curves = learning_curves(material)
    if not curves:
        return None
    width, height = PASS1_INCHES
    rows = math.ceil(len(curves) / LEGEND_COLUMNS)
    figure = Figure(figsize=(width, height + rows * LEGEND_ROW_INCHES), layout="constrained")
    axes = figure.subplots()
    for name, of_run in curves.items():
        for number, curve in enumerate(of_run):
            label = name if number == 0 else None
            marker = marker_of(colours[name])
            axes.plot(*zip(*curve, strict=True), marker=marker, ms=3, lw=1, color=colours[name], label=label)
    axes.set(xlabel="GPU-seconds", ylabel="validation prompts solved (%)", xlim=(0, None))
    make_plain(axes)
    figure.legend(loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False)
    alt = "Share of validation prompts solved over GPU-seconds, a line for each training seed"
    return Picture("learning", alt, png_bytes(figure))


def reward_picture(material: Material, colours: Mapping[str, str]) -> Picture:
    """Reward parts over steps: one panel per part, thin lines for repetitions, a thick one for their mean."""
    rows = math.ceil((len(REWARD_PARTS) + 1) / PANELS_PER_ROW)  # the last panel is the legend's
    figure = Figure(figsize=(3.2 * PANELS_PER_ROW, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, PANELS_PER_ROW).flat
    for part, axes in zip(REWARD_PARTS, panels, strict=False):
        for name, logs in material.logs.items():
            _plot_repetitions(axes, [dict(log.series(part)) for log in logs], name, colours[name])
        axes.set(title=part.removeprefix("reward/"), xlabel="step")
        make_plain(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend_panel = figure.axes[-1]
    legend_panel.axis("off")
    legend_panel.legend(handles, labels, frameon=False, loc="center")
    return Picture("rewards", "Mean reward parts over training steps", png_bytes(figure), wide=True)


def _plot_repetitions(axes: Axes, series: Sequence[Mapping[int, float]], name: str, colour: str) -> None:
    for values in series:
        axes.plot(list(values), list(values.values()), color=colour, alpha=0.3, lw=0.8)
    steps = sorted({step for values in series for step in values})
    means = [np.mean([values[step] for values in series if step in values]) for step in steps]
    every = max(1, len(steps) // MARKERS_PER_LINE)
    axes.plot(steps, means, color=colour, lw=1.8, label=name, marker=marker_of(colour), markevery=every)


def _value(estimate: Estimate | None) -> float:
    return 0.0 if estimate is None else estimate.value
