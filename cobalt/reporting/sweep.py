"""One question, one figure: ``cobalt report sweep``, Pass@1 at some turns over the values of a setting.

Reads outputs of ``eval_multi_turn.py``, one or more for each value (repetitions: training seeds); writes ``sweep.md``,
``.csv``, ``.json`` and ``.png`` into a folder. Per cent, with 95 % bootstrap intervals over problems and repetitions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.errors import InputError
from cobalt.evaluation.verdict_rule import recorded_rule
from cobalt.figures import COLOURS, bars_of, make_plain, marker_of, png_bytes
from cobalt.records.training_run import edge_means
from cobalt.reporting.material import mean
from cobalt.reporting.runs import RunScores, read_logs, read_run_scores
from cobalt.reporting.training_log import TrainingLog
from cobalt.statistics import Estimate
from cobalt.tables import Cell, Table

KL = "actor/kl_loss"
INCHES = (6.4, 4.2)
SHIFT = 0.06
"""Between the turns' points at one value, so that no interval hides another; values are 1 apart."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig(CommandConfig):
    """Table and figure of Pass@1 over the values of one setting."""

    points: tuple[str, ...]
    """VALUE=PATH, evaluated files in the order of the axis; several of one VALUE are repetitions."""
    logs: tuple[str, ...] = ()
    """VALUE=PATH, metrics.jsonl of the trainings: adds how far the policies went from their start."""
    setting: str
    """What is varied: the axis' label."""
    turns: tuple[int, ...] = (0, 3, 8)
    """The turns that are shown."""
    output_dir: Path
    """Folder for sweep.md, sweep.csv, sweep.json and sweep.png."""


@dataclass(frozen=True)
class Sweep:
    """What was read, by value, in the order of the axis."""

    setting: str
    turns: tuple[int, ...]
    scores: Mapping[str, RunScores]
    logs: Mapping[str, Sequence[TrainingLog]]
    rule: str
    """What decided the verdicts."""

    def estimates_T(self, value: str) -> list[Estimate | None]:
        """Pass@1 at ``turns``."""
        return [self.scores[value].pass1_T[turn] for turn in self.turns]


def main(config: SweepConfig) -> None:
    """Read, write, print."""
    points, logs = paths_by_value(config.points), paths_by_value(config.logs)
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


def paths_by_value(specs: Sequence[str]) -> dict[str, list[Path]]:
    """``VALUE=PATH`` texts, in order of first mention. Raises ``InputError``."""
    paths: dict[str, list[Path]] = {}
    for spec in specs:
        value, equals, path = spec.partition("=")
        if not equals or not value:
            raise InputError(f"'{spec}' is not VALUE=PATH")
        paths.setdefault(value, []).append(Path(path))
    return paths


def read_sweep(config: SweepConfig, points: Mapping[str, Sequence[Path]], logs: Mapping[str, Sequence[Path]]) -> Sweep:
    """Read all files. Raises ``InputError``, also for a log of another value and for a turn that a file lacks."""
    for value in logs:
        if value not in points:
            raise InputError(f"--logs {value}=...: no point has this value")
    scores = {value: read_run_scores(paths, "clean") for value, paths in points.items()}
    for value, score in scores.items():
        for turn in config.turns:
            if not 0 <= turn < score.turns:
                raise InputError.at(points[value][0], None, f"has turns 0 to {score.turns - 1}, not {turn}")
    rule = recorded_rule([path for paths in points.values() for path in paths])
    return Sweep(config.setting, config.turns, scores, {value: read_logs(logs[value]) for value in logs}, rule)


def sweep_table(sweep: Sweep) -> Table:
    """A row for each value."""
    rows: list[list[Cell]] = []
    for value, score in sweep.scores.items():
        seeds, problems = len(score.repetitions_ST), len(score.ids)
        rows.append([value, seeds, problems, *sweep.estimates_T(value), _last_kl(sweep.logs.get(value, ()))])
    return Table(
        "sweep",
        f"Pass@1 by {sweep.setting} (%)",
        "Share of programs that pass all hidden tests, clean feedback, with 95 % intervals over problems and, where a "
        "value has several, training seeds. `kl_loss`: veRL's estimate of the KL divergence from the training's start, "
        f"per token, over the last steps. {sweep.rule}",
        (sweep.setting, "seeds", "problems", *(f"turn {turn}" for turn in sweep.turns), "kl_loss"),
        rows,
    )


def _last_kl(logs: Sequence[TrainingLog]) -> float | None:
    """Mean over the repetitions that logged it."""
    series = [[value for _, value in log.series(KL)] for log in logs]
    last = [edge_means(values)[1] for values in series if values]
    return mean(last) if last else None


def sweep_png(sweep: Sweep) -> bytes:
    """A line for each turn, with intervals."""
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(sweep.scores))
    for number, turn in enumerate(sweep.turns):
        estimates = [sweep.estimates_T(value)[number] for value in sweep.scores]
        known = [(place, estimate) for place, estimate in zip(places, estimates, strict=True) if estimate is not None]
        values = [estimate.value for _, estimate in known]
        bars = bars_of([estimate for _, estimate in known])
        colour = COLOURS[number % len(COLOURS)]
        shifted = [place + SHIFT * (number - (len(sweep.turns) - 1) / 2) for place, _ in known]
        axes.errorbar(shifted, values, bars, color=colour, marker=marker_of(colour), capsize=3, label=f"turn {turn}")
    axes.set_xticks(places, list(sweep.scores))
    axes.set(xlabel=sweep.setting, ylabel="Pass@1, hidden tests (%)")
    make_plain(axes)
    figure.legend(loc="outside lower center", ncols=len(sweep.turns), frameon=False)
    return png_bytes(figure)
