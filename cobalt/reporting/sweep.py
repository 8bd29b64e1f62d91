"""One question, one figure: ``cobalt report sweep``, Pass@1 at some turns over the values of a setting.

Reads outputs of ``eval_multi_turn.py``, one or more for each value (repetitions: training seeds); a second setting
makes lines. Writes ``sweep.md``, ``.csv``, ``.json`` and ``.png`` into a folder. Per cent, with 95 % bootstrap
intervals over problems and repetitions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.errors import InputError
from cobalt.evaluation.counts import read_evaluations
from cobalt.evaluation.verdict_rule import recorded_rule
from cobalt.figures import COLOURS, bars_of, make_plain, marker_of, png_bytes
from cobalt.records.training_run import edge_means
from cobalt.reporting.material import mean
from cobalt.reporting.runs import RunScores, read_logs, run_scores
from cobalt.reporting.training_log import TrainingLog
from cobalt.statistics import Estimate
from cobalt.tables import Cell, Table

KL = "actor/kl_loss"
INCHES = (6.4, 4.2)
COLUMNS = 3
"""Of the legend, at most."""
TURN_STYLES = ("-", "--", ":")
"""Of a line's turns, where a second setting makes lines."""
SHIFT = 0.06
"""Between the lines' points at one value, so that no interval hides another; values are 1 apart."""
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
    """Folder for sweep.md, sweep.csv, sweep.json and sweep.png."""


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
        texts["json"] = json.dumps(table.to_json(), indent=2, ensure_ascii=False) + "\n"
        for suffix, text in texts.items():
            page.with_suffix(f".{suffix}").write_text(text, encoding="utf-8")
        page.with_suffix(".png").write_bytes(sweep_png(sweep))
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


def sweep_png(sweep: Sweep) -> bytes:
    """A curve for each line and turn, with intervals: a colour for each line, or for each turn without lines."""
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots()
    curves = [(line, number) for line in sweep.lines for number in range(len(sweep.turns))]
    for curve, (line, number) in enumerate(curves):
        shift = SHIFT * (curve - (len(curves) - 1) / 2)
        known = [
            (place + shift, estimate)
            for place, value in enumerate(sweep.values)
            if (line, value) in sweep.scores and (estimate := sweep.estimates_T((line, value))[number]) is not None
        ]
        colour = COLOURS[(sweep.lines.index(line) if sweep.lined else number) % len(COLOURS)]
        axes.errorbar(
            [place for place, _ in known],
            [estimate.value for _, estimate in known],
            bars_of([estimate for _, estimate in known]),
            color=colour,
            marker=marker_of(colour),
            linestyle=TURN_STYLES[number % len(TURN_STYLES)] if sweep.lined else "-",
            capsize=3,
            label=", ".join(filter(None, (line, f"turn {sweep.turns[number]}"))),
        )
    axes.set_xticks(range(len(sweep.values)), sweep.values)
    axes.set(xlabel=sweep.setting, ylabel=f"Pass@1, {sweep.feedback} feedback (%)")
    make_plain(axes)
    rows = ceil(len(curves) / COLUMNS)
    figure.legend(loc="outside lower center", ncols=ceil(len(curves) / rows), frameon=False)
    return png_bytes(figure)
