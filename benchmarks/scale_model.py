"""The tables of docs/scale.md, from the cost model of ``cobalt plan``.

python benchmarks/scale_model.py             steps by shape and GPUs, and what a shape needs
python benchmarks/scale_model.py --check     predictions beside the steps that were measured
"""

import dataclasses
import json
from collections.abc import Iterator

from harness import PHASES, ROOT, medians
from pydantic.dataclasses import dataclass

from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.tables import markdown_table
from cobalt.training.cost_model import (
    GB,
    SHAPES,
    PlanConfig,
    checkpoint_gb,
    fewest_gpus,
    parameters,
    predict_step,
    tensor_parallel,
    training_s,
)  # fmt: skip

RESULTS = ROOT / "docs/results"


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(CommandConfig):
    """Print the tables of docs/scale.md."""

    check: bool = False
    """Print predictions beside measurements instead."""


def checks() -> Iterator[tuple[str, str, float, float]]:
    """(Where, phase, predicted, measured seconds) of every step in docs/results that the recipe's path took."""
    for row in json.loads((RESULTS / "shared-prompts-h200/bench.json").read_text()):
        shape = dataclasses.replace(SHAPES["qwen3-8b"], num_hidden_layers=row["layers"])
        sizes = {"prompt": row["prompt"], "response": row["response"], "samples": row["rows_per_gpu"]}
        predicted = training_s(PlanConfig(gpus=1, prompts=1, updates=1, **sizes), shape)
        for phase in row["phases"]:
            if phase["path"] == "shared":
                where = f"8 layers, {row['prompt']} + {row['response']}"
                yield where, phase["phase"], predicted[phase["phase"]], phase["seconds"]
    steps = [step for step in read_metrics(RESULTS / "recipe-8b-h200" / METRICS_FILE) if step["step"] > 1]
    measured = medians(steps)
    lengths = {"prompt": "prompt_length/mean", "response": "response_length/mean", "longest": "response_length/max"}
    short = predict_step(
        PlanConfig(gpus=2, prompts=32, **{name: round(measured[key]) for name, key in lengths.items()})
    )
    for phase, seconds in {**short.seconds, "step": short.step}.items():
        yield "8B, short", phase, seconds, measured[PHASES[phase]]
    runs = json.loads((RESULTS / "recipe-8b-h200/beside-release.json").read_text())
    first = json.loads((RESULTS / "recipe-8b-h200/long.json").read_text())
    (second,) = (run for run in runs if run["settings"] == "ours" and run["step"] > 1)
    for where, shape_name, step in (("8B, long", "qwen3-8b", first), ("4B, long", "qwen3-4b", second)):
        sizes = {name: step[name] for name in ("gpus", "prompts", "samples", "prompt", "response")}
        long = predict_step(PlanConfig(shape=shape_name, **sizes, longest=step["response"]))
        for phase, seconds in {**long.seconds, "step": long.step}.items():
            # a first step's reference holds what veRL does once
            if step is second or phase not in ("reference", "step"):
                yield where, phase, seconds, step["seconds"][phase]


def scale_tables() -> Iterator[str]:
    """Shapes by numbers of GPUs, then what a shape needs whatever their number."""
    rows = []
    for name in ("qwen3-1.7b", "qwen3-8b", "qwen3-32b"):
        for gpus in (4, 8, 64, 256, 1024):
            if gpus >= fewest_gpus(SHAPES[name]):
                found = predict_step(PlanConfig(shape=name, gpus=gpus, prompts=max(PlanConfig.prompts, gpus)))
                passes = found.seconds["old log-probs"] + found.seconds["reference"]
                numbers = (found.seconds["generation"], passes, found.seconds["update"], found.step)
                costs = (f"{found.per_example:,.1f}", f"{found.cores:,.0f}")
                rows.append((name, str(gpus), *(f"{number:,.0f}" for number in numbers), *costs))
    columns = ("shape", "GPUs", "generation", "old, reference", "update", "step", "GPU-s per example", "cores")
    yield markdown_table(columns, rows)
    rows = []
    for name, shape in SHAPES.items():
        sizes = (fewest_gpus(shape), tensor_parallel(shape))
        saved = (f"{size:,.0f}" for size in checkpoint_gb(shape))
        rows.append((name, f"{parameters(shape) / GB:.2f}e9", *map(str, sizes), *saved))
    columns = ("shape", "parameters", "fewest GPUs", "GPUs per engine", "checkpoint, GB", "with optimizer")
    yield markdown_table(columns, rows)


def main(config: ScaleConfig) -> None:
    if config.check:
        columns = ("step", "phase", "predicted, s", "measured, s", "off by")
        rows = [
            (where, phase, f"{predicted:.2f}", f"{measured:.2f}", f"{predicted / measured - 1:+.0%}")
            for where, phase, predicted, measured in checks()
        ]
        print(markdown_table(columns, rows))
    else:
        print("\n\n".join(scale_tables()))


if __name__ == "__main__":
    run(ScaleConfig, main)
