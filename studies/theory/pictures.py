"""The figures of ``cobalt theory report``, drawn from its tables. A policy has the same colour in all of them."""

from collections.abc import Mapping, Sequence

from cobalt.figures import (
    FONT_SIZE,
    FULL,
    GREYS,
    METHODS,
    OURS,
    Curve,
    Line,
    Picture,
    bars_of,
    draw_curve,
    finished,
    label_ends,
    new_figure,
    series_of,
    styled,
)
from cobalt.statistics import Estimate
from cobalt.tables import Table

GAP, BOUNDS, DISTANCE, COST = "gap", "bounds", "distance", "failure_cost"
"""Tables that are drawn; the last names its figure too."""
BOUND_STYLES = {
    "gap": (r"$|J - J_\mathrm{step}|\,/\,T$", OURS, "o"),
    "TV, shift": ("bound by shift", GREYS[0], "s"),
    "TV, linear in T": ("bound linear in $T$", GREYS[2], "^"),
    "(2+C)sqrt(eta/2)": (r"$(2 + C)\sqrt{\eta/2}$", GREYS[3], "D"),
}
"""Columns of the table of bounds, from below: label, colour, marker."""
CONTEXTS = {"the reference's": "in the reference's contexts", "its own": "in its own contexts"}
COSTS = {"cost": ("mean continuation", "-"), "cost, best": ("best continuation", "--")}
ROW_INCHES = 0.2


def all_pictures(tables: Mapping[str, Table]) -> list[Picture]:
    """In the order of the report; ``tables`` by key."""
    lines = _lines([str(name) for name in tables[GAP].column("policy")])
    return [
        _gap_picture(tables[GAP], tables[BOUNDS], lines),
        _distance_picture(tables[DISTANCE], lines),
        _cost_picture(tables[COST], lines),
    ]


def _lines(policies: Sequence[str]) -> dict[str, Line]:
    """The base is grey as everywhere; the others are ours."""
    ours = series_of([name for name in policies if name not in METHODS])
    return {name: METHODS.get(name) or ours[name] for name in policies}


@styled()
def _gap_picture(gaps: Table, bounds: Table, lines: Mapping[str, Line]) -> Picture:
    """A row for each policy, by √η: left the gap with its interval, right, on a logarithmic axis, beside its bounds."""
    radii = {str(name): eta for name, eta in zip(gaps.column("policy"), gaps.estimates("eta (nats)"), strict=True)}
    roots = {name: eta.value**0.5 for name, eta in radii.items() if eta is not None}
    places = {name: place for place, name in enumerate(sorted(roots, key=lambda name: roots[name]))}
    figure = new_figure(FULL, 0.9 + ROW_INCHES * len(places))
    left, right = figure.subplots(1, 2, sharey=True)
    for name, gap in zip(map(str, gaps.column("policy")), gaps.estimates("gap (points)"), strict=True):
        if gap is not None:
            left.errorbar(
                gap.value, places[name], xerr=bars_of([gap]), marker=lines[name].marker, color=lines[name].colour
            )
    left.locator_params(axis="x", steps=[1, 2, 5, 10])
    left.axvline(0, color="black", lw=0.6)
    left.set(xlabel=r"$(J - J_\mathrm{step})\,/\,T$ (points)")
    left.set_yticks(
        list(places.values()), [rf"{lines[name].label}  ($\sqrt{{\eta}} = {roots[name]:.2f}$)" for name in places]
    )
    left.set_ylim(len(places) - 0.5, -0.5)
    for column, (label, colour, marker) in BOUND_STYLES.items():
        found = zip(map(str, bounds.column("policy")), bounds.estimates(column), strict=True)
        points = [(abs(bound.value), places[name]) for name, bound in found if bound is not None and roots[name] > 0]
        right.plot([size for size, _ in points], [place for _, place in points], marker, color=colour, label=label)
    right.set(xlabel="points per turn")
    if any(roots.values()):
        right.set_xscale("log")
    for axes in (left, right):
        axes.grid(axis="x")
        axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper right", ncols=len(BOUND_STYLES))
    return finished(figure, GAP, "The gap between the objectives by policy, and beside its bounds")


@styled()
def _distance_picture(table: Table, lines: Mapping[str, Line]) -> Picture:
    """KL (logarithmic) and total variation by turn, in the reference's contexts and in each policy's own.

    A policy that is the reference is at no distance, and left out.
    """
    figure = new_figure(FULL, 3.6)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, (contexts, words) in enumerate(CONTEXTS.items()):
        for axes, quantity in zip(panels[:, column], (_kl, lambda found: found.estimates("TV (%)")), strict=True):
            rows = list(zip(*map(table.column, ("policy", "contexts", "turn")), quantity(table), strict=True))
            drawn = []
            for name, line in lines.items():
                values = [value for policy, side, _, value in rows if (policy, side) == (name, contexts)]
                if any(value is not None and value.value for value in values):
                    drawn.append((Curve(name, values), line))
                    draw_curve(axes, *drawn[-1])
            axes.set_xticks(sorted({int(str(turn)) for _, _, turn, _ in rows}))
            if column == 1 and drawn:
                label_ends(axes, drawn)
        panels[0, column].set(title=words)
        panels[1, column].set(xlabel="turn")
    panels[0, 0].set(ylabel=r"$\mathrm{KL}(\pi\,\|\,\mu)$ (nats)")
    panels[1, 0].set(ylabel="total variation (%)")
    return finished(figure, DISTANCE, "KL and total variation to the reference by turn")


def _kl(table: Table) -> list[Estimate | None]:
    """The table holds the interval in columns of its own."""
    ends = (table.estimates(f"KL{end}") for end in ("", " low", " high"))
    return [
        None if value is None else Estimate(value.value, low and low.value, high and high.value)
        for value, low, high in zip(*ends, strict=True)
    ]


@styled()
def _cost_picture(table: Table, lines: Mapping[str, Line]) -> Picture:
    """The cost of a failed program in later turns, a panel for each policy: mean continuation, and the best one."""
    columns = min(3, len(lines))
    rows = -(-len(lines) // columns)
    figure = new_figure(FULL, 0.6 + 1.3 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(lines) :]:
        axes.set_visible(False)
    for axes, (name, line) in zip(grid.flat, lines.items(), strict=False):
        for column, (words, dash) in COSTS.items():
            found = zip(table.column("policy"), table.estimates(column), strict=True)
            costs = Curve(name, [cost for policy, cost in found if policy == name])
            draw_curve(axes, costs, Line(words, line.colour, dash, line.marker), is_faint=column != "cost")
            axes.set_xticks(range(len(costs.estimates)))
        axes.axhline(0, color="black", lw=0.6)
        axes.set_title(line.label, color=line.colour)
        axes.xaxis.set_tick_params(labelbottom=True)
    labels = [words for words, _ in COSTS.values()]
    figure.legend(grid[0, 0].lines[: len(labels)], labels, loc="outside upper right", ncols=len(labels))
    figure.supxlabel("turn that failed", fontsize=FONT_SIZE)
    figure.supylabel("cost per later turn (points)", fontsize=FONT_SIZE)
    return finished(figure, COST, "What a failed program costs in later turns")
