"""``python -m research theory report``: measured policies side by side, as tables and figures.

Rewards are in per cent of the turns, KL in nats; intervals are over problems.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from pydantic.dataclasses import dataclass

from cobalt import figures
from cobalt.cli.console import print_summary
from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.figures import FONT_SIZE, FULL, GREYS, OURS, Curve, Line, Picture
from cobalt.records import write_jsonl
from cobalt.records.manifest import recorded_run
from cobalt.statistics import Estimate
from cobalt.tables import PERCENT, Cell, in_percent
from research.figures import METHODS, bars_of, draw_faint, label_ends, label_of, series_of
from research.reports.page import Section, Table, table_of, write_report
from research.seeds import hierarchical_mean
from research.theory.bound import (
    OWN,
    REFERENCE,
    Measures,
    bounds_of,
    continuations,
    over_problems,
    read_measures,
    repairs,
)  # fmt: skip
from research.theory.slopes import Slopes, Trainings, failing_P, slopes_of, trainings_of

SIDE_WORDS = {REFERENCE: "the reference's", OWN: "its own"}
BOUND_STYLES = {
    "gap": (r"$|J - J_\mathrm{step}|\,/\,T$", OURS, "o"),
    "TV, shift": ("bound by shift", GREYS[0], "s"),
    "TV, linear in T": ("bound linear in $T$", GREYS[2], "^"),
    "(2+C)sqrt(eta/2)": (r"$(2 + C)\sqrt{\eta/2}$", GREYS[3], "D"),
}
"""Columns of the table of bounds, from below: label, colour, marker."""


@dataclass(frozen=True, kw_only=True)
class TheoryReportConfig(CommandConfig):
    """Tables and figures of measured policies: the gap beside its bounds, distances, the cost of a failure, repair."""

    input_files: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-i"])]
    """Outputs of `theory measure`, or counts of an earlier report, in the order in which they are to be shown. A
    file's name is its policy's."""
    output_dir: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for report.md, report.json, a PNG and an SVG for each figure, and the counts by
    problem that the report can be made from again."""


def main(config: TheoryReportConfig) -> None:
    policies = [read_measures(path) for path in config.input_files]
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two input files are named {name}; a file's name is its policy's")
    if len({policy.turns for policy in policies}) > 1:
        raise InputError(f"the files differ in turns: {', '.join(f'{p.name} {p.turns}' for p in policies)}")
    page = config.output_dir / "report.md"
    with recorded_run("python -m research theory report", asdict(config), config.input_files, {page: {}}) as run:
        tables = {table.key: table for table in all_tables(policies) if table.rows}
        pictures = all_pictures(tables)
        content = {key: table.to_json() for key, table in tables.items()}
        write_report(page, [Section("", list(tables.values()), pictures)], content, "The bound, measured")
        for policy in policies:
            write_jsonl(config.output_dir / "counts" / f"{policy.name}.jsonl", policy.counts)
        run.counts = {"policies": len(policies), "tables": len(tables), "figures": len(pictures)}
    print(tables["gap"].to_markdown_section())
    print_summary("python -m research theory report", {**run.counts, "page": page})


def all_tables(policies: Sequence[Measures]) -> Iterator[Table]:
    """In the order of the report."""
    bounds = [(policy, bounds_of(policy)) for policy in policies]
    references = [policy for policy, found in bounds if found.radius == 0]
    gaps_PT = {policy.name: policy.own_PT - policy.step_PT for policy in policies}
    # The contexts of turn 0 are the same, so what it adds is noise.
    so_far_PT = {name: np.cumsum(gap_PT * (np.arange(gap_PT.shape[1]) > 0), 1) for name, gap_PT in gaps_PT.items()}
    yield table_of(
        "gap",
        "The two objectives",
        "gap = (J - J_step)/T. eta: the largest mean KL(policy||reference) of a turn. constant = (J - J_step)/"
        "(T sqrt(eta)): a bound c T sqrt(eta) holds for a policy if c is at least its absolute value; its interval is "
        "the gap's.",
        [
            {
                "policy": policy.name,
                "problems": policy.problems,
                "T": policy.turns,
                "J/T (%)": in_percent(found.multi_turn),
                "J_step/T (%)": in_percent(found.stepwise),
                "gap (points)": in_percent(found.gap),
                "eta (nats)": found.radius,
                **_interval("constant", found.constant),
            }
            for policy, found in bounds
        ],
    )
    worst = PERCENT * (1 - 1 / policies[0].turns)
    yield table_of(
        "bounds",
        "The gap and its bounds",
        f"All in points per turn: sqrt(eta) is T sqrt(eta) divided by T. No gap can exceed (T-1)/T, here {worst:.1f}: "
        "a bound above that says nothing. The first bound holds for the measured total variation; the other two take "
        "for C what failing costs the reference's trajectories on average, where the derivation wants the largest "
        "cost there is: estimates, no certificates.",
        [
            {
                "policy": policy.name,
                "gap": in_percent(found.gap),
                "TV, shift": in_percent(found.shift),
                "TV, linear in T": in_percent(found.linear),
                "(2+C)sqrt(eta/2)": PERCENT * found.paper,
                "sqrt(eta)": PERCENT * found.radius**0.5,
                "C (turns)": max(found.costs_T, default=0.0),
            }
            for policy, found in bounds
        ],
    )
    if references:
        trainings = [(found, slopes_of(found)) for found in trainings_of(policies, references[0])]
        yield table_of(
            "steps",
            "After so many steps",
            "Means over training seeds, intervals over problems and seeds. Difference: the gap minus the reference's, "
            "which only chance makes. Failing contexts: those of the reference, of any turn, that hold failed programs "
            "alone; all policies answer the same.",
            [row for found, slopes in trainings for row in _step_rows(found, slopes, references[0])],
        )
        yield table_of(
            "horizon",
            "By the number of turns",
            "J - J_step of conversations of T turns, in points and not divided by T, minus the reference's.",
            [row for found, _ in trainings for row in _horizon_rows(found)],
        )
        yield table_of(
            "slopes",
            "How the gap grows",
            "The difference of the table above as a power of eta, and J - J_step of conversations of 2 to T turns as a "
            "power of T - 1. The factor is in points: the gap at eta = 1, and that of two turns. Reading: which of the "
            "exponents 1/2 and 1 in eta, 1 and 2 in T - 1, the interval holds.",
            [row for found, slopes in trainings for row in _slope_rows(found, slopes)],
        )
    yield table_of(
        "turns",
        "Turn by turn",
        "Share of programs that pass all hidden tests, in the policy's own play and on the reference's contexts. At "
        "turn 0 the contexts are the same: the difference must vanish within its interval, and J_step takes J's term. "
        "Gap so far: J - J_step of conversations that end with this turn, not divided by T.",
        [
            {
                "policy": policy.name,
                "turn": turn,
                "own (%)": in_percent(over_problems(policy.own_PT[:, turn])),
                "step (%)": in_percent(over_problems(policy.step_PT[:, turn])),
                "own - step": in_percent(over_problems(gaps_PT[policy.name][:, turn])),
                "gap so far": in_percent(over_problems(so_far_PT[policy.name][:, turn])),
            }
            for policy in policies
            for turn in range(policy.turns)
        ],
    )
    yield table_of(
        "distance",
        "Distance to the reference",
        "Of whole responses, sampled from the policy. KL and log-ratio estimate the same number without bias, the "
        "first with less noise (it adds up the KL of each next token). TV <= sqrt(KL/2) by Pinsker's inequality.",
        [
            {
                "policy": policy.name,
                "contexts": words,
                "turn": turn,
                **_interval("KL", kl := over_problems(policy.kl_PT[side][:, turn])),
                **_interval("log-ratio", over_problems(policy.log_ratio_PT[side][:, turn])),
                "TV (%)": in_percent(over_problems(policy.tv_PT[side][:, turn])),
                "sqrt(KL/2) (%)": PERCENT * (max(0.0, kl.value) / 2) ** 0.5,
            }
            for policy in policies
            for side, words in SIDE_WORDS.items()
            for turn in range(policy.turns)
        ],
    )
    yield table_of(
        "failure_cost",
        "What a failed program costs later",
        "Pass rate over the turns left, in per cent. Of trajectories in which nothing passed before this turn: its "
        "program passed, or failed too; problems that have both. 'best': of as many trajectories as the smaller group "
        "has. The cost comes on top of the lost turn. The cost of a failure is bounded if cost times turns left is, "
        "whatever T is.",
        [
            {
                "policy": policy.name,
                "turn": after.turn,
                "turns left": after.turns_left,
                "problems": after.problems,
                "after a pass": in_percent(after.mean.first),
                "after a failure": in_percent(after.mean.second),
                "cost": in_percent(after.mean.difference),
                "best after a pass": in_percent(after.best.first),
                "best after a failure": in_percent(after.best.second),
                "cost, best": in_percent(after.best.difference),
            }
            for policy in policies
            for after in continuations(policy.own_solved)
        ],
    )
    yield table_of(
        "repair",
        "Repair on common failing contexts",
        "Share of programs that pass all hidden tests in contexts that hold failed programs only, written by the "
        "reference. Policy and reference answer the same contexts, so neither meets harder failures than the other.",
        [
            {
                "policy": policy.name,
                "turn": repair.turn,
                "problems": repair.problems,
                "contexts": repair.contexts,
                "policy (%)": in_percent(repair.rewards.first),
                "reference (%)": in_percent(repair.rewards.second),
                "policy - reference": in_percent(repair.rewards.difference),
            }
            for policy in policies
            for repair in repairs(policy)
        ],
    )


def _step_rows(found: Trainings, slopes: Slopes, reference: Measures) -> Iterator[dict[str, Cell]]:
    """Of the table of steps; the reference first."""
    own_PSK, step_PSK = found.own_PSKT.mean(-1), found.step_PSKT.mean(-1)
    alone = bounds_of(reference)
    yield {
        "policy": reference.name,
        "problems": reference.problems,
        "J/T (%)": in_percent(alone.multi_turn),
        "J_step/T (%)": in_percent(alone.stepwise),
        "gap (points)": in_percent(alone.gap),
        "failing contexts (%)": _seed_mean(failing_P(reference)[:, None]),
    }
    for place, step in enumerate(found.steps):
        yield {
            "policy": f"{found.arm}, step {step}",
            "problems": len(own_PSK),
            "seeds": own_PSK.shape[1],
            "J/T (%)": _seed_mean(own_PSK[:, :, place]),
            "J_step/T (%)": _seed_mean(step_PSK[:, :, place]),
            "gap (points)": _seed_mean(own_PSK[:, :, place] - step_PSK[:, :, place]),
            "difference": _seed_mean(found.gap_PSKT[:, :, place].mean(-1)),
            **_interval("eta", slopes.eta_K[place]),
            "failing contexts (%)": _seed_mean(found.failing_PSK[:, :, place]),
        }


def _horizon_rows(found: Trainings) -> Iterator[dict[str, Cell]]:
    """Of the table of turns that conversations have."""
    so_far_PSKT = np.cumsum(found.gap_PSKT, axis=-1)
    for place, step in enumerate(found.steps):
        for turn in range(so_far_PSKT.shape[-1]):
            difference = _seed_mean(so_far_PSKT[:, :, place, turn])
            yield {"policy": f"{found.arm}, step {step}", "T": turn + 1, "difference": difference}


def _seed_mean(values_PS: np.ndarray) -> Cell:
    """In per cent, over problems and seeds; NaN: no value."""
    resampled = hierarchical_mean(values_PS.T)
    return None if resampled is None else in_percent(resampled.estimate)


def _slope_rows(found: Trainings, slopes: Slopes) -> Iterator[dict[str, Cell]]:
    """Of the table of slopes."""
    in_turns = [
        (f"step {step}", "T - 1", slope, (1, 2)) for step, slope in zip(found.steps, slopes.in_turns_K, strict=True)
    ]
    all_steps = ", ".join(map(str, found.steps))
    in_eta = [(f"steps {all_steps}", "eta", slopes.in_eta, (0.5, 1))]
    in_eta += [(f"steps {all_steps.rpartition(', ')[0]}", "eta", slopes.in_eta_without_last, (0.5, 1))]
    for policies, variable, slope, candidates in [*in_eta, *in_turns]:
        if slope is not None:
            yield {
                "policies": f"{found.arm}, {policies}",
                "in": variable,
                **_interval("exponent", slope.exponent),
                "factor (points)": in_percent(slope.factor),
                "reading": slope.reading(candidates),
            }


def _interval(name: str, estimate: Estimate | None) -> dict[str, Cell]:
    """Value and bounds as numbers in columns of their own: estimates are shown to a decimal only."""
    cells = [None] * 3 if estimate is None else [estimate.value, estimate.low, estimate.high]
    return dict(zip((name, f"{name} low", f"{name} high"), cells, strict=True))


@figures.styled()
def all_pictures(tables: Mapping[str, Table]) -> list[Picture]:
    """In the order of the report; ``tables`` by key. A policy has one colour in all: the base grey, others ours."""
    names = [str(name) for name in tables["gap"].column("policy")]
    labels = list(dict.fromkeys(label_of(name) for name in names if name not in METHODS))  # seeds have one together
    ours = dict(zip(labels, series_of(labels), strict=True))
    lines = {name: METHODS.get(name) or ours[label_of(name)] for name in names}
    pictures = [_gap_picture(tables["gap"], tables["bounds"], lines), _distance_picture(tables["distance"], lines)]
    if "slopes" in tables:
        pictures.append(_slopes_picture(tables))
    if "failure_cost" in tables:  # trajectories of one turn have none
        pictures.append(_cost_picture(tables["failure_cost"], lines))
    return pictures


def _gap_picture(gaps: Table, bounds: Table, lines: Mapping[str, Line]) -> Picture:
    """A row for each policy, by √η: left the gap with its interval, right, on a logarithmic axis, beside its bounds."""
    roots = {name: eta.value**0.5 for name, eta in zip(lines, gaps.estimates("eta (nats)"), strict=True) if eta}
    places = {name: place for place, name in enumerate(sorted(roots, key=lambda name: roots[name]))}
    figure = figures.new_figure(FULL, 0.9 + 0.2 * len(places))
    left, right = figure.subplots(1, 2, sharey=True)
    for (name, line), gap in zip(lines.items(), gaps.estimates("gap (points)"), strict=True):
        if gap is not None:
            left.errorbar(gap.value, places[name], xerr=bars_of([gap]), marker=line.marker, color=line.colour)
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
    return figures.finished(figure, "gap", "The gap between the objectives by policy, and beside its bounds")


def _distance_picture(table: Table, lines: Mapping[str, Line]) -> Picture:
    """KL and total variation by turn, in the reference's contexts and in each policy's own.

    A policy that is the reference is at no distance, and left out.
    """
    ends = (table.estimates(f"KL{end}") for end in ("", " low", " high"))
    kl = [
        None if value is None else Estimate(value.value, low and low.value, high and high.value)
        for value, low, high in zip(*ends, strict=True)
    ]
    figure = figures.new_figure(FULL, 3.6)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, side in enumerate(SIDE_WORDS.values()):
        for axes, quantity in zip(panels[:, column], (kl, table.estimates("TV (%)")), strict=True):
            rows = list(zip(table.column("policy"), table.column("contexts"), quantity, strict=True))
            drawn = []
            for name, line in lines.items():
                values = [value for policy, contexts, value in rows if (policy, contexts) == (name, side)]
                if any(value is not None and value.value for value in values):
                    drawn.append((Curve(name, values), line))
                    figures.draw_curve(axes, *drawn[-1])
            axes.set_xticks(sorted({int(str(turn)) for turn in table.column("turn")}))
            if column == 1 and drawn:
                label_ends(axes, list({line: (curve, line) for curve, line in drawn}.values()))
        panels[0, column].set(title=f"in {side} contexts")
        panels[1, column].set(xlabel="turn")
    panels[0, 0].set(ylabel=r"$\mathrm{KL}(\pi\,\|\,\mu)$ (nats)")
    panels[1, 0].set(ylabel="total variation (%)")
    return figures.finished(figure, "distance", "KL and total variation to the reference by turn")


def _slopes_picture(tables: Mapping[str, Table]) -> Picture:
    """Left, on logarithmic axes, the gap by η, beside two powers through its last point; right by the turns after the
    first. Policies after so many steps have the colours of the other figures if there is one training method."""
    figure = figures.new_figure(FULL, 2.4)
    left, right = figure.subplots(1, 2)
    points = zip(*(tables["steps"].estimates(name) for name in ("eta", "difference")), strict=True)
    places = [(eta.value, gap) for eta, gap in points if eta is not None and gap is not None]
    names = list(dict.fromkeys(map(str, tables["horizon"].column("policy"))))
    lines = [replace(line, label=name.rpartition(", ")[2]) for name, line in zip(names, series_of(names), strict=True)]
    for (eta, gap), line in zip(places, lines, strict=True):
        bars = {"yerr": bars_of([gap]), "marker": line.marker, "color": line.colour, "markerfacecolor": line.face}
        left.errorbar(eta, gap.value, **bars)
    last_eta, last_gap = max(places, key=lambda place: place[0])
    if last_eta > 0 and last_gap.value > 0:
        left.set(xscale="log", yscale="log")
        etas = np.array([min(eta for eta, _ in places if eta > 0), last_eta])
        for power, dash, label in ((0.5, "--", r"$\propto \sqrt{\eta}$"), (1.0, ":", r"$\propto \eta$")):
            left.plot(etas, last_gap.value * (etas / last_eta) ** power, dash, color=GREYS[0], label=label, zorder=1)
        left.legend()
    left.set(xlabel=r"$\eta$ (nats)", ylabel=r"$(J - J_\mathrm{step})\,/\,T$ (points)")
    drawn = []
    found = list(zip(tables["horizon"].column("policy"), tables["horizon"].estimates("difference"), strict=True))
    for name, line in zip(names, lines, strict=True):
        drawn.append((Curve(name, [estimate for policy, estimate in found if policy == name]), line))
        figures.draw_curve(right, *drawn[-1])
    right.locator_params(axis="x", integer=True)
    right.set(xlabel="turns after the first", ylabel=r"$J - J_\mathrm{step}$ (points)")
    label_ends(right, drawn)
    return figures.finished(figure, "slopes", "The gap by the distance to the reference, and by the number of turns")


def _cost_picture(table: Table, lines: Mapping[str, Line]) -> Picture:
    """The cost of a failed program in later turns, a panel for each line: mean continuation, and the best one."""
    panels = len(set(lines.values()))
    columns = min(3, panels)
    rows = -(-panels // columns)
    figure = figures.new_figure(FULL, 0.6 + 1.3 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[panels:]:
        axes.set_visible(False)
    panel_of = dict(zip(dict.fromkeys(lines.values()), grid.flat, strict=False))
    for name, line in lines.items():
        axes = panel_of[line]
        for column, dash in (("cost", "-"), ("cost, best", "--")):
            found = zip(table.column("policy"), table.estimates(column), strict=True)
            costs = Curve(name, [cost for policy, cost in found if policy == name])
            draw = figures.draw_curve if column == "cost" else draw_faint
            draw(axes, costs, Line("", line.colour, dash, line.marker))
            axes.set_xticks(range(len(costs.estimates)))
        axes.axhline(0, color="black", lw=0.6)
        axes.set_title(line.label, color=line.colour)
        axes.xaxis.set_tick_params(labelbottom=True)
    labels = ("mean continuation", "best continuation")
    figure.legend(grid[0, 0].lines[: len(labels)], labels, loc="outside upper right", ncols=len(labels))
    figure.supxlabel("turn that failed", fontsize=FONT_SIZE)
    figure.supylabel("cost per later turn (points)", fontsize=FONT_SIZE)
    return figures.finished(figure, "failure_cost", "What a failed program costs in later turns")
