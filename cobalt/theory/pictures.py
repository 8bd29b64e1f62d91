"""The figures of ``cobalt theory report``, as PNG bytes. A policy has the same colour and marker in all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from cobalt.figures import LEGEND_ROW_INCHES, Picture, bars_of, colours_of, make_plain, marker_of, png_bytes
from cobalt.statistics import Estimate, mean_estimate
from cobalt.tables import PERCENT, in_percent
from cobalt.theory.bounds import Bounds
from cobalt.theory.contexts import OWN, REFERENCE
from cobalt.theory.failure_cost import Continuation, continuations
from cobalt.theory.measures import Measures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 9.6, 3.8
LEGEND_COLUMNS = 4
SPREAD = 0.4
"""Of a turn's points beside each other, in turns: intervals must not hide each other."""
BOUNDS: dict[str, tuple[str, Callable[[Bounds], float]]] = {
    "|J - J_step|/T": ("o", lambda found: abs(found.gap.value)),
    "TV, shift": ("s", lambda found: found.shift.value),
    "TV, linear in T": ("^", lambda found: found.linear.value),
    "(2+C)sqrt(eta/2)": ("D", lambda found: found.paper),
}
"""What is drawn over √η, from below; marker and value."""


def all_pictures(policies: Sequence[Measures], bounds: Mapping[str, Bounds]) -> list[Picture]:
    """In the order of the report."""
    return [gap_picture(bounds), distance_picture(policies), failure_cost_picture(policies)]


def gap_picture(bounds: Mapping[str, Bounds]) -> Picture:
    """Left the gap of each policy with its interval over √η; right, on a logarithmic axis, beside its bounds."""
    figure, (gaps, scales) = _two_panels(len(bounds))
    for name, colour in colours_of(list(bounds)).items():
        found, marker = bounds[name], marker_of(colour)
        error = [[PERCENT * length for length in side] for side in bars_of([found.gap])]
        gaps.errorbar(found.scale, PERCENT * found.gap.value, error, fmt=marker, color=colour, label=name, capsize=3)
    gaps.axhline(0, color="black", lw=0.8)
    gaps.set(xlabel="sqrt(eta)", ylabel="(J - J_step)/T (points)", title="The gap")
    _draw_bounds(scales, [found for found in bounds.values() if found.radius > 0])
    return _finished(figure, "gap", "The gap between the objectives over the square root of the KL radius")


def _draw_bounds(axes: "Axes", found: Sequence[Bounds]) -> None:
    for label, (marker, value_of) in BOUNDS.items():
        points = [(bounds.scale, PERCENT * value_of(bounds)) for bounds in found if value_of(bounds) > 0]
        if points:
            axes.plot(*zip(*points, strict=True), marker, color="black", mfc="white", label=label)
    axes.set(xlabel="sqrt(eta)", ylabel="points per turn", title="The gap beside its bounds")
    if found:
        axes.set_yscale("log")
        axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))  # hides no point


def distance_picture(policies: Sequence[Measures]) -> Picture:
    """KL (logarithmic) and total variation by turn: on the reference's contexts, and dashed on the policy's own."""
    figure, (kls, tvs) = _two_panels(len(policies))
    for policy, style in _styles(policies):
        for side, line in ((REFERENCE, "-"), (OWN, "--")):
            side_style = replace(style, line=line, label=style.label if side == REFERENCE else None)
            _draw_turns(kls, [mean_estimate(kl_P.tolist()) for kl_P in policy.kl_PT[side].T], side_style)
            tv_T = [in_percent(mean_estimate(tv_P.tolist())) for tv_P in policy.tv_PT[side].T]
            _draw_turns(tvs, tv_T, side_style)
    if any((policy.kl_PT[REFERENCE] > 0).any() for policy in policies):
        kls.set_yscale("log", nonpositive="mask")
    kls.set(xlabel="turn", ylabel="KL to the reference (nats)", title="KL (dashed: in its own contexts)")
    tvs.set(xlabel="turn", ylabel="total variation (%)", title="Total variation (dashed: in its own contexts)")
    return _finished(figure, "distance", "KL and total variation to the reference by turn")


def failure_cost_picture(policies: Sequence[Measures]) -> Picture:
    """The cost of a failed program in later turns: with the mean continuation, and with the best one."""
    figure, panels = _two_panels(len(policies), sharey=True)
    costs: tuple[tuple[str, Callable[[Continuation], Estimate | None]], ...] = (
        ("Mean continuation", lambda row: row.cost),
        ("Best continuation", lambda row: row.best_cost),
    )
    for axes, (title, cost_of) in zip(panels, costs, strict=True):
        for policy, style in _styles(policies):
            _draw_turns(axes, [in_percent(cost_of(row)) for row in continuations(policy.own_solved)], style)
        axes.axhline(0, color="black", lw=0.8)
        axes.set(xlabel="turn that failed", title=title)
    panels[0].set_ylabel("cost per later turn (points)")
    return _finished(figure, "failure_cost", "What a failed program costs in later turns")


@dataclass(frozen=True)
class _Style:
    label: str | None
    colour: str
    shift: float
    """To the right, in turns."""
    line: str = "-"


def _styles(policies: Sequence[Measures]) -> list[tuple[Measures, _Style]]:
    """Policies stand beside each other within a turn."""
    colours = colours_of([policy.name for policy in policies])
    middle = (len(policies) - 1) / 2
    return [
        (policy, _Style(policy.name, colours[policy.name], SPREAD * (number - middle) / len(policies)))
        for number, policy in enumerate(policies)
    ]


def _draw_turns(axes: "Axes", estimates_T: Sequence[Estimate | None], style: _Style) -> None:
    points = [(turn + style.shift, estimate) for turn, estimate in enumerate(estimates_T) if estimate is not None]
    axes.errorbar(
        [place for place, _ in points],
        [estimate.value for _, estimate in points],
        bars_of([estimate for _, estimate in points]),
        ls=style.line,
        marker=marker_of(style.colour),
        color=style.colour,
        label=style.label,
        lw=1,
        capsize=2,
    )
    axes.set_xticks(range(len(estimates_T)))


def _two_panels(entries: int, sharey: bool = False) -> "tuple[Figure, Sequence[Axes]]":
    """A figure with room for a legend of ``entries`` below."""
    from matplotlib.figure import Figure

    height = HEIGHT + LEGEND_ROW_INCHES * ceil(entries / LEGEND_COLUMNS)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(1, 2, sharey=sharey)


def _finished(figure: "Figure", key: str, alt: str) -> Picture:
    for axes in figure.axes:
        make_plain(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False)
    return Picture(key, alt, png_bytes(figure))
