"""``cobalt dpo``: direct preference optimisation (arXiv 2305.18290) on stored answers, with TRL's ``DPOTrainer``.

Pairs are those of ``process_multi_turn_taco.py --for dpo``, tokenized as they are served. The reference is the start
of the training; its log-probabilities are computed once, before the first step.
"""

import json
import math
import sys
import tempfile
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tyro
from annotated_types import MinLen
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, ModelName, Positive
from cobalt.errors import InputError, SetupError, first_line
from cobalt.preproc.bandit_prompts import load_tokenizer, template_arguments
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import changes, file_sha256, read_manifest, refuse_unwritable, tell_other_origin
from cobalt.records.rows import Prompt, read_rows
from cobalt.records.training_run import MANIFEST_NAME, resumed_step, training_manifest
from cobalt.training.cluster import cpu_variables
from cobalt.training.config import ROOM
from cobalt.training.preflight import refuse_missing_gpus, refuse_unusable_loggers
from cobalt.training.processes import train_in_processes

CHECKPOINT = "checkpoint-{}"
"""Folder of a step, as Hugging Face's trainer names it."""
LOGGERS = ("wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio")
"""Of Hugging Face's trainer, those that need the package of their name."""
PAIRS = "train_batch_size"
"""Pairs in a step."""
TEMPLATE = "apply_chat_template_kwargs"
"""Arguments of the chat template, as JSON."""
NOT_TRLS = (PAIRS, TEMPLATE)
GPU = {
    PAIRS: "32",
    "learning_rate": "1e-6",
    "beta": "0.1",
    "num_train_epochs": "1",
    "lr_scheduler_type": "constant",
    "weight_decay": "0.01",
    "max_grad_norm": "1.0",
    "max_length": "4864",
    "per_device_train_batch_size": "4",
    "precompute_ref_log_probs": "true",
    "logging_steps": "1",
    "save_strategy": "epoch",
    "save_total_limit": "2",
    "bf16": "true",
}
CPU = {
    PAIRS: "8",
    "learning_rate": "1e-5",
    "max_length": "1184",
    "per_device_train_batch_size": "8",
    "gradient_checkpointing": "false",
    "use_cpu": "true",
    "bf16": "false",
}
PRESETS = {"gpu": GPU, "cpu": {**GPU, **CPU}}
OURS = ("output_dir", "gradient_accumulation_steps", "report_to", "resume_from_checkpoint", "truncation_mode")
"""Settings of TRL that follow from others, or would have no effect."""
VOID = (
    ("save_steps", "save_strategy", "epoch"),
    *((name, "lr_scheduler_type", "constant") for name in ("warmup_steps", "warmup_ratio")),
)
"""Settings that a value of another leaves without effect."""
MAY_CHANGE = (
    *("num_train_epochs", "max_steps", "per_device_train_batch_size"),
    *("gradient_checkpointing", "dataloader_num_workers"),
    *("save_strategy", "save_steps", "save_total_limit", "disable_tqdm"),
)
"""Settings that a resumed training takes over, and that do not change what it learns."""


class Pair(Prompt):
    """A row of ``process_multi_turn_taco.py --for dpo``."""

    chosen: Annotated[str, MinLen(1)]
    rejected: str


@dataclass(frozen=True, kw_only=True)
class DpoConfig(CommandConfig):
    """Train on pairs of a passing and a failing stored answer to one context.

    The recipe scripts/train_dpo.sh runs it. SETTINGS are those of TRL's DPOConfig as NAME=VALUE, such as beta=0.1
    learning_rate=1e-6 num_train_epochs=1 max_steps=100 save_steps=50, train_batch_size=N, the pairs in a step, and
    apply_chat_template_kwargs=JSON, as the model was served. The last two checkpoints stay, with save_total_limit=0
    all.
    """

    model: ModelName
    """Directory or hub name of the policy to begin with, which is also the reference."""
    train_file: Path
    """Pairs (process_multi_turn_taco.py --for dpo)."""
    output_dir: Path
    """Checkpoints, metrics.jsonl, log; a second run resumes from it."""
    preset: Literal["gpu", "cpu"] = "gpu"
    """Settings where none are given; cpu: for a small model, without GPUs."""
    n_gpus: Positive = 1
    """GPUs; with --preset cpu processes."""
    loggers: tuple[str, ...] = ()
    """Besides metrics.jsonl: wandb, tensorboard."""
    log: Path | None = None
    """What the processes print; default: train.log in the output folder."""
    check: bool = False
    """Print the settings, look at them, at files and machine, and start nothing."""
    settings: tyro.conf.Positional[tuple[str, ...]] = ()
    """NAME=VALUE of TRL's DPOConfig."""


def main(config: DpoConfig) -> None:
    """See ``DpoConfig``. Raises ``CobaltError``."""
    from datasets import Dataset, disable_progress_bars

    settings = settings_of(config)
    size = int(settings[PAIRS])
    described = {
        "model": {"path": config.model},
        "data": {"train_files": str(config.train_file), PAIRS: size},
        "trainer": {"n_gpus_per_node": config.n_gpus, "nnodes": 1},
        "trl": settings,
    }
    if config.check:
        print(json.dumps(described, indent=2), flush=True)
    if config.preset == "gpu":
        refuse_missing_gpus(config.n_gpus)  # else TRL's own complaint would come first
    of_trl = {name: value for name, value in settings.items() if name not in NOT_TRLS}
    arguments = parsed(of_trl, config.output_dir)
    refuse_unwritable(config.output_dir)
    refuse_unusable_loggers(list(config.loggers), LOGGERS)
    tokenizer, most = load_tokenizer(config.model), arguments.max_length
    template = template_arguments(settings.get(TEMPLATE))
    pairs, left_out = encoded_pairs(config.train_file, tokenizer, most, **template)
    if left_out:
        told = f"{left_out} pairs of {config.train_file} are left out: more than max_length={most} tokens"
        print(f"cobalt: {told}", file=sys.stderr, flush=True)
    per_pass = arguments.per_device_train_batch_size * config.n_gpus
    if size % per_pass:
        told = f"per_device_train_batch_size={arguments.per_device_train_batch_size} times {config.n_gpus} GPUs"
        raise InputError(f"{PAIRS}={size} must be a multiple of {told}")
    if len(pairs) < size:
        raise InputError(f"{PAIRS}={size}, but {config.train_file} holds only {len(pairs)} pairs that fit max_length")
    accumulated = size // per_pass
    per_epoch = math.ceil(math.ceil(len(pairs) / per_pass) / accumulated)  # as Hugging Face's trainer counts
    steps = arguments.max_steps if arguments.max_steps > 0 else math.ceil(arguments.num_train_epochs * per_epoch)

    folder = config.output_dir
    content = {
        "train_file": file_sha256(config.train_file),
        "model": model_identity(config.model),
        **{f"settings.{name}": value for name, value in settings.items() if name not in MAY_CHANGE},
    }
    tell_other_origin(config.train_file, model_id=content["model"])
    described["seed"] = arguments.seed
    manifest = Manifest(folder / MANIFEST_NAME, "cobalt dpo", described, content, [config.train_file])
    manifest.output, manifest.counts = folder, {"pairs": len(pairs), "left_out": left_out}
    begun = resumed_step({"resume_mode": "auto", "default_local_dir": folder})
    if begun:
        stored = read_manifest(training_manifest(folder)).get("content", {})
        if told := changes(stored, content):
            told = f"was made with other settings ({told}); take those, or choose another output folder"
            raise InputError.at(folder, None, told)
        if begun < steps and arguments.save_only_model:
            raise InputError("save_only_model=true: no training goes on without its optimizer; choose another folder")
    if config.check:
        return
    if begun >= steps:
        print(f"cobalt: finished already: checkpoint {begun}", flush=True)
        return
    with tempfile.TemporaryDirectory() as data:  # processes share what TRL stores beside the pairs
        disable_progress_bars()
        Dataset.from_list(pairs).save_to_disk(data)
        own = {"gradient_accumulation_steps": accumulated, "report_to": ",".join(config.loggers) or "none"}
        work = {
            "model": config.model,
            "pairs": data,
            "settings": of_trl | own,
            "folder": str(folder),
            "checkpoint": str(folder / CHECKPOINT.format(begun)) if begun else None,
        }
        variables = cpu_variables(config.n_gpus) if config.preset == "cpu" else {}
        how = config.n_gpus, variables, config.log
        train_in_processes(manifest, begun, steps, f"{ROOM}.dpo_worker", json.dumps(work), *how)


def settings_of(config: DpoConfig) -> dict[str, str]:
    """The preset's settings with those that are given. Raises ``InputError`` for what is none."""
    given = {}
    for setting in config.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"no setting '{setting}': settings are NAME=VALUE")
        if name in OURS:
            raise InputError(f"{name}: it follows from other settings and flags; leave it out")
        given[name] = value
    if not given.get(PAIRS, "1").isdecimal() or given.get(PAIRS) == "0":
        raise InputError(f"{PAIRS}={given[PAIRS]}: expected an integer above 0")
    if TEMPLATE in given:
        given[TEMPLATE] = json.dumps(template_arguments(given[TEMPLATE]), sort_keys=True)
    if "save_steps" in given:
        given.setdefault("save_strategy", "steps")
    settings = {**PRESETS[config.preset], **given}
    for name, of, void in VOID:
        if name in given and settings[of] == void:
            raise InputError(f"{name}={given[name]} has no effect with {of}={void}")
    return settings


def parsed(settings: Mapping[str, Any], folder: str | Path) -> Any:
    """TRL's ``DPOConfig``. Raises ``InputError`` for names and values that it does not take."""
    if find_spec("trl") is None:
        raise SetupError("cobalt dpo needs TRL, which is not installed: pip install trl==1.12.0")
    from transformers import HfArgumentParser
    from trl.trainer.dpo_config import DPOConfig

    kind: Any = DPOConfig
    parser = HfArgumentParser(kind, allow_abbrev=False)
    names = [action.dest for action in parser._actions]
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names, 1)
            raise InputError(
                f"'{name}': no such setting of TRL's DPOConfig{f'; did you mean {near[0]}?' if near else ''}"
            )

    def refuse(message: str) -> NoReturn:
        raise InputError(message.removeprefix("argument --"))

    parser.error = refuse
    arguments = [f"--output_dir={folder}", *(f"--{name}={value}" for name, value in settings.items())]
    try:
        return parser.parse_args_into_dataclasses(arguments)[0]
    except ValueError as error:
        raise InputError(first_line(error)) from None


def encoded_pairs(path: Path, tokenizer: Any, most: int, **template: Any) -> tuple[list[dict[str, list[int]]], int]:
    """Pairs as TRL's collator reads them, and how many were left out: one of their answers has no room.

    ``template``: of the chat template.

    Raises ``InputError``.
    """
    from cobalt.training.rft_data import encode  # and torch

    pairs, count = [], 0
    for row in read_rows(path, Pair, unique=None):
        chosen, rejected = (
            encode(tokenizer, row.conversation, text, **template) for text in (row.chosen, row.rejected)
        )
        if len(chosen.prompt) + max(len(chosen.response), len(rejected.response)) <= most:
            ids = {"prompt_ids": chosen.prompt, "chosen_ids": chosen.response, "rejected_ids": rejected.response}
            pairs.append(ids)
        count += 1
    return pairs, count - len(pairs)
