"""The tables of docs/scale.md, from the cost model of ``cobalt plan``.

python -m research.benchmarks.scale_model             steps by shape and GPUs, and what a shape needs
python -m research.benchmarks.scale_model --check     predictions beside the steps that were measured

The measured steps are those of research/results/price.md, and of Qwen2.5-Coder-1.5B (plan/steps.json). The former's
lengths were drawn: log-normal, truncated to 256 to 6,144 tokens. Problem, sample and turn seed them, so they are drawn
again here. A trajectory ends at a pass.
"""

import math
import random
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.dataclasses import dataclass

from benchmarks.harness import ROOT
from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig
from cobalt.completion import request_seed
from cobalt.records.jsonl import read_json
from cobalt.tables import markdown_table
from cobalt.training import cost_model
from cobalt.training.cost_model import (
    GB,
    GPUS,
    SHAPES,
    GpuName,
    Phase,
    PlanConfig,
    checkpoint_gb,
    fewest_gpus,
    parameters,
    predict_step,
    tensor_parallel,
)  # fmt: skip

RESULTS = ROOT / "research/results"
CHECKED: tuple[Phase, ...] = ("generation", "old log-probs", "reference", "update")
METHODS = {"cobalt": 1, "single-turn": 1, "grpo-mt": 3, "verpo-mt": 3}
METHODS |= {f"{name}-async": METHODS[name] for name in ("cobalt", "grpo-mt", "verpo-mt")}
"""Most turns of a trajectory."""
PROMPTS, SAMPLES, STEPS = 4, 16, 3
"""Of a step; and steps that were measured for each cell."""
SHORTEST, LONGEST, SIGMA = 256, 6144, 0.8
MEDIANS = {1000: 673.487, 3000: 3691.956}
"""Before truncation, by the mean that it leaves."""
PASSES = (0.395, 0.298, 0.191)
"""Share of MiniCoder's samples that pass at a turn, of those that failed before:
research/results/paper-in-miniature/counts/base.clean.counts.json.gz."""
CONTEXTS = (0, 1, 1, 2, 2, 3)
"""Programs in a problem's six contexts (``cobalt plan --contexts``)."""
CODER: dict[str, Any] = {
    "shape": "qwen2.5-coder-1.5b",
    "gpus": 1,
    "prompts": 32,
    "samples": 16,
    "updates": 1,
    "suite_limit": 4,
}
PROBLEM_TOKENS, TURN_TOKENS = 1000, 190
"""A problem, and what a program with its feedback adds to the prompt, about."""


class Step(NamedTuple):
    """One of a training; ``mean`` of its lengths, in tokens."""

    method: str
    mean: int
    number: int


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(CommandConfig):
    """Print the tables of docs/scale.md."""

    check: bool = False
    """Print predictions beside measurements instead."""


def drawn(seed: int, mean: int, turn: int) -> tuple[int, bool]:
    """Tokens of a response, and whether its program passes."""
    chance, law = random.Random(seed), statistics.NormalDist(math.log(MEDIANS[mean]), SIGMA)
    low, high = law.cdf(math.log(SHORTEST)), law.cdf(math.log(LONGEST))
    length = round(math.exp(law.inv_cdf(low + (high - low) * chance.random())))
    return length, chance.random() < PASSES[turn]


def played(step: Step) -> list[list[int]]:
    """Tokens of the responses of a step's trajectories, problem by problem."""
    paths = []
    for index in range(PROMPTS):
        for sample in range(SAMPLES):
            path: list[int] = []
            for turn in range(METHODS[step.method]):
                length, passes = drawn(request_seed(0, f"{step.number}.{index}", sample, turn), step.mean, turn)
                path.append(length)
                if passes:
                    break
            paths.append(path)
    return paths


def shown_programs(step: Step, index: int) -> int:
    """In the first prompt of a step's problem."""
    is_cobalt = step.method.startswith("cobalt")
    return CONTEXTS[(step.number * PROMPTS + index) % len(CONTEXTS)] if is_cobalt else 0


def predicted_step(shape_name: str, step: Step, gpu: GpuName) -> dict[str, float]:
    """Seconds of the phases, from the lengths that are drawn. Each later turn's prompt is computed by itself."""
    shape, paths = SHAPES[shape_name], played(step)
    flops, prompt_tokens = 0.0, 0
    for number, path in enumerate(paths):
        for turn, length in enumerate(path):
            prompt = PROBLEM_TOKENS + TURN_TOKENS * (shown_programs(step, number // SAMPLES) + turn)
            elsewhere = 0.0 if turn else 1 - 1 / SAMPLES  # share of the prompt that other rows of the group bear
            flops += cost_model.forward_flops(shape, prompt, length, 1)
            flops -= elsewhere * cost_model.forward_flops(shape, prompt, 0, 1)
            prompt_tokens += prompt
    responses, tokens, rows = sum(map(len, paths)), sum(map(sum, paths)), len(paths)
    plan = PlanConfig(gpu=gpu, prompt=prompt_tokens // responses, response=tokens // responses)
    # the engine waits for the longest trajectory; asynchronously, others take the places of finished ones
    running = rows if step.method.endswith("-async") else tokens / max(map(sum, paths))
    decoding = max(tokens / running * cost_model.token_s(plan, shape, running), tokens * cost_model.HOST_S)
    reading = cost_model.prefill_s(plan, shape, PROMPTS + responses - rows)
    return {"generation": decoding + reading, **cost_model.passes_s(flops, responses)}


def checks() -> Iterator[tuple[str, dict[str, float], dict[str, float]]]:
    """(Where, predicted, measured seconds of the phases) of every step in research/results."""
    for gpu, file in (("h200", "result.json.gz"), ("h100", "result-h100.json")):
        for cell, found in read_json(RESULTS / "price" / file).items():
            shape, mean, method = cell.split()
            if method in METHODS:
                steps = [predicted_step(shape, Step(method, int(mean), number), gpu) for number in range(STEPS)]
                seconds = {phase: statistics.fmean(step[phase] for step in steps) for phase in CHECKED}
                where = f"{shape}, {mean} tokens, {method}"
                yield where if gpu == "h200" else f"{where}, H100", seconds, found["seconds"]
    runs = read_json(RESULTS / "now-h200/beside-verl.json")
    prompt, response = (round(runs["ours"][name]) for name in ("prompt", "response"))
    long = predict_step(
        PlanConfig(shape="qwen3-4b", gpus=1, prompts=2, prompt=prompt, response=response, longest=response, endless=0)
    )
    # vLLM's own attention, as in the recipe, is in the other run
    seconds = {**runs["ours"]["seconds"], "generation": runs["veRL"]["seconds"]["generation"]}
    yield f"qwen3-4b, {response} tokens, 2 prompts", dict(long.seconds), seconds
    plan, measured = coder()
    predicted = predict_step(plan).seconds
    # in that run nothing was computed beside the last program, and generation lasted until its end
    waiting = cost_model.last_program_s(plan, plan.prompts * plan.samples, predicted["generation"], 0)
    yield f"{plan.shape}, cobalt", {**predicted, "generation": predicted["generation"] + waiting}, measured


def coder() -> tuple[PlanConfig, dict[str, float]]:
    """The preset one-gpu-coder on one H200: mean lengths and seconds, without the first steps, that compile kernels."""
    steps = read_json(RESULTS / "plan/steps.json")["cobalt_alone"][2:]
    names = ("prompt", "response", "longest")
    lengths = {name: round(statistics.fmean(step[name] for step in steps)) for name in names}
    phases: tuple[Phase, ...] = ("generation", "reference", "update")
    seconds = {phase: statistics.fmean(step["seconds"][phase] for step in steps) for phase in phases}
    return PlanConfig(**CODER, **lengths), {**seconds, "old log-probs": 0.0}


def scale_tables() -> Iterator[str]:
    """Shapes by numbers of GPUs, then what a shape needs whatever their number."""
    rows = []
    for name in ("qwen3-1.7b", "qwen3-8b", "qwen3-32b"):
        for gpus in (4, 8, 64, 256, 1024):
            if gpus >= fewest_gpus(SHAPES[name], GPUS["h200"]):
                found = predict_step(PlanConfig(shape=name, gpus=gpus, prompts=max(PlanConfig.prompts, gpus)))
                passes = found.seconds["old log-probs"] + found.seconds["reference"]
                numbers = (found.seconds["generation"], passes)
                numbers += (found.seconds["judging"], found.seconds["update"], found.step)
                costs = (f"{found.per_example:,.1f}", f"{found.cores:,.0f}")
                rows.append((name, str(gpus), *(f"{number:,.0f}" for number in numbers), *costs))
    columns = (
        "shape",
        "GPUs",
        "generation",
        "old, reference",
        "judging",
        "update",
        "step",
        "GPU-s per example",
        "cores",
    )
    yield markdown_table(columns, rows)
    rows = []
    for name, shape in SHAPES.items():
        sizes = (fewest_gpus(shape, GPUS["h200"]), tensor_parallel(shape, GPUS["h200"]))
        saved = (f"{size:,.0f}" for size in checkpoint_gb(shape))
        rows.append((name, f"{parameters(shape) / GB:.2f}e9", *map(str, sizes), *saved))
    columns = ("shape", "parameters", "fewest GPUs", "GPUs per engine", "checkpoint, GB", "with optimizer")
    yield markdown_table(columns, rows)


def main(config: ScaleConfig) -> None:
    if config.check:
        rows = []
        for where, predicted, measured in checks():
            pairs = [(predicted[phase], measured[phase]) for phase in CHECKED]
            cells = (f"{ours:.2f} / {real:.2f}, {ours / real - 1:+.0%}" if real else "–" for ours, real in pairs)
            rows.append((where, *cells))
        print(markdown_table(("predicted / measured, s", *CHECKED), rows))
    else:
        print("\n\n".join(scale_tables()))


if __name__ == "__main__":
    run(ScaleConfig, main)
