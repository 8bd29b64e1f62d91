"""One question, one figure: ``cobalt report sweep``, Pass@1 at some turns over the values of a setting.

Reads outputs of ``eval_multi_turn.py``, one or more for each value (repetitions: training seeds); a second setting
makes lines. Writes ``sweep.md``, ``.csv``, ``.json``, ``.png`` and ``.svg`` into a folder. Per cent, with 95 %
bootstrap intervals over problems and repetitions.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.errors import InputError
from cobalt.evaluation.counts import read_evaluations
from cobalt.evaluation.verdict_rule import recorded_rule
from cobalt.figures import (
    CHARACTER_INCHES,
    COLUMN,
    DASHES,
    FONT_SIZE,
    FULL,
    MARKERS,
    OURS,
    PALEST,
    Curve,
    Line,
    Picture,
    bars_of,
    broken,
    draw_curve,
    finished,
    label_ends,
    label_of,
    new_figure,
    styled,
)
from cobalt.records.training_run import edge_means
from cobalt.statistics import Estimate
from cobalt.tables import Cell, Table
from cobalt.training.training_log import TrainingLog
from studies.reports.material import mean
from studies.reports.runs import RunScores, read_logs, run_scores

KL = "actor/kl_loss"
SWEEP_HEIGHT = 2.0
ROW_INCHES = 0.2
LOOKS = list(zip(DASHES, MARKERS, strict=True))
FEW_LINES = 2
"""More lines have a panel each: their bands would hide each other."""
USUAL_TURNS = (0, 3, 8)
Point = tuple[str, str]
"""Line, "" if there is one only, and value."""


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
    """Folder for sweep.md, sweep.csv, sweep.json, sweep.png and sweep.svg."""


@dataclass(frozen=True)
class Sweep:
    """What was read, by point, in the order of the axis."""

    setting: str
    feedback: str
    turns: tuple[int, ...]
    scores: Mapping[Point, RunScores]
    logs: Mapping[Point, Sequence[TrainingLog]]
    rule: str
    """What decided the verdicts."""

    @property
    def lines(self) -> list[str]:
        """In order of first mention."""
        return list(dict.fromkeys(line for line, _ in self.scores))

    @property
    def lined(self) -> bool:
        """Whether a second setting makes lines."""
        return any(self.lines)

    @property
    def values(self) -> list[str]:
        """Of the axis."""
        return list(dict.fromkeys(value for _, value in self.scores))

    def estimates_T(self, point: Point) -> list[Estimate | None]:
        """Pass@1 at ``turns``."""
        return [self.scores[point].pass1_T[turn] for turn in self.turns]


def main(config: SweepConfig) -> None:
    """Read, write, print."""
    points, logs = paths_by_point(config.points), paths_by_point(config.logs)
    if not points:
        raise InputError("no points given: --points VALUE=PATH ...")
    inputs = [path for paths in (*points.values(), *logs.values()) for path in paths]
    page = config.output_dir / "sweep.md"
    with recorded_run("cobalt report sweep", asdict(config), inputs, {page: {}}):
        sweep = read_sweep(config, points, logs)
        table = sweep_table(sweep)
        texts = {"md": table.to_markdown_section() + "\n", "csv": table.to_csv()}
        texts["json"] = json.dumps({**table.to_json(), "feedback": sweep.feedback}, indent=2, ensure_ascii=False) + "\n"
        for suffix, text in texts.items():
            page.with_suffix(f".{suffix}").write_text(text, encoding="utf-8")
        sweep_picture(table, sweep.feedback, "sweep").write(page.parent)
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


def read_sweep(
    config: SweepConfig, points: Mapping[Point, Sequence[Path]], logs: Mapping[Point, Sequence[Path]]
) -> Sweep:
    """Read all files. Raises ``InputError``, also for a log of another value and for a turn that a file lacks."""
    for point in logs:
        if point not in points:
            raise InputError(f"--logs {':'.join(filter(None, point))}=...: no point has this value")
    read = {point: [found for path in paths for found in read_evaluations(path)] for point, paths in points.items()}
    scores = {point: run_scores(evaluations, config.feedback) for point, evaluations in read.items()}
    last = min(score.turns for score in scores.values()) - 1
    usual = (last,) if any(line for line, _ in points) else tuple(turn for turn in USUAL_TURNS if turn <= last)
    for point, score in scores.items():
        for turn in config.turns:
            if not 0 <= turn < score.turns:
                raise InputError.at(points[point][0], None, f"has turns 0 to {score.turns - 1}, not {turn}")
    rule = recorded_rule(found.source for evaluations in read.values() for found in evaluations)
    curves = {point: read_logs(logs[point]) for point in logs}
    return Sweep(config.setting, config.feedback, config.turns or usual, scores, curves, rule)


def sweep_table(sweep: Sweep) -> Table:
    """A row for each point."""
    rows: list[list[Cell]] = []
    for point, score in sweep.scores.items():
        names: list[Cell] = [*point] if sweep.lined else [point[1]]
        seeds, problems = len(score.repetitions_ST), len(score.ids)
        rows.append([*names, seeds, problems, *sweep.estimates_T(point), _last_kl(sweep.logs.get(point, ()))])
    axis = ("line", sweep.setting) if sweep.lined else (sweep.setting,)
    return Table(
        "sweep",
        f"Pass@1 by {sweep.setting} (%)",
        f"Share of programs that pass all hidden tests, {sweep.feedback} feedback, with 95 % intervals over problems "
        "and, where a value has several, training seeds. `kl_loss`: veRL's estimate of the KL divergence from the "
        f"training's start, per token, over the last steps. {sweep.rule}",
        (*axis, "seeds", "problems", *(f"turn {turn}" for turn in sweep.turns), "kl_loss"),
        rows,
    )


def _last_kl(logs: Sequence[TrainingLog]) -> float | None:
    """Mean over the repetitions that logged it."""
    series = [[value for _, value in log.series(KL)] for log in logs]
    last = [edge_means(values)[1] for values in series if values]
    return mean(last) if last else None


@styled()
def sweep_picture(table: Table, feedback: str, key: str) -> Picture:
    """Pass@1 over the values. Values with numbers among them have an order, which a curve follows."""
    axis = table.columns[table.columns.index("seeds") - 1]
    values = list(dict.fromkeys(map(str, table.column(axis))))
    draw = _over_order if any(re.fullmatch(r"[\d.]+(e-\d+)?", value) for value in values) else _in_rows
    figure = draw(table, axis, values, f"Pass@1, {feedback} feedback (%)")
    return finished(figure, key, f"Pass@1 by {axis}, {feedback} feedback")


def _over_order(table: Table, axis: str, values: Sequence[str], quantity: str) -> Figure:
    """A panel for each turn; for each line instead, if they are many and the turn is one."""
    turns, lines = _turns(table), _lines(table)
    by_line = len(turns) == 1 and len(lines) > FEW_LINES
    titles = [line.label for line in lines.values()] if by_line else turns
    figure = new_figure(FULL if len(titles) > 2 else COLUMN, SWEEP_HEIGHT)
    panels = figure.subplots(1, len(titles), sharex=True, sharey=by_line, squeeze=False)[0]
    for number, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        turn = turns[0] if by_line else turns[number]
        curves = {name: _curve(table, axis, values, name, turn) for name in lines}
        drawn = [(curve, lines[name]) for name, curve in curves.items()]
        if by_line:
            for curve in curves.values():
                draw_curve(axes, curve, Line("", PALEST), is_faint=True)
            drawn = [(drawn[number][0], Line(title, OURS))]
        for curve, line in drawn:
            draw_curve(axes, curve, line)
        panel_inches = figure.get_figwidth() / len(titles)
        axes.set_title(broken(title, panel_inches - 0.2))
        is_crowded = len("  ".join(values)) * CHARACTER_INCHES > panel_inches - 0.6
        turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_crowded else {}
        axes.set_xticks(range(len(values)), [re.sub(r"^1e-(\d+)$", r"$10^{-\1}$", value) for value in values], **turned)
        axes.set_xlim(-0.3, len(values) - 0.7)
        if len(lines) > 1 and not by_line and axes is panels[-1]:
            label_ends(axes, drawn)
    figure.supxlabel(axis, fontsize=FONT_SIZE)
    figure.supylabel(quantity, fontsize=FONT_SIZE)
    return figure


def _in_rows(table: Table, axis: str, values: Sequence[str], quantity: str) -> Figure:
    """A row for each value, a panel for each turn."""
    turns, lines = _turns(table), _lines(table)
    figure = new_figure(COLUMN, 0.9 + ROW_INCHES * len(values))
    panels = figure.subplots(1, len(turns), sharey=True, squeeze=False)[0]
    for axes, turn in zip(panels, turns, strict=True):
        for name, line in lines.items():
            places, points = _curve(table, axis, values, name, turn).points()
            shares = [point.value for point in points]
            axes.errorbar(
                shares,
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
    if len(lines) > 1:
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(lines), handlelength=1
        )
    return figure


def _turns(table: Table) -> list[str]:
    return [name for name in table.columns if name.startswith("turn ")]


def _lines(table: Table) -> dict[str, Line]:
    """All in the colour of Cobalt, which is what a setting is varied of."""
    names = list(dict.fromkeys(map(str, table.column("line")))) if "line" in table.columns else [""]
    return {name: Line(label_of(name), OURS, *look) for name, look in zip(names, cycle(LOOKS), strict=False)}


def _curve(table: Table, axis: str, values: Sequence[str], line: str, turn: str) -> Curve:
    of_line = table.column("line") if "line" in table.columns else [""] * len(table.rows)
    rows = [row for row in zip(of_line, table.column(axis), table.estimates(turn), strict=True) if row[0] == line]
    return Curve(line, [estimate for _, _, estimate in rows], [values.index(str(value)) for _, value, _ in rows])
