"""``cobalt plan``: what the recipe will take, before anything starts: hours, GPU-hours, cores, disk.

Arithmetic (FLOPs, bytes) over a few rates that were measured on H200s. docs/scale.md says where they come from, and how
far to trust them.
"""

import dataclasses
import math
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, Positive, Share
from cobalt.errors import InputError
from cobalt.tables import markdown_table

GB, HOUR_S = 1e9, 3600
TURNS = 3
"""Programs of a trajectory that is learned from."""
PEAK_FLOPS = 989e12
"""Per second, dense bf16, of an H100 or H200."""

Phase = Literal["generation", "old log-probs", "reference", "update"]
ShapeName = Literal["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"]

# From the steps of research/results/now-h200 and research/results/price: shares of the GPU's peak that the phases
# reach, and seconds that a layer costs a pass of any length.
PHASE_MFU: dict[Phase, float] = {"old log-probs": 0.60, "reference": 0.68, "update": 0.49}
FORWARDS = {"old log-probs": 1, "reference": 1, "update": 3}
LAYER_S = 0.014
# Generation: the H200's memory, the rest of a token's time (launches, sampling, scheduling), and the weights' way into
# vLLM.
MEMORY_RATE = 0.95 * 4.8e12
PREFILL_MFU = 0.5
TOKEN_S = 0.0015
SYNC_S_PER_GB = 0.09
# The vLLM app that collects: rows at once in an engine, and its memory for weights and cache (bytes per GPU).
APP_ROWS, APP_ROOM = 256, 0.9 * 141 * GB
# Memory of a GPU (bytes) for the training state, and for the weights of vLLM beside it.
STATE_ROOM, VLLM_ROOM = 70 * GB, 50 * GB
STATE_BYTES = 16  # fp32 weights, gradients and Adam's two moments, per parameter
HALF, FULL = 2, 4  # bytes of bf16 and fp32
# docs/scale.md: a program with 20 tests, and one that ends at its limit; the share of a step that scoring may add
PROGRAM_CPU_S, ENDLESS_CPU_S, SCORING_SHARE = 0.09, 27.0, 0.1
TOKEN_BYTES = 4  # of text
# trainer.save_freq of the recipe; checkpoints on disk at once: the last two, the best, and the one that is written
SAVE_STEPS, KEPT = 10, 4


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3, by the names of its ``config.json``. The defaults are those of all published dense ones."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int = 8
    head_dim: int = 128
    vocab_size: int = 151_936
    tie_word_embeddings: bool = dataclasses.field(kw_only=True)
    max_position_embeddings: int = 40_960


SHAPES = {
    "qwen3-0.6b": Shape(1024, 3072, 28, 16, tie_word_embeddings=True),
    "qwen3-1.7b": Shape(2048, 6144, 28, 16, tie_word_embeddings=True),
    "qwen3-4b": Shape(2560, 9728, 36, 32, tie_word_embeddings=True),
    "qwen3-8b": Shape(4096, 12288, 36, 32, tie_word_embeddings=False),
    "qwen3-14b": Shape(5120, 17408, 40, 40, tie_word_embeddings=False),
    "qwen3-32b": Shape(5120, 25600, 64, 64, tie_word_embeddings=False),
}
"""The published dense shapes (arXiv 2505.09388, table 1, and the models' ``config.json``)."""


@dataclass(frozen=True, kw_only=True)
class PlanConfig(CommandConfig):
    """Predict hours, GPU-hours, cores and disk of collecting trajectories and training on them, on H200s."""

    shape: ShapeName = "qwen3-8b"
    gpus: Positive = 4
    problems: Positive = 10_000
    """Problems to learn from."""
    trajectories: Positive = 16
    """Per problem, three programs each."""
    contexts: Positive = 6
    """Partial contexts that a problem gives. On MiniCode 6; usually at most 13: four trajectories, and the problem."""
    epochs: Positive = 2
    prompts: Positive = 128
    """Prompts of a step."""
    samples: Positive = 16
    """Responses to each prompt."""
    updates: Positive = 2
    """Updates of a step, each from its share of the prompts."""
    prompt: Positive = 3000
    """Tokens, mean."""
    response: Positive = 3000
    """Tokens, mean."""
    longest: Positive = 6144
    """Tokens of the longest response: how long generation lasts."""
    endless: Share = 0.02
    """Share of programs that run into their time limit."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What one training step takes."""

    seconds: dict[Phase, float]
    step: float
    """Seconds."""
    per_example: float
    """GPU-seconds of a prompt with all its samples."""
    cores: float
    """For programs, such that scoring lasts as long as the log-probabilities beside it and a tenth of the step."""
    traffic_gb: float
    """What each GPU receives from others, if none of them share a node."""


def layer_weights(model: Any) -> int:
    """Weights of all layers, norms left out. ``model``: sizes by the names of a ``config.json``."""
    attention, keys = (heads * model.head_dim for heads in (model.num_attention_heads, model.num_key_value_heads))
    return model.num_hidden_layers * model.hidden_size * (2 * attention + 2 * keys + 3 * model.intermediate_size)


def parameters(shape: Shape) -> float:
    """Weights of the network, norms left out."""
    return layer_weights(shape) + shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)


def forward_flops(model: Any, prompt: int, response: int, samples: int) -> float:
    """Operations of a forward pass over a prompt and its responses; see bench_step.py for the formula."""
    layers, channels = model.num_hidden_layers, model.hidden_size
    attention = model.num_attention_heads * model.head_dim
    answered = samples * response
    pairs = prompt * prompt / 2 + answered * (prompt + response / 2)
    head = 2 * model.vocab_size * channels * answered
    return 2 * layer_weights(model) * (prompt + answered) + 4 * layers * attention * pairs + head


def gpus_for(size: float, room: float) -> int:
    """How many GPUs with this room hold so many bytes; a power of two."""
    return 2 ** max(0, math.ceil(math.log2(size / room)))


def fewest_gpus(shape: Shape) -> int:
    """The fewest GPUs that hold the training state."""
    return gpus_for(STATE_BYTES * parameters(shape), STATE_ROOM)


def tensor_parallel(shape: Shape) -> int:
    """GPUs of one engine of vLLM."""
    return gpus_for(HALF * parameters(shape), VLLM_ROOM)


def checkpoint_gb(shape: Shape) -> tuple[float, float]:
    """fp32 weights alone, and with the optimizer's state."""
    return FULL * parameters(shape) / GB, 3 * FULL * parameters(shape) / GB


def predict_step(config: PlanConfig) -> Prediction:
    """What a step with these lengths takes; every GPU has its share of the prompts."""
    shape = SHAPES[config.shape]
    # of the passes after the rollouts; each prompt is computed once
    flops = config.prompts / config.gpus * forward_flops(shape, config.prompt, config.response, config.samples)
    passes = passes_s(flops, shape, config.updates)
    seconds: dict[Phase, float] = {"generation": generation_s(config, shape), **passes}
    step = sum(seconds.values())
    judging_s = seconds["old log-probs"] + seconds["reference"] + SCORING_SHARE * step
    cores = programs_cpu_s(config.prompts * config.samples, config) / judging_s
    # each pass gathers the weights, the update twice (gradient checkpointing); then gradients, and weights for vLLM
    traffic = parameters(shape) * (4 * HALF + FULL + HALF)
    return Prediction(seconds, step, step * config.gpus / config.prompts, cores, traffic / GB)


def passes_s(flops: float, shape: Shape, updates: int) -> dict[Phase, float]:
    """Seconds of one GPU's passes over its share of a step. ``flops``: of a forward pass."""
    passes = {"old log-probs": 1, "reference": 1, "update": updates}
    return {
        phase: FORWARDS[phase] * flops / (mfu * PEAK_FLOPS) + passes[phase] * shape.num_hidden_layers * LAYER_S
        for phase, mfu in PHASE_MFU.items()
    }


def generation_s(config: PlanConfig, shape: Shape) -> float:
    """Seconds of a step's rollouts. An engine waits for its longest response; meanwhile fewer and fewer rows run."""
    rows = config.prompts * config.samples * tensor_parallel(shape) / config.gpus
    per_token = token_s(config, shape, rows * config.response / config.longest)
    sync = SYNC_S_PER_GB * HALF * parameters(shape) / GB
    return config.longest * per_token + prefill_s(config, shape, rows / config.samples) + sync


def collection_s(config: PlanConfig, shape: Shape) -> float:
    """Seconds of the reference model's trajectories, of which as many run at once as an engine has room for."""
    engines = config.gpus / tensor_parallel(shape)
    responses = config.problems * config.trajectories * TURNS / engines
    room = APP_ROOM * tensor_parallel(shape) - HALF * parameters(shape)
    running = min(APP_ROWS, room / cache_bytes(config, shape))
    decoding_s = responses * config.response / running * token_s(config, shape, running)
    return decoding_s + prefill_s(config, shape, responses)


def cache_bytes(config: PlanConfig, shape: Shape) -> float:
    """Bytes of a row's keys and values, on average."""
    of_a_token = 2 * HALF * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
    return of_a_token * (config.prompt + config.response / 2)


def token_s(config: PlanConfig, shape: Shape, running: float) -> float:
    """Seconds in which an engine adds one token to each of the running rows."""
    read_s = (HALF * parameters(shape) + running * cache_bytes(config, shape)) / MEMORY_RATE
    compute_s = 2 * parameters(shape) * running / (PREFILL_MFU * PEAK_FLOPS)
    return (read_s + compute_s) / tensor_parallel(shape) + TOKEN_S


def prefill_s(config: PlanConfig, shape: Shape, prompts: float) -> float:
    """Seconds in which an engine reads so many prompts."""
    return 2 * parameters(shape) * config.prompt * prompts / (PREFILL_MFU * PEAK_FLOPS) / tensor_parallel(shape)


def programs_cpu_s(programs: float, config: PlanConfig) -> float:
    """CPU seconds of programs with 20 tests."""
    return programs * (PROGRAM_CPU_S + config.endless * ENDLESS_CPU_S)


def main(config: PlanConfig) -> None:
    """Predict and print. Raises ``InputError`` for what cannot be trained."""
    shape, contexts = SHAPES[config.shape], config.problems * config.contexts
    if config.gpus < (fewest := fewest_gpus(shape)):
        raise InputError(f"--gpus {config.gpus}: training {config.shape} needs the memory of at least {fewest} GPUs")
    if contexts < config.prompts:
        raise InputError(f"--problems {config.problems}: {contexts} contexts are no step of {config.prompts} prompts")
    if config.longest < config.response:
        raise InputError(
            f"--longest {config.longest}: must be at least --response, the mean, which is {config.response}"
        )
    step = predict_step(config)
    cores, steps = math.ceil(step.cores), contexts // config.prompts * config.epochs
    judging_s = programs_cpu_s(config.problems * config.trajectories * TURNS, config) / cores
    stages = (
        ("collect trajectories", collection_s(config, shape) / HOUR_S, config.gpus),
        ("run their hidden tests", judging_s / HOUR_S, 0),
        (f"train {steps:,} steps of {step.step:,.0f} s", steps * step.step / HOUR_S, config.gpus),
    )
    in_all = ("in all", sum(hours for _, hours, _ in stages), sum(hours * gpus for _, hours, gpus in stages))
    rows = [*((name, hours, hours * gpus) for name, hours, gpus in stages), in_all]
    columns = (f"{config.shape}, {config.gpus} H200s, {config.problems:,} problems", "hours", "GPU-hours")
    print(markdown_table(columns, [(name, f"{hours:,.1f}", f"{held:,.1f}") for name, hours, held in rows]))

    # Trajectories stand in two files, without and with their hidden tests; contexts in one, and in parquet.
    tokens = (
        config.problems * config.trajectories * (config.prompt + TURNS * config.response) + contexts * config.prompt
    )
    checkpoints, (_, checkpoint) = min(math.ceil(steps / SAVE_STEPS), KEPT), checkpoint_gb(shape)
    needs = (
        *((f"seconds of a step: {phase}", f"{seconds:,.0f}") for phase, seconds in step.seconds.items()),
        ("seconds per example", f"{step.step / config.prompts:,.1f}"),
        ("GPU-seconds per example", f"{step.per_example:,.1f}"),
        ("GB that a GPU receives per step", f"{step.traffic_gb:,.0f}"),
        ("cores for programs", f"{cores:,}"),
        ("GB on disk: trajectories and contexts", f"{2 * tokens * TOKEN_BYTES / GB:,.0f}"),
        (f"GB on disk: {checkpoints:,} checkpoints of {checkpoint:,.0f} GB", f"{checkpoints * checkpoint:,.0f}"),
    )
    print("\n" + markdown_table(("needed", ""), needs))
