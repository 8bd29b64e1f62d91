"""``cobalt plan``: what the recipe will take, before anything starts: hours, GPU-hours, cores, disk.

Arithmetic (FLOPs, bytes) over the GPU's published rates and a few that were measured. docs/scale.md says where they
come from, and how far to trust them.
"""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from cobalt.cli.flags import AboveZero, CommandConfig, NotNegative, Positive, Share
from cobalt.errors import InputError
from cobalt.records.rows import Row, read_rows
from cobalt.tables import markdown_table

GB, HOUR_S = 1e9, 3600
TURNS = 3
"""Programs of a trajectory that is learned from."""
PEAK_FLOPS = 989e12
"""Per second, dense bf16, of an H100 or H200 (SXM)."""

Phase = Literal["generation", "old log-probs", "reference", "judging", "update", "rest"]
"""Of a step. judging: for which nothing else runs; rest: what is between the others, and the weights' way into vLLM."""
GpuName = Literal["h100", "h200"]
ShapeName = Literal[
    "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b",
    "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "qwen2.5-coder-7b",
]  # fmt: skip

# Fitted to the steps of research/results/now-h200, price and plan: shares of the GPU's peak that the phases reach, and
# seconds that each response costs beside, whatever its length: rows are queued, chosen, packed and unpacked one by one.
PHASE_MFU: dict[Phase, float] = {"old log-probs": 0.55, "reference": 0.61, "update": 0.43}
ROW_S: dict[Phase, float] = {"old log-probs": 0.0025, "reference": 0.0025, "update": 0.0025}
FORWARDS = {"old log-probs": 1, "reference": 1, "update": 3}
REST_ROW_S = 0.0018
# Generation: the share of the memory's rate that is reached, the rest of a token's time (launches, sampling,
# scheduling), what a token of a row costs the process that hands it on, and the weights' way into vLLM.
MEMORY_SHARE = 0.95
PREFILL_MFU = 0.5
TOKEN_S = 0.0015
HOST_S = 0.0001
SYNC_S_PER_GB = 0.09
# Shares of a GPU's memory for weights and cache of an engine: of the app that collects, with its rows at once, and in
# training; for the training state; and for an engine's weights.
APP_ROWS, APP_ROOM, ENGINE_ROOM = 256, 0.9, 0.7
STATE_ROOM, VLLM_ROOM = 0.5, 0.35
STATE_BYTES = 16  # fp32 weights, gradients and Adam's two moments, per parameter
HALF, FULL = 2, 4  # bytes of bf16 and fp32
# docs/scale.md: a program with 20 tests; the share of a step that scoring may add
PROGRAM_CPU_S, SCORING_SHARE = 0.09, 0.1
MICRO_BATCH = 32_768
"""Tokens that a pass computes at once (ppo_max_token_len_per_gpu of the recipe)."""
FEEDBACK = 105
"""Tokens of the feedback on a program, in the online run of research/results/plan."""
TOKEN_BYTES = 4  # of text
# trainer.save_freq of the recipe; checkpoints on disk at once: the last two, the best, and the one that is written
SAVE_STEPS, KEPT = 10, 4


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Bytes of its memory, and bytes per second (NVIDIA's data sheets of the SXM boards)."""

    memory: float
    memory_rate: float


GPUS: dict[GpuName, Gpu] = {"h100": Gpu(80 * GB, 3.35e12), "h200": Gpu(141 * GB, 4.8e12)}


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes by the names of ``config.json``. The defaults are those of all published dense Qwen3."""

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
    "qwen2.5-coder-0.5b": Shape(896, 4864, 24, 14, 2, 64, tie_word_embeddings=True, max_position_embeddings=32_768),
    "qwen2.5-coder-1.5b": Shape(1536, 8960, 28, 12, 2, tie_word_embeddings=True, max_position_embeddings=32_768),
    "qwen2.5-coder-7b": Shape(
        3584, 18944, 28, 28, 4, 128, 152_064, tie_word_embeddings=False, max_position_embeddings=32_768
    ),
}
"""Published shapes (arXiv 2505.09388, table 1; arXiv 2409.12186, table 1; the models' ``config.json``)."""


@dataclass(frozen=True, kw_only=True)
class PlanConfig(CommandConfig):
    """Predict hours, GPU-hours, cores and disk of collecting trajectories and training on them."""

    shape: ShapeName = "qwen3-8b"
    """Model that is trained, by size; others cost about as much as one with as many parameters."""
    gpu: GpuName = "h200"
    """Kind of GPU."""
    gpus: Positive = 4
    """GPUs of the training and of collecting trajectories."""
    problems: Positive = 10_000
    """Problems to learn from."""
    trajectories: Positive = 16
    """Per problem, three programs each."""
    contexts: Positive = 6
    """Partial contexts that a problem gives. On MiniCode 6; usually at most 13: four trajectories, and the problem."""
    epochs: Positive | None = None
    """Passes over the contexts, or over an online recipe's problems; default: 2, and 4 online, as in the recipes."""
    prompts: Positive = 128
    """Prompts of a step."""
    samples: Positive = 16
    """Responses to each prompt."""
    updates: Positive = 2
    """Updates of a step, each from its share of the prompts; with one, old log-probabilities take no pass."""
    prompt: Positive = 3000
    """Tokens, mean."""
    response: Positive = 3000
    """Tokens, mean."""
    longest: Positive = 6144
    """Tokens of the longest response, online of the longest trajectory: how long generation lasts."""
    lengths: Path | None = None
    """Trajectories of a stage that samples: their lengths instead of --prompt, --response and --longest."""
    turns: Annotated[float, Interval(ge=1, lt=math.inf)] = 1
    """Programs of a trajectory in a step, mean; online recipes have more than 1, and collect nothing beforehand."""
    endless: Share = 0.02
    """Share of programs that run into their time limit."""
    suite_limit: AboveZero = 27
    """CPU seconds of a program that does (suite_cpu_limit_s)."""


class Tokens(TypedDict):
    """The usage of one response."""

    prompt_tokens: NotNegative
    completion_tokens: NotNegative


class Answered(Row):
    """A row of a single-turn or multi-turn run."""

    usage: list[Annotated[list[Tokens | None], BeforeValidator(lambda of: of if isinstance(of, list) else [of])]]
    """By turn and sample; by sample alone each is a list of one."""


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
    """Operations of a forward pass over a prompt, once, and its responses.

    Counted are the layers' matrices at each token, attention at each pair of a token and one before it, and the head
    at each token of a response.
    """
    layers, channels = model.num_hidden_layers, model.hidden_size
    attention = model.num_attention_heads * model.head_dim
    answered = samples * response
    pairs = prompt * prompt / 2 + answered * (prompt + response / 2)
    head = 2 * model.vocab_size * channels * answered
    return 2 * layer_weights(model) * (prompt + answered) + 4 * layers * attention * pairs + head


def gpus_for(size: float, room: float) -> int:
    """How many GPUs with this room hold so many bytes; a power of two."""
    return 2 ** max(0, math.ceil(math.log2(size / room)))


def fewest_gpus(shape: Shape, gpu: Gpu) -> int:
    """The fewest GPUs that hold the training state."""
    return gpus_for(STATE_BYTES * parameters(shape), STATE_ROOM * gpu.memory)


def tensor_parallel(shape: Shape, gpu: Gpu) -> int:
    """GPUs of one engine of vLLM."""
    return gpus_for(HALF * parameters(shape), VLLM_ROOM * gpu.memory)


def checkpoint_gb(shape: Shape) -> tuple[float, float]:
    """fp32 weights alone, and with the optimizer's state."""
    return FULL * parameters(shape) / GB, 3 * FULL * parameters(shape) / GB


def predict_step(config: PlanConfig) -> Prediction:
    """What a step with these lengths takes; every GPU has its share of the prompts."""
    shape, prompts = SHAPES[config.shape], config.prompts / config.gpus
    # of the passes after the rollouts; each prompt is computed once, and what a trajectory's turns share
    added = round((config.turns - 1) * FEEDBACK)
    answered = round(config.turns * config.response) + added
    flops = prompts * forward_flops(shape, config.prompt, answered, config.samples)
    rows = prompts * config.samples * config.turns
    passes = passes_s(flops, rows)
    if config.updates == 1:  # and calculate_log_probs=false
        passes["old log-probs"] = 0.0
    beside, generation = passes["old log-probs"] + passes["reference"], generation_s(config, shape)
    seconds: dict[Phase, float] = {
        "generation": generation,
        **passes,
        "judging": last_program_s(config, config.prompts * config.samples, generation, beside),
        "rest": REST_ROW_S * rows + SYNC_S_PER_GB * HALF * parameters(shape) / GB,
    }
    step = sum(seconds.values())
    judging_s = beside + SCORING_SHARE * step
    cores = programs_cpu_s(config.prompts * config.samples * config.turns, config) / judging_s
    # a micro-batch gathers the weights for each pass, the update's twice (gradient checkpointing); then gradients, and
    # weights for vLLM
    at_once = math.ceil(prompts * (config.prompt + config.samples * answered) / MICRO_BATCH)
    traffic = parameters(shape) * (4 * HALF * at_once + FULL * config.updates + HALF)
    return Prediction(seconds, step, step * config.gpus / config.prompts, cores, traffic / GB)


def passes_s(flops: float, rows: float) -> dict[Phase, float]:
    """Seconds of one GPU's passes over its share of a step. ``flops``: of a forward pass; ``rows``: responses."""
    return {
        phase: FORWARDS[phase] * flops / (mfu * PEAK_FLOPS) + ROW_S[phase] * rows for phase, mfu in PHASE_MFU.items()
    }


def generation_s(config: PlanConfig, shape: Shape) -> float:
    """Seconds of a step's rollouts, until the last response is there.

    An engine waits for its longest response; meanwhile fewer and fewer rows run. All of its tokens pass one process.
    """
    gpu = GPUS[config.gpu]
    rows = config.prompts * config.samples * tensor_parallel(shape, gpu) / config.gpus
    tokens = rows * config.turns * config.response
    running = min(rows, tokens / config.longest, cached_rows(config, shape, ENGINE_ROOM))
    per_token = token_s(config, shape, running)
    decoding = max(tokens / running * per_token, tokens * HOST_S)
    return decoding + prefill_s(config, shape, rows * (1 / config.samples + config.turns - 1))


def last_program_s(config: PlanConfig, rows: float, generation: float, beside: float) -> float:
    """Seconds for which a step waits for its last program alone, if its tests run one after the other.

    ``beside``: seconds of what is computed meanwhile. Lengths have an exponential law.
    """
    left = max(0.0, config.suite_limit - beside)
    running = math.exp(-max(0.0, config.longest * (1 - left / generation)) / (config.turns * config.response))
    return left * (1 - (1 - config.endless) ** (rows * running))


def collection_s(config: PlanConfig, shape: Shape) -> float:
    """Seconds of the reference model's trajectories, of which as many run at once as an engine has room for."""
    engines = config.gpus / tensor_parallel(shape, GPUS[config.gpu])
    responses = config.problems * config.trajectories * TURNS / engines
    running = min(APP_ROWS, cached_rows(config, shape, APP_ROOM))
    per_token = max(token_s(config, shape, running) / running, HOST_S)
    return responses * config.response * per_token + prefill_s(config, shape, responses)


def cached_rows(config: PlanConfig, shape: Shape, share: float) -> float:
    """Rows whose keys and values an engine has room for, in this share of its GPUs' memory."""
    gpu = GPUS[config.gpu]
    room = share * gpu.memory * tensor_parallel(shape, gpu) - HALF * parameters(shape)
    return room / cache_bytes(config, shape)


def cache_bytes(config: PlanConfig, shape: Shape) -> float:
    """Bytes of a row's keys and values, on average."""
    of_a_token = 2 * HALF * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
    return of_a_token * (config.prompt + config.turns * config.response / 2)


def token_s(config: PlanConfig, shape: Shape, running: float) -> float:
    """Seconds in which an engine adds one token to each of the running rows."""
    gpu = GPUS[config.gpu]
    read_s = (HALF * parameters(shape) + running * cache_bytes(config, shape)) / (MEMORY_SHARE * gpu.memory_rate)
    compute_s = 2 * parameters(shape) * running / (PREFILL_MFU * PEAK_FLOPS)
    return (read_s + compute_s) / tensor_parallel(shape, gpu) + TOKEN_S


def prefill_s(config: PlanConfig, shape: Shape, prompts: float) -> float:
    """Seconds in which an engine reads so many prompts."""
    flops = 2 * parameters(shape) * config.prompt * prompts
    return flops / (PREFILL_MFU * PEAK_FLOPS) / tensor_parallel(shape, GPUS[config.gpu])


def programs_cpu_s(programs: float, config: PlanConfig) -> float:
    """CPU seconds of programs with 20 tests."""
    return programs * (PROGRAM_CPU_S + config.endless * config.suite_limit)


def with_lengths(config: PlanConfig) -> PlanConfig:
    """The same with the lengths of ``config.lengths``. Raises ``InputError`` for a file that tells none."""
    if config.lengths is None:
        return config
    given = [name for name in ("prompt", "response", "longest") if getattr(config, name) != getattr(PlanConfig, name)]
    if given:
        raise InputError(f"--lengths and --{given[0]} exclude each other")
    flat = [of for row in read_rows(config.lengths, Answered) for usage in row.usage for of in usage if of]
    if not any(of["completion_tokens"] for of in flat):
        raise InputError.at(config.lengths, None, "no usage: tokens were not counted")
    prompts, answers = [of["prompt_tokens"] for of in flat], [of["completion_tokens"] for of in flat]
    means = {"prompt": sum(prompts) / len(flat), "response": sum(answers) / len(flat), "longest": max(answers)}
    return dataclasses.replace(config, lengths=None, **{name: max(1, round(value)) for name, value in means.items()})


def main(config: PlanConfig) -> None:
    """Predict and print. Raises ``InputError`` for what cannot be trained."""
    config = with_lengths(config)
    is_online = config.turns > 1
    for name in ("trajectories", "contexts"):
        if is_online and getattr(config, name) != getattr(PlanConfig, name):
            raise InputError(f"--turns {config.turns:g} is an online recipe, which has no --{name}")
    shape, contexts = SHAPES[config.shape], config.problems * (1 if is_online else config.contexts)
    if config.gpus < (fewest := fewest_gpus(shape, GPUS[config.gpu])):
        needs = f"training {config.shape} needs the memory of at least {fewest} {config.gpu.upper()}s"
        raise InputError(f"--gpus {config.gpus}: {needs}")
    if contexts < config.prompts:
        what = "problems" if is_online else "contexts"
        raise InputError(f"--problems {config.problems}: {contexts} {what} are no step of {config.prompts} prompts")
    if config.longest < config.response:
        raise InputError(
            f"--longest {config.longest}: must be at least --response, the mean, which is {config.response}"
        )
    step = predict_step(config)
    cores, epochs = math.ceil(step.cores), config.epochs or (4 if is_online else 2)
    steps = contexts // config.prompts * epochs
    stages = [(f"train {steps:,} steps of {step.step:,.0f} s", steps * step.step / HOUR_S, config.gpus)]
    if not is_online:
        judging_s = programs_cpu_s(config.problems * config.trajectories * TURNS, config) / cores
        stages = [
            ("collect trajectories", collection_s(config, shape) / HOUR_S, config.gpus),
            ("run their hidden tests", judging_s / HOUR_S, 0),
            *stages,
        ]
    in_all = ("in all", sum(hours for _, hours, _ in stages), sum(hours * gpus for _, hours, gpus in stages))
    rows = [*((name, hours, hours * gpus) for name, hours, gpus in stages), in_all]
    columns = (
        f"{config.shape}, {config.gpus} {config.gpu.upper()}, {config.problems:,} problems",
        "hours",
        "GPU-hours",
    )
    print(markdown_table(columns, [(name, f"{hours:,.1f}", f"{held:,.1f}") for name, hours, held in rows]))

    # Trajectories stand in two files, without and with their hidden tests; contexts in one, and in parquet.
    collected = 0 if is_online else config.problems * config.trajectories
    tokens = collected * (config.prompt + TURNS * config.response) + contexts * config.prompt
    checkpoints, (_, checkpoint) = min(math.ceil(steps / SAVE_STEPS), KEPT), checkpoint_gb(shape)
    needs = (
        *((f"seconds of a step: {phase}", f"{seconds:,.0f}") for phase, seconds in step.seconds.items() if seconds),
        ("seconds per example", f"{step.step / config.prompts:,.1f}"),
        ("GPU-seconds per example", f"{step.per_example:,.1f}"),
        ("GB that a GPU receives per step", f"{step.traffic_gb:,.0f}"),
        ("cores for programs", f"{cores:,}"),
        (
            f"GB on disk: {'problems' if is_online else 'trajectories and contexts'}",
            f"{2 * tokens * TOKEN_BYTES / GB:,.0f}",
        ),
        (f"GB on disk: {checkpoints:,} checkpoints of {checkpoint:,.0f} GB", f"{checkpoints * checkpoint:,.0f}"),
    )
    print("\n" + markdown_table(("needed", ""), needs))
