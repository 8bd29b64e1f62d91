"""Whole training steps of the recipe, timed: ours, and veRL's own engine in each of its settings.

    python -m benchmarks.bench_step --model models/wide-8b --train_file runs/quickstart/parquet/train.parquet

Runs ``scripts/train_grpo_multi_turn.sh`` with each, on the same data: rollouts, scoring, log-probabilities, reference
and update as users run them. Prompts are lengthened to ``prompt`` tokens with text in front of the task, and every
response has ``response`` tokens, past its end (``rollout.ignore_eos``, and a copy of the model in which no token ends
one: veRL computes nothing that comes after such a token). The first step of a run is not counted: in it kernels are
compiled. Runs take turns, ``rounds`` times. Shown are medians and ranges of the seconds of each phase, how many times
ours is faster than the best of the others, and MFU of the update: the FLOPs that it needs, each prompt once, over time
and peak.

``ours`` is the recipe as it is. ``verl-torch``, ``verl-triton`` and ``verl-liger`` are the same recipe through veRL's
own engine, with fused kernels of this kind and micro-batches of as many tokens.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from benchmarks.harness import PHASES, ROOT, ranged
from cobalt.cli.entry import run
from cobalt.errors import SetupError
from cobalt.prompts import prompt_tokens
from cobalt.records.manifest import check_paths
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.tables import markdown_table
from cobalt.training.cost_model import PEAK_FLOPS, forward_flops

Settings = Literal["ours", "verl-torch", "verl-triton", "verl-liger"]
POLICY = "actor_rollout_ref"
OWN_PATH = (
    "cobalt.share_prompts=false", "cobalt.loss_weights=tokens", f"{POLICY}.actor.use_dynamic_bsz=true",
    f"{POLICY}.model.use_fused_kernels=true",
)  # fmt: skip
"""Overrides of veRL's own path."""
MEMORY = "actor/perf/max_memory_allocated_gb"
FILLER = "This line is filler number {number} of example {row}, and says nothing about the task.\n"


@dataclass(frozen=True)
class StepBenchConfig:
    """Seconds per phase of a training step, with ours and with other settings."""

    model: Path
    """Policy; ``research/benchmarks/widen.py`` makes one of any size."""
    train_file: Path
    """Parquet file of a multi-turn run; its first prompts are taken."""
    output_dir: Path = Path("runs/bench_step")
    """Training folders, and result.json."""
    preset: str = "paper-qwen3-h200"
    gpus: int = 2
    prompt: int = 4096
    """Tokens of each prompt, about."""
    response: int = 6144
    """Tokens of each response."""
    prompts: int = 4
    """Prompts of a step."""
    samples: int = 16
    """Responses to each."""
    mini_batch: int = 2
    """Prompts of an update."""
    steps: int = 3
    """Of a run; the first is not counted."""
    rounds: int = 3
    """Runs with each of the settings."""
    settings: tuple[Settings, ...] = ("ours", "verl-torch", "verl-triton", "verl-liger")
    overrides: tuple[str, ...] = ()
    """More hydra overrides, for all of them."""


def main(config: StepBenchConfig) -> None:
    """Train with each of the settings, and print."""
    check_paths([config.model / "config.json", config.train_file], [])
    config.output_dir.mkdir(parents=True, exist_ok=True)
    data = config.output_dir / "train.parquet"
    long_prompts(config).to_parquet(data)
    model = endless(config.model, config.output_dir / "model")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in config.settings}
    for number in range(config.rounds):
        for name in config.settings:
            steps = train(config, name, model, data, config.output_dir / f"{name}-{number}")
            results[name] += [figures(config, step) for step in steps]
            (config.output_dir / "result.json").write_text(
                json.dumps({"settings": asdict(config), **results}, indent=1, default=str)
            )
    print(table(results))


def table(results: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Medians and ranges, and over ours the least median of the others."""
    rows = []
    for figure in next(iter(results.values()))[0]:
        taken = {name: [step[figure] for step in steps] for name, steps in results.items()}
        middle = {name: statistics.median(values) for name, values in taken.items()}
        others = [value for name, value in middle.items() if name != "ours"]
        ratio = f"{min(others) / middle['ours']:.2f}" if figure in PHASES and "ours" in middle and others else ""
        rows.append((figure, *map(ranged, taken.values()), ratio))
    return markdown_table(("median [range]", *results, "best of veRL's over ours"), rows)


def endless(model: Path, folder: Path) -> Path:
    """The model's files, linked in ``folder``; there the last id, which is never sampled, ends a response."""
    folder.mkdir(exist_ok=True)
    for file in model.iterdir():
        link = folder / file.name
        if file.name != "generation_config.json" and not link.exists():
            link.symlink_to(file.resolve())
    network = AutoConfig.from_pretrained(model)
    ends_nowhere = GenerationConfig.from_model_config(network)
    ends_nowhere.eos_token_id = network.vocab_size - 1
    ends_nowhere.save_pretrained(folder)
    return folder


def long_prompts(config: StepBenchConfig) -> pd.DataFrame:
    """As many rows as the steps need, each with filler in front of its last message."""
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    rows = pd.read_parquet(config.train_file).head(config.prompts * config.steps)
    prompts = []
    for number, prompt in enumerate(rows["prompt"]):
        messages = [dict(message) for message in prompt]
        length = len(prompt_tokens(tokenizer, messages))
        each = len(tokenizer(FILLER.format(number=100, row=number)).input_ids)
        lines = max(0, config.prompt - length) // each
        filler = "".join(FILLER.format(number=line, row=number) for line in range(lines))
        messages[-1]["content"] = filler + messages[-1]["content"]
        prompts.append(messages)
    return rows.assign(prompt=prompts)


def train(config: StepBenchConfig, settings: Settings, model: Path, data: Path, folder: Path) -> list[dict[str, float]]:
    """The metrics of the steps that count."""
    common = [
        f"trainer.total_training_steps={config.steps}",
        f"trainer.total_epochs={config.steps}",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        f"data.train_batch_size={config.prompts}",
        f"data.max_prompt_length={config.prompt + config.prompt // 8}",
        f"data.max_response_length={config.response}",
        f"{POLICY}.actor.ppo_mini_batch_size={config.mini_batch}",
        f"{POLICY}.rollout.n={config.samples}",
        f"{POLICY}.rollout.ignore_eos=true",
        "reward.reward_kwargs.lengths=policy",
    ]
    kernels = settings.removeprefix("verl-")
    own = [*OWN_PATH, f"{POLICY}.model.fused_kernel_options.impl_backend={kernels}"]
    changed = [] if settings == "ours" else own
    overrides = [*changed, *common, *config.overrides]
    files = {"MODEL": str(model), "TRAIN_FILE": str(data), "VAL_FILE": str(data), "OUTPUT_DIR": str(folder)}
    environment = {**os.environ, **files, "PRESET": config.preset, "N_GPUS": str(config.gpus)}
    command = ["bash", ROOT / "scripts/train_grpo_multi_turn.sh", *overrides]
    log = folder.with_suffix(".log")
    with log.open("w") as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise SetupError(f"training with the settings '{settings}' ended with {done.returncode}: see {log}")
    return [step for step in read_metrics(folder / METRICS_FILE) if PHASES["step"] in step][1:]


def figures(config: StepBenchConfig, step: Mapping[str, float]) -> dict[str, float]:
    """Of one step's metrics. Raises ``SetupError`` if its responses are shorter than they should be."""
    model = AutoConfig.from_pretrained(config.model)
    prompt, response = round(step["prompt_length/mean"]), round(step["response_length/mean"])
    if response < config.response:
        raise SetupError(f"responses had {response} tokens on average, not {config.response}")
    needed = config.prompts * forward_flops(model, prompt, response, config.samples)
    seconds = {phase: step[name] for phase, name in PHASES.items()}
    tokens = config.prompts * config.samples * response
    return {
        **seconds,
        "prompt tokens": prompt,
        "generated tokens/s per GPU": tokens / seconds["generation"] / config.gpus,
        "update MFU": 3 * needed / seconds["update"] / config.gpus / PEAK_FLOPS,
        "update MFU as veRL counts": step["perf/mfu/actor"],
        "peak memory, GB": step[MEMORY],
    }


if __name__ == "__main__":
    run(StepBenchConfig, main)
