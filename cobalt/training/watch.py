"""``cobalt watch``: the curves of a training run in the terminal, while it runs and after."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from pydantic.dataclasses import dataclass
from tyro.conf import Positional

from cobalt.cli.flags import AboveZero, CommandConfig
from cobalt.errors import InputError
from cobalt.records.jsonl import is_taken
from cobalt.records.training_run import EDGE_STEPS, LOCK_NAME, METRICS_FILE, read_metrics
from cobalt.training.training_log import STEP_TIME, VALIDATION

CURVES = {
    "reward/total": "reward",
    "reward/acc": "solved",
    "reward/pass_rate": "tests passed",
    "reward/correct": "reward: correct",
    "reward/improve": "reward: improve",
    "reward/format": "reward: format",
    "reward/infra": "not scored",
    "response_length/mean": "response tokens",
    "actor/entropy": "entropy",
    "actor/kl_loss": "KL loss",
    "actor/grad_norm": "gradient norm",
    "training/rollout_probs_diff_mean": "engine and trainer differ",
    STEP_TIME: "seconds per step",
}
"""The metrics that are drawn, in this order, if the run logs them."""
WIDTH, HEIGHT, LABEL = 25, 5, 9
"""Size of a curve and width of the numbers at its left, in characters. Two curves fit into 80 columns."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column."""


@dataclass(frozen=True, kw_only=True)
class WatchConfig(CommandConfig):
    """Show the curves of a training run in the terminal. Follows a run that trains, and ends with it."""

    run: Positional[Path]
    """The run's output folder (OUTPUT_DIR), or its metrics.jsonl."""
    every_s: AboveZero = 2.0
    """Seconds between two looks at the metrics."""


def watch(config: WatchConfig) -> None:
    """See ``WatchConfig``."""
    from rich.live import Live

    folder = config.run.parent if config.run.name == METRICS_FILE else config.run
    if not folder.is_dir():
        raise InputError.at(folder, None, f"no such folder; take the OUTPUT_DIR of a training, or its {METRICS_FILE}")
    with Live(f"{folder}: no step has ended yet" if trains(folder) else "", auto_refresh=False) as live:
        while True:
            is_training = trains(folder)  # asked first, so that the last steps of a run are read, too
            try:
                steps = read_metrics(folder / METRICS_FILE)
                if not steps:
                    raise InputError.at(folder, None, "no step has ended")
                live.update(picture(folder, steps), refresh=True)
            except InputError:  # there is no file or no step yet, or its last line is half written
                if not is_training:
                    raise
            if not is_training:
                return
            time.sleep(config.every_s)


def trains(folder: Path) -> bool:
    """Whether a training writes in the folder now."""
    lock = folder / LOCK_NAME
    if not lock.is_file():
        return False
    with open(lock) as file:
        return is_taken(file)


def picture(folder: Path, steps: list[dict[str, float]]) -> Any:
    """All curves of a run, side by side."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    validations = {name: "validation: solved" for record in steps for name in record if VALIDATION.fullmatch(name)}
    panels = []
    for name, title in {**CURVES, **validations}.items():
        points = [(int(record["step"]), record[name]) for record in steps if math.isfinite(record.get(name, math.nan))]
        if points and (name != "reward/infra" or any(value for _, value in points)):
            values = [value for _, value in points]
            recent = values[-EDGE_STEPS:]
            below = f"steps {points[0][0]} to {points[-1][0]}; last {len(recent)}: {np.mean(recent):.4g}"
            text = Text("\n".join(curve(values)) + f"\n{below}", no_wrap=True)
            panels.append(Panel(text, title=f"{title} {values[-1]:.4g}", title_align="left", width=LABEL + WIDTH + 5))
    return Group(Text(f"{folder}: step {int(steps[-1]['step'])}"), Columns(panels))


def curve(values: list[float], width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    """Lines of braille dots, with the largest and the smallest mean at their left.

    >>> print("\\n".join(curve([0.0, 1.0, 2.0, 3.0], width=2, height=1)))
            3 ⡠⠊
    """
    columns = 2 * width
    means = [part.mean() for part in np.array_split(values, min(len(values), columns))]
    low, high, levels = min(means), max(means), 4 * height - 1
    cells = [[0x2800] * width for _ in range(height)]
    for column, value in enumerate(np.interp(np.linspace(0, len(means) - 1, columns), range(len(means)), means)):
        level = round((value - low) / (high - low) * levels) if high > low else 0
        row = levels - level
        cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"][:height]
    return [f"{label:>{LABEL}} {''.join(map(chr, line))}" for label, line in zip(labels, cells, strict=True)]
