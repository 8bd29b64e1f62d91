"""Whole training steps of the recipe, timed: ours, and the release's settings or veRL's own path.

    python -m benchmarks.bench_recipe --model models/wide-8b --train_file runs/quickstart/parquet/train.parquet

Runs ``scripts/train_grpo_multi_turn.sh`` once with each, on the same data: rollouts, scoring, log-probabilities,
reference and update as users run them. Prompts are lengthened to ``prompt`` tokens with text in front of the task, and
every response has ``response`` tokens, past its end (``rollout.ignore_eos``, and a copy of the model in which no token
ends one: veRL computes nothing that comes after such a token). Shown are the seconds of each phase in the last step,
tokens/s and MFU of the update (the FLOPs that it needs, see bench_step.py).

``ours`` is the recipe as it is. ``verl`` is for veRL 0.9.1: the same recipe through veRL's own engine, with its fused
Triton kernels and micro-batches of as many tokens. ``release`` is for veRL 0.5.0. It has every value of the
configuration that the release's script resolves to (``tests/data/release``), where the veRL of both, PyPI's 0.5.0,
knows the setting. It computes each prompt with every response, in micro-batches of 2 rows (16 for log-probabilities)
without Liger's kernels, offloads optimizer and reference, and scores before it computes log-probabilities.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import hydra
import pandas as pd
from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from benchmarks.harness import PHASES, ROOT
from cobalt.cli.entry import run
from cobalt.errors import InputError, SetupError
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.tables import markdown_table
from cobalt.training.cost_model import PEAK_FLOPS, forward_flops

Settings = Literal["release", "ours", "verl"]
POLICY = "actor_rollout_ref"
NOT_METHOD = (
    "custom_reward_function.", "data.train_files", "data.val_files", "critic.", "reward_model.model.",
    "reward_model.reward_manager", "reward_model.use_dynamic_bsz", "trainer.default_local_dir",
    "trainer.experiment_name", "trainer.log_val_generations", "trainer.logger", "trainer.n_gpus_per_node",
    "trainer.project_name", f"{POLICY}.model.path", f"{POLICY}.rollout.load_format",
)  # fmt: skip
"""Beginnings of names that say whose files, model, machine and names are used, or belong to models that GRPO lacks.

``load_format`` has another name in the release's veRL for the same: ``dummy``, which is ``dummy_dtensor`` in PyPI's.
"""
OWN_PATH = (
    "cobalt.share_prompts=false", "cobalt.loss_weights=tokens", f"{POLICY}.actor.use_dynamic_bsz=true",
    f"{POLICY}.model.use_fused_kernels=true", f"{POLICY}.model.fused_kernel_options.impl_backend=triton",
)  # fmt: skip
"""Overrides of the setting ``verl``."""
PROMPTS_THAT_FIT = {"data.truncation", "data.filter_overlong_prompts", "data.filter_overlong_prompts_workers"}
MEMORY = "perf/max_memory_allocated_gb"
FILLER = "This line is filler number {number} of example {row}, and says nothing about the task.\n"


@dataclass(frozen=True)
class RecipeBenchConfig:
    """Seconds per phase of a training step, with ours and with other settings."""

    model: Path
    """Policy; ``research/benchmarks/widen.py`` makes one of any size."""
    train_file: Path
    """Parquet file of a multi-turn run; its first prompts are taken."""
    output_dir: Path = Path("runs/bench_recipe")
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
    steps: int = 2
    """The last one is measured: the first holds what happens once (at 8B 12 to 18 s in the reference's first pass)."""
    settings: tuple[Settings, ...] = ("ours", "release")
    overrides: tuple[str, ...] = ()
    """More hydra overrides, for all of them."""


def main(config: RecipeBenchConfig) -> None:
    """Train with each of the settings, and print."""
    for file in (config.model / "config.json", config.train_file):
        if not file.is_file():
            raise InputError.at(file, None, "no such file")
    config.output_dir.mkdir(parents=True, exist_ok=True)
    data = config.output_dir / "train.parquet"
    long_prompts(config).to_parquet(data)
    model = endless(config.model, config.output_dir / "model")
    results = []
    for settings in config.settings:
        results.append(figures(config, settings, train(config, settings, model, data)))
        (config.output_dir / "result.json").write_text(json.dumps(results, indent=1))

    rows = []
    for phase in results[0]["seconds"]:
        seconds = {result["settings"]: result["seconds"][phase] for result in results}
        others = [value for name, value in seconds.items() if name != "ours" and "ours" in seconds]
        ratio = " ".join(f"{value / seconds['ours']:.2f}" for value in others)
        rows.append((phase, *(f"{value:.1f}" for value in seconds.values()), ratio))
    for name in ("generated_tokens_per_s_per_gpu", "update_mfu", "update_mfu_verl", "peak_memory_gb"):
        rows.append((name, *(f"{result[name]:.3g}" for result in results), ""))
    print(markdown_table(("seconds", *config.settings, "times faster"), rows))


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


def release_values(recipe: str) -> dict[str, Any]:
    """What the release's ``train_grpo_{recipe}.sh`` resolves to, by full name."""
    folder = ROOT / "tests/data/release"
    multi_turn, own = (json.loads((folder / f"{name}.json").read_text())["values"] for name in ("multi_turn", recipe))
    values = multi_turn | own  # the single-turn script's are stored where they differ
    config = OmegaConf.create()
    for name, value in values.items():
        OmegaConf.update(config, name, value, force_add=True)
    return {name: OmegaConf.select(config, name) for name in values}


def differences(recipe: str, preset: str) -> dict[str, tuple[Any, Any]]:
    """Settings of the method in which the recipe is not the release: the release's value, and ours."""
    search = f"hydra.searchpath=[file://{ROOT}/verl/config]"
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", [search, f"+recipe={recipe}", f"+preset={preset}"])
    found = {}
    for name, value in release_values(recipe).items():
        ours = OmegaConf.select(config, name, default=value)  # of what this veRL does not know, nothing
        if ours != value and not isinstance(ours, DictConfig) and not name.startswith(NOT_METHOD):
            found[name] = (value, ours)
    return found


def long_prompts(config: RecipeBenchConfig) -> pd.DataFrame:
    """As many rows as the steps need, each with filler in front of its last message."""
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    rows = pd.read_parquet(config.train_file).head(config.prompts * config.steps)
    prompts = []
    for number, prompt in enumerate(rows["prompt"]):
        messages = [dict(message) for message in prompt]
        length = len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True))
        each = len(tokenizer(FILLER.format(number=100, row=number)).input_ids)
        lines = max(0, config.prompt - length) // each
        filler = "".join(FILLER.format(number=line, row=number) for line in range(lines))
        messages[-1]["content"] = filler + messages[-1]["content"]
        prompts.append(messages)
    return rows.assign(prompt=prompts)


def train(config: RecipeBenchConfig, settings: Settings, model: Path, data: Path) -> dict[str, float]:
    """The metrics of the last step."""
    folder = config.output_dir / settings
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
        "reward_model.reward_kwargs.lengths=policy",
    ]
    changed: Sequence[str] = ()
    if settings == "verl":
        changed = OWN_PATH
    elif settings == "release":
        changed = release_overrides(config.preset, common)
    overrides = [*changed, *common, *config.overrides]
    files = {"MODEL": str(model), "TRAIN_FILE": str(data), "VAL_FILE": str(data), "OUTPUT_DIR": str(folder)}
    environment = {**os.environ, **files, "PRESET": config.preset, "N_GPUS": str(config.gpus)}
    command = ["bash", ROOT / "scripts/train_grpo_multi_turn.sh", *overrides]
    log = config.output_dir / f"{settings}.log"
    with log.open("w") as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise SetupError(f"training with the settings '{settings}' ended with {done.returncode}: see {log}")
    return [step for step in read_metrics(folder / METRICS_FILE) if PHASES["step"] in step][-1]


def release_overrides(preset: str, common: list[str]) -> list[str]:
    """Overrides that make the multi-turn recipe the release's, but for what ``common`` sets for both.

    All prompts fit here, and training refuses to cut any.
    """
    set_for_both = {override.partition("=")[0] for override in common} | PROMPTS_THAT_FIT
    changed = differences("multi_turn", preset)
    overrides = [f"{name}={release}" for name, (release, _) in changed.items() if name not in set_for_both]
    return ["cobalt.share_prompts=false", *overrides]


def figures(config: RecipeBenchConfig, settings: Settings, step: dict[str, float]) -> dict[str, Any]:
    """Of one step's metrics. Raises ``SetupError`` if its responses are shorter than they should be."""
    model = AutoConfig.from_pretrained(config.model)
    prompt, response = round(step["prompt_length/mean"]), round(step["response_length/mean"])
    if response < config.response:
        raise SetupError(f"responses had {response} tokens on average, not {config.response}")
    needed = config.prompts * forward_flops(model, prompt, response, config.samples)
    seconds = {phase: step[name] for phase, name in PHASES.items() if name in step}  # 0.9.1 scores while it generates
    tokens = config.prompts * config.samples * response
    return {
        "settings": settings,
        "prompt": prompt,
        "response": response,
        "seconds": seconds,
        "generated_tokens_per_s_per_gpu": tokens / seconds["generation"] / config.gpus,
        "update_mfu": 3 * needed / seconds["update"] / config.gpus / PEAK_FLOPS,
        "update_mfu_verl": step["perf/mfu/actor"],
        "peak_memory_gb": step[MEMORY if MEMORY in step else f"actor/{MEMORY}"],  # veRL 0.5.0, or 0.9.1
    }


if __name__ == "__main__":
    run(RecipeBenchConfig, main)
