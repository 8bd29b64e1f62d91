"""One question, one figure: ``python -m research report sweep``, Pass@1 at some turns over the values of a setting.

Reads outputs of ``eval_multi_turn.py``, one or more for each value (repetitions: training seeds); a second setting
makes lines. Per cent, with 95 % intervals over problems and repetitions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure
from pydantic.dataclasses import dataclass

from cobalt import figures
from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.evaluation.files import read_evaluations, recorded_rule
from cobalt.figures import FONT_SIZE, FULL, OURS, Curve, Line, Picture
from cobalt.records.manifest import recorded_run
from cobalt.records.training_run import edge_means
from cobalt.tables import Cell
from cobalt.training.training_log import read_training_log
from research.figures import CHARACTER_INCHES, DASHES, MARKERS, PALEST, bars_of, broken, label_ends, label_of
from research.reports.page import Section, Table, mean, table_of, write_report
from research.reports.runs import run_scores

FEW_LINES = 2
"""More lines have a panel each: their bands would hide each other."""
FEWEST_ON_A_CURVE = 4
USUAL_TURNS = (0, 3, 8)
Point = tuple[str, str]
"""Line, "" if there is one only, and value."""
Drawn = tuple[Curve, Line]


@dataclass(frozen=True, kw_only=True)
class SweepConfig(CommandConfig):
    """Table and figure of Pass@1 over the values of one setting."""

    points: tuple[str, ...]
    """VALUE=PATH or LINE:VALUE=PATH, evaluated files in the order of the axis; several of one VALUE are repetitions."""
    logs: tuple[str, ...] = ()
    """As points, metrics.jsonl of the trainings: adds how far the policies went from their start."""
    setting: str
    """What is varied: the axis' label."""
    feedback: Literal["clean", "perturbed"] = "clean"
    """That the policies were shown."""
    turns: tuple[int, ...] = ()
    """The turns that are shown. Default: 0, 3 and 8 as far as there are; with lines, the last."""
    output_dir: Path
    """Folder for sweep.md, sweep.json, sweep.png and sweep.svg."""


def main(config: SweepConfig) -> None:
    points, logs = paths_by_point(config.points), paths_by_point(config.logs)
    if not points:
        raise InputError("no points given: --points VALUE=PATH ...")
    inputs = [path for paths in (*points.values(), *logs.values()) for path in paths]
    page = config.output_dir / "sweep.md"
    with recorded_run("python -m research report sweep", asdict(config), inputs, {page: {}}):
        table = sweep_table(config, points, logs)
        section = Section("", [table], [sweep_picture(table, config.feedback)])
        write_report(page, [section], {**table.to_json(), "feedback": config.feedback})
    print(table.to_markdown_section())


def paths_by_point(specs: Sequence[str]) -> dict[Point, list[Path]]:
    """``VALUE=PATH`` or ``LINE:VALUE=PATH`` texts, in order of first mention. Raises ``InputError``."""
    paths: dict[Point, list[Path]] = {}
    for spec in specs:
        name, _, path = spec.partition("=")
        line, _, value = name.rpartition(":")
        if not path or not value:
            raise InputError(f"'{spec}' is not VALUE=PATH or LINE:VALUE=PATH")
        paths.setdefault((line, value), []).append(Path(path))
    return paths


def sweep_table(config: SweepConfig, points: Mapping[Point, list[Path]], logs: Mapping[Point, list[Path]]) -> Table:
    """Read all files; a row for each point. Raises ``InputError``, also for a log of a value that has no point."""
    for point in logs:
        if point not in points:
            raise InputError(f"--logs {':'.join(filter(None, point))}=...: no point has this value")
    read = {point: [found for path in paths for found in read_evaluations(path)] for point, paths in points.items()}
    scores = {point: run_scores(evaluations, config.feedback) for point, evaluations in read.items()}
    has_lines = any(line for line, _ in points)
    last = min(score.turns for score in scores.values()) - 1
    turns = config.turns or ((last,) if has_lines else tuple(turn for turn in USUAL_TURNS if turn <= last))
    rows: list[Mapping[str, Cell]] = []
    for point, score in scores.items():
        for turn in config.turns:
            if not 0 <= turn < score.turns:
                raise InputError.at(points[point][0], None, f"has turns 0 to {score.turns - 1}, not {turn}")
        losses = [read_training_log(path).series("actor/kl_loss") for path in logs.get(point, ())]
        ends = [edge_means([loss for _, loss in series])[1] for series in losses if series]
        rows.append(
            {
                **({"line": point[0]} if has_lines else {}),
                config.setting: point[1],
                "seeds": len(score.pass1_SPT),
                "problems": len(score.ids),
                **{f"turn {turn}": score.pass1_T[turn] for turn in turns},
                "kl_loss": mean(ends) if ends else None,
            }
        )
    rule = recorded_rule(found.source for evaluations in read.values() for found in evaluations)
    return table_of(
        "sweep",
        f"Pass@1 by {config.setting} (%)",
        f"Share of programs that pass all hidden tests, {config.feedback} feedback, with 95 % intervals over problems "
        "and, where a value has several, training seeds. `kl_loss`: veRL's estimate of the KL divergence from the "
        f"training's start, per token, over the last steps. {rule}",
        rows,
    )


@figures.styled()
def sweep_picture(table: Table, feedback: str) -> Picture:
    """Pass@1 over the values. Values with numbers among them have an order, which a curve of four or more follows."""
    axis = table.columns[table.columns.index("seeds") - 1]
    values = list(dict.fromkeys(map(str, table.column(axis))))
    turns = [name for name in table.columns if name.startswith("turn ")]
    of_line = table.column("line") if "line" in table.columns else [""] * len(table.rows)
    # All lines have the colour of Cobalt, which is what a setting is varied of.
    names, looks = dict.fromkeys(map(str, of_line)), cycle(zip(DASHES, MARKERS, strict=True))
    lines = {name: Line(label_of(name), OURS, *look) for name, look in zip(names, looks, strict=False)}
    curves: dict[str, list[Drawn]] = {turn: [] for turn in turns}
    for turn in turns:
        for name, line in lines.items():
            cells = list(zip(of_line, map(str, table.column(axis)), table.estimates(turn), strict=True))
            points = {values.index(value): estimate for of, value, estimate in cells if of == name}
            curves[turn].append((Curve(name, list(points.values()), list(points)), line))
    has_order = any(re.fullmatch(r"[\d.]+(e-\d+)?", value) for value in values)
    draw = _over_order if has_order and len(values) >= FEWEST_ON_A_CURVE else _in_rows
    figure = draw(curves, axis, values, f"Pass@1, {feedback} feedback (%)")
    return figures.finished(figure, table.key, f"Pass@1 by {axis}, {feedback} feedback")


def _over_order(curves: Mapping[str, Sequence[Drawn]], axis: str, values: Sequence[str], quantity: str) -> Figure:
    """A panel for each turn; for each line instead, if they are many and the turn is one."""
    (first, *others) = curves.values()
    by_line = not others and len(first) > FEW_LINES
    titles = [line.label for _, line in first] if by_line else list(curves)
    figure = figures.new_figure(FULL if len(titles) > 2 else figures.COLUMN, 2.0)
    panels = figure.subplots(1, len(titles), sharex=True, sharey=by_line, squeeze=False)[0]
    for number, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        if by_line:
            for curve, _ in first:
                figures.draw_curve(axes, curve, Line("", PALEST), is_faint=True)
            drawn = [(first[number][0], Line(title, OURS))]
        else:
            drawn = curves[title]
        for curve, line in drawn:
            figures.draw_curve(axes, curve, line)
        panel_inches = figure.get_figwidth() / len(titles)
        axes.set_title(broken(title, panel_inches - 0.2))
        is_crowded = len("  ".join(values)) * CHARACTER_INCHES > panel_inches - 0.6
        turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_crowded else {}
        axes.set_xticks(range(len(values)), [re.sub(r"^1e-(\d+)$", r"$10^{-\1}$", value) for value in values], **turned)
        axes.set_xlim(-0.3, len(values) - 0.7)
        if len(first) > 1 and not by_line and axes is panels[-1]:
            label_ends(axes, drawn)
    figure.supxlabel(axis, fontsize=FONT_SIZE)
    figure.supylabel(quantity, fontsize=FONT_SIZE)
    return figure


def _in_rows(curves: Mapping[str, Sequence[Drawn]], axis: str, values: Sequence[str], quantity: str) -> Figure:
    """A row for each value, a panel for each turn."""
    figure = figures.new_figure(figures.COLUMN, 0.9 + 0.2 * len(values))
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (turn, of_turn) in zip(panels, curves.items(), strict=True):
        for curve, line in of_turn:
            places, points = curve.points()
            axes.errorbar(
                [point.value for point in points],
                places,
                xerr=bars_of(points),
                fmt=line.marker,
                color=line.colour,
                mfc=line.face,
                label=line.label,
            )
        axes.set_title(turn)
        axes.grid(axis="x")
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(values)), values)
    panels[0].set_ylim(len(values) - 0.5, -0.5)
    panels[0].set_ylabel(axis)
    figure.supxlabel(quantity, fontsize=FONT_SIZE)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(handles, labels, loc="outside upper right", ncols=len(handles), handlelength=1)
    return figure
