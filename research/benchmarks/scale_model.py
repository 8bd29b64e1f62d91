"""The tables of docs/scale.md, from the cost model of ``cobalt plan``.

python -m research.benchmarks.scale_model             steps by shape and GPUs, and what a shape needs
python -m research.benchmarks.scale_model --check     predictions beside the steps that were measured
"""

import json
from collections.abc import Iterator
from typing import get_args

from pydantic.dataclasses import dataclass

from benchmarks.harness import ROOT
from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig
from cobalt.tables import markdown_table
from cobalt.training.cost_model import (
    GB,
    SHAPES,
    Phase,
    PlanConfig,
    checkpoint_gb,
    fewest_gpus,
    parameters,
    predict_step,
    tensor_parallel,
)  # fmt: skip
from research.benchmarks.bench_methods import METHODS, STEPS, Step, predicted_step, prices

RESULTS = ROOT / "research/results"
CHECKED = get_args(Phase)


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(CommandConfig):
    """Print the tables of docs/scale.md."""

    check: bool = False
    """Print predictions beside measurements instead."""


def checks() -> Iterator[tuple[str, dict[str, float], dict[str, float]]]:
    """(Where, predicted, measured seconds of the phases) of every step in research/results on an H200."""
    for cell, found in json.loads((RESULTS / "price/result.json").read_text()).items():
        shape, mean, method = cell.split()
        if method in METHODS:
            steps = [predicted_step(shape, Step(method, int(mean), number)) for number in range(STEPS)]
            yield f"{shape}, {mean} tokens, {method}", prices(steps)["seconds"], found["seconds"]
    runs = json.loads((RESULTS / "now-h200/beside-verl.json").read_text())
    prompt, response = (round(runs["ours"][name]) for name in ("prompt", "response"))
    long = predict_step(
        PlanConfig(shape="qwen3-4b", gpus=1, prompts=2, prompt=prompt, response=response, longest=response)
    )
    # vLLM's own attention, as in the recipe, is in the other run
    seconds = {**runs["ours"]["seconds"], "generation": runs["veRL"]["seconds"]["generation"]}
    yield f"qwen3-4b, {response} tokens, 2 prompts", dict(long.seconds), seconds


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
        rows = []
        for where, predicted, measured in checks():
            pairs = [(predicted[phase], measured[phase]) for phase in CHECKED]
            rows.append((where, *(f"{ours:.2f} / {real:.2f}, {ours / real - 1:+.0%}" for ours, real in pairs)))
        print(markdown_table(("predicted / measured, s", *CHECKED), rows))
    else:
        print("\n\n".join(scale_tables()))


if __name__ == "__main__":
    run(ScaleConfig, main)
