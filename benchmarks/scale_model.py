"""What training will take, before it is started: seconds of a step, GPU-seconds of an example, cores, disk, network.

    python benchmarks/scale_model.py --shape qwen3-8b --gpus 4
    python benchmarks/scale_model.py --tables    the tables of docs/scale.md
    python benchmarks/scale_model.py --check     predictions beside the steps that were measured

Arithmetic (FLOPs, bytes) over a few rates that were measured on H200s; docs/scale.md says where from, and how far to
trust it.
"""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Literal

from harness import ROOT, medians
from pydantic.dataclasses import dataclass
from step_costs import PEAK_FLOPS, PHASES, SHAPES, Shape, forward_flops, layer_weights

from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig, Positive, Share
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.tables import markdown_table

RESULTS = ROOT / "docs/results"
GB = 1e9

Phase = Literal["generation", "old log-probs", "reference", "update"]
ShapeName = Literal["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"]

# Shares of the GPU's peak that the phases reach with shared prompts: docs/results/shared-prompts-h200; for the update
# docs/results/recipe-8b-h200, too. From there is what a pass costs whatever its length, in tokens.
PHASE_MFU: dict[Phase, float] = {"old log-probs": 0.442, "reference": 0.386, "update": 0.335}
FORWARDS = {"old log-probs": 1, "reference": 1, "update": 3}
TOKENS_OF_A_PASS = 2000
# Generation. Bytes per second are a cautious 0.8 of the H200's memory. The rest of a token's time (launches, sampling,
# scheduling) and the weights' way into vLLM: docs/results/recipe-8b-h200, with CUDA graphs.
MEMORY_RATE = 0.8 * 4.8e12
PREFILL_MFU = 0.5
TOKEN_S = 0.005
SYNC_S_PER_GB = 0.13
# Memory of a GPU (bytes) for the training state, and for the weights of vLLM.
STATE_ROOM, VLLM_ROOM = 70 * GB, 50 * GB
STATE_BYTES = 16  # fp32 weights, gradients and Adam's two moments, per parameter
HALF, FULL = 2, 4  # bytes of bf16 and fp32
# docs/scale.md: a program with 20 tests, and one that ends at its limit; the share of a step that scoring may add
PROGRAM_CPU_S, ENDLESS_CPU_S, SCORING_SHARE = 0.09, 27.0, 0.1


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(CommandConfig):
    """Predict the cost of a training step of the recipe on H200s."""

    shape: ShapeName = "qwen3-8b"
    gpus: Positive = 4
    prompts: Positive = 128
    """Of a step."""
    samples: Positive = 16
    """Responses to each prompt."""
    updates: Positive = 2
    """Of a step, each from its share of the prompts."""
    prompt: Positive = 3000
    """Tokens, mean."""
    response: Positive = 3000
    """Tokens, mean."""
    longest: Positive = 6144
    """Tokens of the longest response: how long generation lasts."""
    endless: Share = 0.02
    """Share of programs that run into their time limit."""
    tables: bool = False
    """Print the tables of docs/scale.md instead."""
    check: bool = False
    """Print predictions beside measurements instead."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Of one step."""

    seconds: dict[Phase, float]
    step: float
    """Seconds."""
    per_example: float
    """GPU-seconds of a prompt with all its samples."""
    cores: float
    """For programs, such that scoring lasts as long as the log-probabilities beside it and a tenth of the step."""
    traffic_gb: float
    """What each GPU receives from others, if none of them share a node."""


def parameters(shape: Shape) -> float:
    """Weights of the network, norms left out."""
    return layer_weights(shape) + shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)


def gpus_for(size: float, room: float) -> int:
    """How many GPUs with this room hold so many bytes; a power of two."""
    return 2 ** max(0, math.ceil(math.log2(size / room)))


def fewest_gpus(shape: Shape) -> int:
    """That hold the training state."""
    return gpus_for(STATE_BYTES * parameters(shape), STATE_ROOM)


def tensor_parallel(shape: Shape) -> int:
    """GPUs of one engine of vLLM."""
    return gpus_for(HALF * parameters(shape), VLLM_ROOM)


def predict(config: ScaleConfig) -> Prediction:
    """Of a step with these lengths; every GPU has its share of the prompts."""
    shape = SHAPES[config.shape]
    seconds: dict[Phase, float] = {"generation": generation_s(config, shape), **training_s(config, shape)}
    cpu_s = config.prompts * config.samples * (PROGRAM_CPU_S + config.endless * ENDLESS_CPU_S)
    step = sum(seconds.values())
    cores = cpu_s / (seconds["old log-probs"] + seconds["reference"] + SCORING_SHARE * step)
    # each pass gathers the weights, the update twice (gradient checkpointing); then gradients, and weights for vLLM
    traffic = parameters(shape) * (4 * HALF + FULL + HALF)
    return Prediction(seconds, step, step * config.gpus / config.prompts, cores, traffic / GB)


def training_s(config: ScaleConfig, shape: Shape) -> dict[Phase, float]:
    """Seconds of what follows the rollouts, each prompt computed once."""
    prompts = config.prompts / config.gpus
    needed = prompts * forward_flops(shape, config.prompt, config.response, config.samples)
    tokens = prompts * (config.prompt + config.samples * config.response)
    passes = {"old log-probs": 1, "reference": 1, "update": config.updates}
    return {
        phase: FORWARDS[phase] * needed * (1 + passes[phase] * TOKENS_OF_A_PASS / tokens) / (mfu * PEAK_FLOPS)
        for phase, mfu in PHASE_MFU.items()
    }


def generation_s(config: ScaleConfig, shape: Shape) -> float:
    """Seconds of a step's rollouts. An engine waits for its longest response; meanwhile fewer and fewer rows run."""
    ways = tensor_parallel(shape)
    rows = config.prompts * config.samples * ways / config.gpus
    running = rows * config.response / config.longest
    weights = HALF * parameters(shape)
    token_bytes = 2 * HALF * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
    cache = running * token_bytes * (config.prompt + config.response / 2)
    compute = 2 * parameters(shape) * running / (PREFILL_MFU * PEAK_FLOPS)
    per_token = ((weights + cache) / MEMORY_RATE + compute) / ways + TOKEN_S
    prefill = 2 * parameters(shape) * config.prompt * rows / config.samples / (PREFILL_MFU * PEAK_FLOPS) / ways
    return config.longest * per_token + prefill + SYNC_S_PER_GB * weights / GB


def checks() -> Iterator[tuple[str, str, float, float]]:
    """(Where, phase, predicted, measured seconds) of every step in docs/results that the recipe's path took."""
    for row in json.loads((RESULTS / "shared-prompts-h200/bench.json").read_text()):
        shape = dataclasses.replace(SHAPES["qwen3-8b"], num_hidden_layers=row["layers"])
        sizes = {"prompt": row["prompt"], "response": row["response"], "samples": row["rows_per_gpu"]}
        predicted = training_s(ScaleConfig(gpus=1, prompts=1, updates=1, **sizes), shape)
        for phase in row["phases"]:
            if phase["path"] == "shared":
                where = f"8 layers, {row['prompt']} + {row['response']}"
                yield where, phase["phase"], predicted[phase["phase"]], phase["seconds"]
    steps = [step for step in read_metrics(RESULTS / "recipe-8b-h200" / METRICS_FILE) if step["step"] > 1]
    measured = medians(steps)
    lengths = {"prompt": "prompt_length/mean", "response": "response_length/mean", "longest": "response_length/max"}
    short = predict(ScaleConfig(gpus=2, prompts=32, **{name: round(measured[key]) for name, key in lengths.items()}))
    for phase, seconds in {**short.seconds, "step": short.step}.items():
        yield "8B, short", phase, seconds, measured[PHASES[phase]]
    runs = json.loads((RESULTS / "recipe-8b-h200/beside-release.json").read_text())
    first = json.loads((RESULTS / "recipe-8b-h200/long.json").read_text())
    (second,) = (run for run in runs if run["settings"] == "ours" and run["step"] > 1)
    for where, shape_name, step in (("8B, long", "qwen3-8b", first), ("4B, long", "qwen3-4b", second)):
        sizes = {name: step[name] for name in ("gpus", "prompts", "samples", "prompt", "response")}
        long = predict(ScaleConfig(shape=shape_name, **sizes, longest=step["response"]))
        for phase, seconds in {**long.seconds, "step": long.step}.items():
            # a first step's reference holds what veRL does once
            if step is second or phase not in ("reference", "step"):
                yield where, phase, seconds, step["seconds"][phase]


def scale_tables(config: ScaleConfig) -> Iterator[str]:
    """Shapes by numbers of GPUs, then what a shape needs whatever their number."""
    rows = []
    for name in ("qwen3-1.7b", "qwen3-8b", "qwen3-32b"):
        for gpus in (4, 8, 64, 256, 1024):
            if gpus >= fewest_gpus(SHAPES[name]):
                found = predict(dataclasses.replace(config, shape=name, gpus=gpus, prompts=max(config.prompts, gpus)))
                passes = found.seconds["old log-probs"] + found.seconds["reference"]
                numbers = (found.seconds["generation"], passes, found.seconds["update"], found.step)
                costs = (f"{found.per_example:,.1f}", f"{found.cores:,.0f}")
                rows.append((name, str(gpus), *(f"{number:,.0f}" for number in numbers), *costs))
    columns = ("shape", "GPUs", "generation", "old, reference", "update", "step", "GPU-s per example", "cores")
    yield markdown_table(columns, rows)
    rows = []
    for name, shape in SHAPES.items():
        count = parameters(shape)
        state = (FULL * count / GB, 3 * FULL * count / GB)
        sizes = (fewest_gpus(shape), tensor_parallel(shape))
        rows.append((name, f"{count / GB:.2f}e9", *map(str, sizes), *(f"{n:,.0f}" for n in state)))
    columns = ("shape", "parameters", "fewest GPUs", "GPUs per engine", "checkpoint, GB", "with optimizer")
    yield markdown_table(columns, rows)


def main(config: ScaleConfig) -> None:
    """Print what is asked for."""
    if config.tables:
        print("\n\n".join(scale_tables(config)))
        return
    if config.check:
        columns = ("step", "phase", "predicted, s", "measured, s", "off by")
        rows = [
            (where, phase, f"{predicted:.2f}", f"{measured:.2f}", f"{predicted / measured - 1:+.0%}")
            for where, phase, predicted, measured in checks()
        ]
    else:
        found, columns = predict(config), (f"{config.shape}, {config.gpus} GPUs", "seconds")
        rows = [
            *((phase, f"{seconds:,.0f}") for phase, seconds in found.seconds.items()),
            ("step", f"{found.step:,.0f}"),
            ("GPU-seconds per example", f"{found.per_example:,.1f}"),
            ("seconds per example", f"{found.step / config.prompts:,.1f}"),
            ("cores for programs", f"{found.cores:,.0f}"),
            ("GB that a GPU receives per step", f"{found.traffic_gb:,.0f}"),
        ]
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    run(ScaleConfig, main)
