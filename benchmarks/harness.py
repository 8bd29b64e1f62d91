"""What the benchmarks share: contenders that take turns, and medians of what they took.

Absolute figures drift with the machine. Ratios of figures from the same round do not, so pages claim those.
"""

import json
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from cobalt.tables import markdown_table

ROOT = Path(__file__).resolve().parents[1]
PHASES = {
    "generation": "timing_s/gen",
    "old log-probs": "timing_s/old_log_prob",
    "reference": "timing_s/ref",
    "update": "timing_s/update_actor",
    "step": "timing_s/step",
}
"""Phases of a training step, and veRL's metrics of their seconds."""
Name = TypeVar("Name", bound=Hashable)
Sample = Mapping[str, float]
"""The figures of one contender in one round, by name."""


def interleaved(contenders: Mapping[Name, Callable[[], Sample]], rounds: int) -> dict[Name, list[Sample]]:
    """Call each contender once per round, in their order. Returns its samples without the first round, a warm-up."""
    samples: dict[Name, list[Sample]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, measure in contenders.items():
            samples[name].append(measure())
    return {name: taken[1:] for name, taken in samples.items()}


def medians(samples: Sequence[Sample]) -> dict[str, float]:
    """The median of each figure."""
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def ranged(values: Sequence[float]) -> str:
    """``median [least, most]``, as a cell."""
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def median_ratio(above: Sequence[Sample], below: Sequence[Sample], figure: str) -> float:
    """The median of a figure's ratios within each round."""
    pairs = zip(above, below, strict=True)
    return statistics.median(one[figure] / max(other[figure], 1e-9) for one, other in pairs)


def report(config: Any, samples: Mapping[str, Sequence[Sample]], ratios: Mapping[str, float]) -> None:
    """Print medians and ranges, and how many times as fast a contender is; write all figures to ``config.output``."""
    if config.output is not None:
        config.output.write_text(json.dumps({"settings": asdict(config), **samples}, indent=1, default=str))
    rows = []
    for name, taken in samples.items():
        cells = [ranged([sample[figure] for sample in taken]) for figure in taken[0]]
        rows.append((name, *cells, f"{ratios[name]:.2f}" if name in ratios else ""))
    print(markdown_table(("median [range]", *next(iter(samples.values()))[0], "times as fast"), rows))
