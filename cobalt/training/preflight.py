"""Checks before anything starts. Ray and veRL would fail on the same things minutes later, with many lines."""

import inspect
import json
import math
import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cobalt.errors import InputError, SetupError, first_line
from cobalt.records.identity import refuse_missing_model
from cobalt.records.manifest import existing, refuse_unwritable
from cobalt.records.parquet import parquet_errors
from cobalt.records.training_run import saved_checkpoints, saved_steps
from cobalt.sampler import packages
from cobalt.sandbox.checkers import usable_tests
from cobalt.serving.handles import cluster_address
from cobalt.training.config import ENGINES, SGLANG, has_own_manager
from cobalt.training.cost_model import FULL, GB
from cobalt.training.prompt_lengths import overlong_prompts
from cobalt.training.scoring import BATCH, NO_BATCH, SCORE_NAMES, compute_score, refuse_wrong_constants
from cobalt.training.settings import CPU_BACKEND, RELEASE, SHARED_PROMPT_MODELS, TrainingConfig, gpus_of
from cobalt.training.training_log import budget_of

DATA_FILES = ("train_files", "val_files")
EXAMPLE_DATA = re.compile(r"~/data/(rlhf/)?gsm8k/.*")
PARQUET_MAKERS = "preproc/verl_preproc_multi_turn.py or preproc/verl_preproc_single_turn.py"
PUBLIC_TESTS = "extra_info.tools_kwargs.public_test_cases"
"""Column of training files: the tests whose feedback the turns of online training show."""
NUMBERS = (
    *("data.train_batch_size", "data.max_prompt_length", "data.max_response_length"),
    *("actor_rollout_ref.rollout.n", "actor_rollout_ref.actor.ppo_mini_batch_size"),
    *("actor_rollout_ref.actor.ppo_epochs", "actor_rollout_ref.rollout.val_kwargs.n", "data.val_batch_size"),
    *("trainer.n_gpus_per_node", "trainer.nnodes", "trainer.total_epochs", "trainer.total_training_steps"),
)
"""Settings that are 1 or more; null is veRL's own default."""
REGISTERED = {
    "algorithm.adv_estimator": (
        *("grpo", "grpo_passk", "grpo_vectorized", "reinforce_plus_plus", "reinforce_plus_plus_baseline"),
        *("rloo", "rloo_vectorized", "opo", "gpg"),
    ),
    "actor_rollout_ref.actor.policy_loss.loss_mode": (
        *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "dro", "cispo"),
    ),
}
"""What veRL 0.9.1 knows, and modules of ``model.external_lib`` may add to.

Left out are estimators that its trainer does not give what they read: remax, gdpo and those of optimal token baselines.
And geo_mean, which is a mean over each micro-batch, and the sum of these is learned.
"""
DIVERGENCES = (
    *("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"),
    *("kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"),
)
"""Estimators of the KL divergence that veRL 0.9.1 knows."""
SCHEDULES = ("constant", "cosine")
NAMES = {
    "actor_rollout_ref.actor.loss_agg_mode": (
        *("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
    ),
    "actor_rollout_ref.actor.kl_loss_type": DIVERGENCES,
    "algorithm.kl_penalty": DIVERGENCES,
    "algorithm.kl_ctrl.type": ("fixed", "adaptive"),
}
"""What veRL 0.9.1 knows."""
LOGGERS = (
    "wandb", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "console", "clearml", "trackio", "file", "rl_insight",
)  # fmt: skip
"""Of veRL 0.9.1."""
LOGGERS_WITHOUT_PACKAGE = ("console", "file", "vemlp_wandb")
"""The other loggers of veRL need the package of their name."""
ROW_LOSSES = ("vanilla", "gspo", "cispo")
"""Losses of veRL that are sums over rows, which the release's weights can count."""
RESUME_MODES = ("auto", "disable", "resume_path")
FP8_BLOCK = 128
"""Rows of a weight that have a scale of their own in veRL's FP8 rollouts."""
HEAD = "lm_head"
"""Name of the output layer in ``SHARED_PROMPT_MODELS``."""
ADAPTER_FILE = "adapter_config.json"
CROSS_ENTROPY = "ops/triton/cross_entropy.py"
"""A file in the folder of flash_attn."""


def refuse_unusable(config: Any, settings: TrainingConfig) -> None:
    """Raise ``InputError`` or ``SetupError`` for the first thing that a run of this configuration would fail on."""
    batch, policy, trainer = config.data.train_batch_size, config.actor_rollout_ref, config.trainer
    actor, rollout, model = policy.actor, policy.rollout, policy.model
    on_cpu = settings.backend == CPU_BACKEND
    refuse_numbers(config, NUMBERS, "actor_rollout_ref.actor.optim.lr")
    _refuse_unknown_names(config)
    refuse_unusable_optimizer(actor.optim, "actor_rollout_ref.actor.optim.")
    # only looked for: who imports veRL before the variables of a training are set gets another platform
    if (name := trainer.get("checkpoint_callback_class")) and not ("." in name and find_spec(name.partition(".")[0])):
        raise InputError(f"trainer.checkpoint_callback_class={name}: give MODULE.CLASS, of a module that is here")
    if not rollout.temperature > 0:
        raise InputError(f"actor_rollout_ref.rollout.temperature={rollout.temperature}: must be above 0 in training")

    # settings with which training would be another than what was asked for
    if settings.share_prompts:
        wanted = {
            "model.use_fused_kernels": False,
            "actor.calculate_sum_pi_squared": False,
            "actor.entropy_checkpointing": False,
            "actor.entropy_from_logits_with_chunking": False,
            "actor.ulysses_sequence_parallel_size": 1,
            "ref.ulysses_sequence_parallel_size": 1,
            "actor.use_dynamic_bsz": True,
            "rollout.log_prob_use_dynamic_bsz": True,
            "ref.log_prob_use_dynamic_bsz": True,
        }
        if not on_cpu:
            wanted |= {"model.use_remove_padding": True}
        for name, value in wanted.items():
            section, key = name.split(".")
            if (found := policy[section][key]) != value:
                raise InputError(f"cobalt.share_prompts needs actor_rollout_ref.{name}={value}, not {found}")
    _refuse_other_losses(settings, actor)
    _refuse_small_micro_batches(config)
    refuse_unwritable(trainer.default_local_dir)

    # data, batches and the files that are named
    refuse_missing_data(config.data, f"{PARQUET_MAKERS} makes them of JSONL")
    train_rows, val_rows = (_rows(config, name) for name in DATA_FILES)
    if train_rows is not None and train_rows < batch:
        raise InputError(f"data.train_batch_size={batch}, but data.train_files hold only {train_rows} rows")
    if val_rows == 0:
        raise InputError("data.val_files hold no rows")
    if settings.online and settings.online.turns > 1:
        _refuse_rows_without_public_tests(as_list(config.data.train_files))
    if settings.online:
        _refuse_contexts(as_list(config.data.train_files), config.data.prompt_key)
    if (mini_batch := actor.ppo_mini_batch_size) > batch:
        name = "actor_rollout_ref.actor.ppo_mini_batch_size"
        raise InputError(f"{name}={mini_batch} is more than data.train_batch_size={batch}")
    workers, splits = gpus_of(trainer), actor.ulysses_sequence_parallel_size
    for name, prompts in (("data.train_batch_size", batch), ("ppo_mini_batch_size", mini_batch)):
        if prompts * rollout.n * splits % workers:
            raise InputError(
                f"{name}={prompts} times actor_rollout_ref.rollout.n={rollout.n} cannot be shared by {workers} GPUs "
                "(trainer.n_gpus_per_node times trainer.nnodes)"
            )
    engine = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
    if workers % engine:
        raise InputError(
            f"an engine of rollouts takes {engine} GPUs (actor_rollout_ref.rollout.tensor_model_parallel_size times"
            f" data_parallel_size times pipeline_model_parallel_size), which do not divide {workers}"
        )
    if batch % mini_batch:
        raise InputError(f"data.train_batch_size={batch} is no multiple of ppo_mini_batch_size={mini_batch}")
    if not settings.online:
        _refuse_odd_micro_batches(policy, batch, workers)

    # packages
    if rollout.name in ENGINES and find_spec(rollout.name) is None:
        command = "scripts/setup_gpu.sh sglang" if rollout.name == SGLANG else "scripts/setup_gpu.sh"
        raise SetupError(
            f"actor_rollout_ref.rollout.name={rollout.name}, and {rollout.name} is not installed: {command} installs"
            " it; without it there is PRESET=cpu"
        )
    if rollout.name == "hf":
        packages.refuse_missing_packages()
    if model.use_liger:
        refuse_missing_liger()
    if model.use_remove_padding and not (settings.share_prompts or model.use_fused_kernels):
        refuse_missing_cross_entropy()
    refuse_unusable_loggers(as_list(trainer.logger))

    refuse_missing_model(model.path, "actor_rollout_ref.model.path=")
    refuse_unusable_adapter(model, "actor_rollout_ref.model.")
    if rollout.get("quantization") == "fp8":
        _refuse_odd_widths(model.path)
    if settings.share_prompts:
        refuse_unknown_layers(model, "actor_rollout_ref.model.", ": take cobalt.share_prompts=false")
    if model.use_fused_kernels and actor.strategy == "fsdp2":
        _refuse_split_head(model.path, "actor_rollout_ref.model.path=")
    if config.reward.custom_reward_function.path:
        _refuse_wrong_reward(config)
    elif has_own_manager(config):
        raise InputError("missing: reward.custom_reward_function.path=FILE; ours is verl/code_reward_func_think.py")
    refuse_missing_checkpoint(trainer)
    refuse_checkpoints_without_model(actor.checkpoint, "actor_rollout_ref.actor.checkpoint")
    refuse_small_disk(trainer, model, actor.fsdp_config, actor.checkpoint.save_contents)

    # the cluster, or this machine
    if os.environ.get("RAY_ADDRESS"):
        cluster_address()
        return
    if trainer.nnodes > 1:
        raise SetupError(f"trainer.nnodes={trainer.nnodes} needs a Ray cluster, and RAY_ADDRESS names none")
    if not on_cpu:
        refuse_missing_gpus(trainer.n_gpus_per_node)
    if rollout.name == SGLANG:
        refuse_missing_compiler()


def refuse_numbers(config: Any, counts: Sequence[str], rate: str) -> None:
    """Raise ``InputError`` for one of ``counts`` below 1 (null is none), and for a learning rate that is none."""
    from omegaconf import OmegaConf

    for name in counts:
        if (value := OmegaConf.select(config, name)) is not None and value < 1:
            raise InputError(f"{name}={value} is less than 1")
    if not 0 <= (value := OmegaConf.select(config, rate)) < math.inf:
        raise InputError(f"{rate}={value} is no learning rate")


def _refuse_unknown_names(config: Any) -> None:
    """Raise ``InputError`` for a name on which veRL would fail at the first update."""
    from omegaconf import OmegaConf

    extended = config.actor_rollout_ref.model.external_lib
    for name, known in (NAMES if extended else NAMES | REGISTERED).items():
        if (value := OmegaConf.select(config, name)) not in known:
            raise InputError(f"{name}={value}: choose {', '.join(known)}")


def refuse_unusable_optimizer(optim: Any, prefix: str) -> None:
    """Raise ``InputError`` for an optimizer or a schedule that veRL cannot build."""
    from omegaconf import OmegaConf

    if (schedule := optim.get("warmup_style") or optim.lr_scheduler_type) not in SCHEDULES:
        raise InputError(f"{prefix}lr_scheduler_type={schedule}: choose {', '.join(SCHEDULES)}")
    if not OmegaConf.is_list(optim.betas) or len(optim.betas) != 2:
        raise InputError(f"{prefix}betas={optim.betas}: give two numbers")
    try:
        getattr(import_module(optim.optimizer_impl), optim.optimizer)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{prefix}optimizer={optim.optimizer}: {first_line(error)}") from None


def refuse_unusable_adapter(model: Any, prefix: str) -> None:
    """Raise ``InputError`` for an adapter to go on from that is missing, or that is another than is asked for.

    Without a rank veRL never loads it. It saves the alpha that is asked for, and trains with the adapter's.
    """
    if not (path := model.lora_adapter_path):
        return
    setting = f"{prefix}lora_adapter_path={path}"
    if not (file := Path(path, ADAPTER_FILE)).is_file():
        raise InputError(f"{setting}: no adapter, since {file} is missing")
    own = json.loads(file.read_text())
    for name, of_adapter in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
        if model[name] != own.get(of_adapter):
            raise InputError(f"{setting} needs {prefix}{name}={own.get(of_adapter)}, the adapter's, not {model[name]}")


def refuse_missing_gpus(gpus: int) -> None:
    """Raise ``SetupError`` if this machine has fewer."""
    import torch

    if gpus > (found := torch.cuda.device_count()):
        raise SetupError(
            f"GPUs asked for (N_GPUS, trainer.n_gpus_per_node): {gpus}, on this machine: {found}; "
            "PRESET=cpu trains a small model without any"
        )


def refuse_missing_compiler() -> None:
    """Raise ``SetupError`` without CUDA's compiler, by which SGLang makes kernels when they are first called."""
    from torch.utils import cpp_extension

    if not (home := cpp_extension.CUDA_HOME) or not Path(home, "bin/nvcc").is_file():
        raise SetupError(
            "actor_rollout_ref.rollout.name=sglang needs CUDA's compiler, and there is no bin/nvcc in CUDA_HOME:"
            " install the CUDA toolkit, or take rollout.name=vllm"
        )


def _refuse_other_losses(settings: TrainingConfig, actor: Any) -> None:
    """Raise ``InputError`` for a loss in which tokens would not count as ``cobalt.loss_weights`` says."""
    setting, of_actor = f"cobalt.loss_weights={settings.loss_weights} needs ", "actor_rollout_ref.actor."
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and not actor.loss_scale_factor:
        needed = f"{of_actor}loss_scale_factor: without it the longest response of a micro-batch divides its tokens"
        raise InputError(f"{of_actor}loss_agg_mode={actor.loss_agg_mode} needs {needed}")
    if actor.policy_loss.loss_mode == "dro" and not (actor.policy_loss.dro_beta or 0) > 0:
        raise InputError(f"{of_actor}policy_loss.loss_mode=dro needs {of_actor}policy_loss.dro_beta above 0")
    if settings.loss_weights != RELEASE:
        return  # veRL's own: every loss, and every way to sum it up
    if not settings.share_prompts:
        raise InputError(f"{setting}cobalt.share_prompts=true; without it there is cobalt.loss_weights=tokens")
    found = actor.loss_agg_mode, actor.policy_loss.loss_mode
    if found[0] != "token-mean" or found[1] not in ROW_LOSSES:
        wanted = f"loss_agg_mode=token-mean and policy_loss.loss_mode={' or '.join(ROW_LOSSES)}"
        raise InputError(f"{setting}actor_rollout_ref.actor.{wanted}, not {' and '.join(found)}")
    if actor.ppo_micro_batch_size_per_gpu is None:
        raise InputError(f"{setting}actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu")


def _refuse_small_micro_batches(config: Any) -> None:
    """Raise ``InputError`` for micro-batches by tokens without room for the longest row, with which training ends."""
    policy, data = config.actor_rollout_ref, config.data
    longest, splits = data.max_prompt_length + data.max_response_length, policy.actor.ulysses_sequence_parallel_size
    for section, is_by_tokens, name in (
        ("actor", "use_dynamic_bsz", "ppo_max_token_len_per_gpu"),
        ("rollout", "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu"),
        ("ref", "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu"),
    ):
        if policy[section][is_by_tokens] and policy[section][name] * splits < longest:
            raise InputError(
                f"actor_rollout_ref.{section}.{name}={policy[section][name]} has no room for a row of"
                f" data.max_prompt_length={data.max_prompt_length} and"
                f" data.max_response_length={data.max_response_length} tokens"
            )


def _refuse_odd_micro_batches(policy: Any, batch: int, workers: int) -> None:
    """Raise ``InputError`` for micro-batches by rows that a GPU's rows are no multiple of. ``batch``: in prompts."""
    for section, is_by_tokens, name, prompts in (
        ("actor", "use_dynamic_bsz", "ppo_micro_batch_size_per_gpu", policy.actor.ppo_mini_batch_size),
        ("rollout", "log_prob_use_dynamic_bsz", "log_prob_micro_batch_size_per_gpu", batch),
        ("ref", "log_prob_use_dynamic_bsz", "log_prob_micro_batch_size_per_gpu", batch),
    ):
        rows = prompts * policy.rollout.n * policy.actor.ulysses_sequence_parallel_size // workers
        micro_batch = policy[section][name]
        if not policy[section][is_by_tokens] and micro_batch and rows % micro_batch:
            raise InputError(
                f"actor_rollout_ref.{section}.{name}={micro_batch} does not divide the {rows} rows of a GPU; or take"
                f" actor_rollout_ref.{section}.{is_by_tokens}=true"
            )


def refuse_unusable_loggers(loggers: list[str], known: Sequence[str] = LOGGERS) -> None:
    """Raise ``InputError`` for a name that is not ``known``, ``SetupError`` where a package or a key is missing."""
    for name in loggers:
        if name not in known:
            raise InputError(f"LOGGER names {name}: choose {', '.join(known)}")
        if name not in LOGGERS_WITHOUT_PACKAGE and find_spec(name) is None:
            raise SetupError(f"LOGGER names {name}, which is not installed: pip install {name}")
    if "wandb" in loggers and os.environ.get("WANDB_MODE", "online") == "online":
        import wandb

        if not wandb.api.api_key:
            raise SetupError("LOGGER names wandb, which has no key here: run 'wandb login', or set WANDB_MODE=offline")


def refuse_unknown_layers(model: Any, prefix: str, remedy: str = "") -> None:
    """Raise ``InputError`` for a model whose layers are not known to obey ``shared_prompts``. ``model``: that section.

    The mask of shared prompts is one for all layers, without a window; its attention knows no dropout. The output layer
    gives scores and no logits, to which an adapter's could be added.
    """
    setting = f"{prefix}path={model.path}"
    of_file = _configuration(model.get("hf_config_path") or model.path, f"{prefix}path=")
    shape = {**of_file, **(model.get("override_config") or {})}
    if (found := shape.get("model_type")) not in SHARED_PROMPT_MODELS:
        raise InputError(
            f"{setting} is of the type {found}, and prompts can be shared in "
            f"{', '.join(SHARED_PROMPT_MODELS)} only{remedy}"
        )
    for name in ("use_sliding_window", "attention_dropout"):
        if shape.get(name):
            raise InputError(f"{setting} has {name}={shape[name]}, and prompts cannot be shared with it{remedy}")
    if not model.lora_rank:
        return
    targets: Any = model.target_modules
    if path := model.lora_adapter_path:  # ``refuse_unusable_adapter`` has looked at it
        targets = json.loads(Path(path, ADAPTER_FILE).read_text()).get("target_modules") or ()
    is_pattern = isinstance(targets, str) and targets != "all-linear"  # which leaves the output layer out
    if re.fullmatch(targets, HEAD) if is_pattern else HEAD in targets:
        raise InputError(f"{prefix}lora_rank: prompts cannot be shared with an adapter of {HEAD}{remedy}")


def _refuse_split_head(model: str, setting: str) -> None:
    """Raise ``InputError`` for a model whose output layer FSDP2 shards on its own, as it is not the embedding.

    veRL 0.9.1's fused kernels read its weights outside of the layer, a rank's 32-bit part of them (its issue 7520).
    """
    shape = _configuration(model, setting)
    usual = shape.get("model_type") not in SHARED_PROMPT_MODELS  # of these a file without the key says no
    if not shape.get("tie_word_embeddings", usual):
        raise InputError(
            "actor_rollout_ref.model.use_fused_kernels=true needs actor_rollout_ref.actor.strategy=fsdp for a model "
            f"with an output layer of its own ({setting}{model})"
        )


def _configuration(model: str, setting: str) -> dict[str, Any]:
    """A model's ``config.json``, or the hub's. Raises ``InputError``."""
    from transformers import PretrainedConfig

    try:
        return PretrainedConfig.get_config_dict(model)[0]
    except OSError as error:
        raise InputError(f"{setting}{model}: no configuration ({first_line(error)})") from None


def _refuse_wrong_reward(config: Any) -> None:
    """Raise ``InputError`` for a reward function that cannot be called with the settings made for it."""
    from omegaconf import OmegaConf

    function = config.reward.custom_reward_function
    path, named, prefix = function.path, function.name or "compute_score", "reward.custom_reward_function."
    if not Path(path).is_file():
        raise InputError(f"{prefix}path={path}: no such file")
    try:
        found = runpy.run_path(path).get(named)
    except Exception as error:
        raise InputError(f"{prefix}path={path}: {type(error).__name__}: {first_line(error)}") from None
    if not callable(found):
        raise InputError(f"{prefix}name={named}: there is no such function in {path}")
    parameters = inspect.signature(found).parameters
    if BATCH in parameters and not has_own_manager(config):
        raise InputError(NO_BATCH)
    given: Any = OmegaConf.to_container(OmegaConf.create(function.get("reward_kwargs") or {}), resolve=True)
    if found is compute_score:
        refuse_wrong_constants(given)
        if given.get("hard_coding") and config.cobalt.get("online"):
            raise InputError(
                f"{prefix}reward_kwargs.hard_coding={given['hard_coding']}: it penalises answers to a stored context,"
                " and with cobalt.online there is none"
            )
        groups, metrics = config.algorithm.filter_groups, ("reward", *SCORE_NAMES)
        if groups.enable and groups.metric not in metrics:
            raise InputError(f"algorithm.filter_groups.metric={groups.metric}: choose {', '.join(metrics)}")
    elif not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in given:
            if name not in parameters:
                raise InputError(f"{prefix}reward_kwargs.{name}: {named} in {path} has no such parameter")


def refuse_missing_checkpoint(trainer: Any) -> None:
    """Raise ``InputError`` where a run is to go on from a checkpoint that is not there, or that would be ignored."""
    if (mode := trainer.resume_mode) not in RESUME_MODES:
        raise InputError(f"trainer.resume_mode={mode}: choose {', '.join(RESUME_MODES)}")
    path = trainer.resume_from_path
    if path and mode != "resume_path":
        raise InputError(f"trainer.resume_from_path={path} needs trainer.resume_mode=resume_path, not {mode}")
    if mode == "resume_path" and not (path and "global_step_" in path and Path(path).is_dir()):
        saved = saved_checkpoints(Path(path).parent if path else trainer.default_local_dir)
        what = "no such checkpoint; it is a folder named global_step_N"
        raise InputError(f"trainer.resume_from_path={path}: {what}, and {saved}")


def refuse_checkpoints_without_model(checkpoint: Any, setting: str) -> None:
    """Raise ``InputError`` where ``cobalt merge`` could make no model of a checkpoint. ``checkpoint``: that section."""
    if "model" not in checkpoint.save_contents:
        raise InputError(f"{setting}.save_contents=[{','.join(checkpoint.save_contents)}]: model is missing")
    if checkpoint.get("save_lora_only"):
        raise InputError(f"{setting}.save_lora_only=true: cobalt merge needs the whole model")


def refuse_small_disk(trainer: Any, model: Any, engine: Any, contents: Sequence[str]) -> None:
    """Raise ``SetupError`` where the first checkpoint of a model in a folder here has no room.

    A training that has one already loses little. ``InputError`` if the model's weights are damaged. ``trainer``,
    ``model``, ``engine``: sections of the configuration; ``contents``: of a checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    folder = trainer.default_local_dir
    saves = trainer.save_freq not in (0, -1) and not trainer.get("val_only")
    if not saves or engine.get("model_dtype") != "fp32" or saved_steps(folder):
        return
    weights = 0
    for file in Path(model.path).glob("*.safetensors"):
        try:
            with safe_open(file, "pt") as tensors:
                names = set(tensors.keys()) - {"lm_head.weight"}  # often the embeddings'
                weights += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except SafetensorError as error:
            raise InputError.at(file, None, f"not a safetensors file, or damaged: {first_line(error)}") from None
    parts = {"model": FULL, "optimizer": 0 if model.get("lora_rank") else 2 * FULL}
    needed = weights * sum(parts.get(part, 0) for part in contents) / trainer.nnodes
    there = existing(folder)
    if (free := shutil.disk_usage(there).free) < needed:
        room = f"{free / GB:.3g} GB are free on the disk of {there}"
        raise SetupError(f"a checkpoint takes more than {needed / GB:.3g} GB, and {room} (trainer.default_local_dir)")


def _refuse_odd_widths(model: str) -> None:
    """Raise ``InputError`` where engines cannot divide fused layers into the blocks of FP8 weights."""
    if not (file := Path(model, "config.json")).is_file():
        return  # on the hub: the engine says so itself, later
    shape = json.loads(file.read_text())
    heads = shape["num_attention_heads"]
    head = shape.get("head_dim") or shape["hidden_size"] // heads
    widths = {
        "num_attention_heads x head_dim": heads * head,
        "num_key_value_heads x head_dim": shape.get("num_key_value_heads", heads) * head,
        "intermediate_size": shape["intermediate_size"],
    }
    for name, width in widths.items():
        if width % FP8_BLOCK:
            raise InputError(
                f"actor_rollout_ref.rollout.quantization=fp8 needs widths that are multiples of {FP8_BLOCK}, and "
                f"{name} is {width} in {model}"
            )


def total_steps(config: Any) -> int | None:
    """Steps of the whole run. Raises ``InputError``.

    None where that is not known: a budget ends it, or the training files live on remote file systems.
    """
    if budget_of(config):
        return None
    if config.trainer.total_training_steps is not None:
        return config.trainer.total_training_steps
    rows, overlong = _rows(config, "train_files"), overlong_of(config, "train_files")
    if rows is None or overlong is None:
        return None
    return (rows - overlong) // config.data.train_batch_size * config.trainer.total_epochs


def refuse_cut_prompts(config: Any) -> dict[str, int]:
    """Prompts that veRL's filter will leave out, by ``DATA_FILES``; those that only veRL can count are missing.

    They are told on stderr. veRL would cut an overlong prompt. Policies train on whole ones. Raises ``InputError``
    where prompts would be cut, too few are left, or responses have less room than asked for.
    """
    if (how := config.data.truncation) != "error":
        raise InputError(
            f"data.truncation={how} would cut prompts: take error; data.filter_overlong_prompts=true leaves out those "
            "that are too long"
        )
    rollout, most = config.actor_rollout_ref.rollout, config.data.max_prompt_length
    for name in ("prompt_length", "response_length"):
        if (found := rollout[name]) != (given := config.data[f"max_{name}"]):
            raise InputError(f"actor_rollout_ref.rollout.{name}={found}: leave it at data.max_{name}={given}")
    longest, context = most + config.data.max_response_length, rollout.get("max_model_len")
    positions = _positions(config.actor_rollout_ref.model) if rollout.name in ENGINES else None
    # shorter than data.max_response_length, they would count as ended
    if context is not None and context < longest:
        problem = f"actor_rollout_ref.rollout.max_model_len={context} would cut responses to long prompts"
        raise InputError(f"{problem}: allow {longest} tokens, or leave it out")
    asked = "data.max_prompt_length plus data.max_response_length" if context is None else "rollout.max_model_len"
    if positions is not None and positions < (wanted := context or longest):
        where = f"{config.actor_rollout_ref.model.path} has max_position_embeddings={positions}"
        raise InputError(f"{asked} is {wanted}, and {where}, where responses would end")
    left_out: dict[str, int] = {}
    for name in DATA_FILES:
        rows, overlong = _rows(config, name), overlong_of(config, name)
        if rows is None or overlong is None:
            continue
        problem = f"{overlong} of {rows} prompts of data.{name} have more than data.max_prompt_length={most} tokens"
        if overlong and not config.data.filter_overlong_prompts:
            raise InputError(f"{problem}: allow more, or leave them out with data.filter_overlong_prompts=true")
        if rows - overlong < (config.data.train_batch_size if name == "train_files" else 1):
            raise InputError(f"{problem}, which leaves too few")
        if overlong:
            print(f"cobalt: {overlong} prompts of data.{name} are left out: too long", file=sys.stderr, flush=True)
        left_out[name] = overlong
    return left_out


def _positions(model: Any) -> int | None:
    """``max_position_embeddings`` of a model, by which veRL cuts responses; None for one on the hub."""
    if not (file := Path(model.path, "config.json")).is_file():
        return None
    shape = {**json.loads(file.read_text()), **(model.get("override_config") or {})}
    return shape.get("max_position_embeddings", shape.get("text_config", {}).get("max_position_embeddings"))


def overlong_of(config: Any, name: str) -> int | None:
    """Overlong prompts of ``data.NAME``. None for files on remote file systems, and with a user's class of data sets.

    Raises ``InputError``.
    """
    paths = as_list(config.data[name])
    if any("://" in path for path in paths) or (config.data.get("custom_cls") or {}).get("path"):
        return None
    return overlong_prompts(config, paths)


def as_list(value: Any) -> list[str]:
    """The paths of ``data.train_files`` or ``data.val_files``."""
    return [value] if isinstance(value, str) else list(value)


def refuse_missing_data(data: Any, made_by: str) -> None:
    """Raise ``InputError`` that names the data files that are not given. veRL has the paths of its example there."""
    given = {f"data.{name}": as_list(data[name] or []) for name in DATA_FILES}
    missing = [name for name, paths in given.items() if any(EXAMPLE_DATA.fullmatch(path) for path in paths)]
    if missing:
        raise InputError(f"missing: {', '.join(f'{name}=FILE' for name in missing)}; {made_by}")


def _rows(config: Any, name: str) -> int | None:
    """Rows of the data files of ``data.NAME``; None if some live on remote file systems.

    Raises ``InputError`` if veRL or the reward manager cannot use one.
    """
    from pyarrow.parquet import ParquetFile

    paths, rows = as_list(config.data[name]), 0
    local = [path for path in paths if "://" not in path]
    for path in local:
        if not Path(path).is_file():
            raise InputError.at(path, None, "no such file")
        with parquet_errors(path, f"; {PARQUET_MAKERS} makes one of JSONL"):
            file = ParquetFile(path)
        columns = {field.name: field.type for field in file.schema_arrow}
        wanted = (config.data.prompt_key, config.data.reward_fn_key, "reward_model")
        if missing := [name for name in wanted if name not in columns]:
            raise InputError.at(path, None, f"missing column {', '.join(map(repr, missing))}")
        if "ground_truth" not in {field.name for field in columns["reward_model"]}:
            raise InputError.at(path, None, "column 'reward_model' has no field 'ground_truth'")
        rows += file.metadata.num_rows
    return rows if len(local) == len(paths) else None


def _refuse_rows_without_public_tests(paths: list[str]) -> None:
    """Raise ``InputError`` for the first problem whose turns would get no feedback. Remote files are not looked at."""
    for path, number, text in _values(paths, PUBLIC_TESTS):
        try:
            usable_tests(text or "")
        except ValueError as error:
            problem = f"row {number}: {PUBLIC_TESTS}: {error if text else 'missing'}"
            needs = "the turns of cobalt.online show feedback on these tests"
            maker = "preproc/verl_preproc_single_turn.py writes them where its input has public_test_cases"
            raise InputError.at(path, None, f"{problem}; {needs}: {maker}") from None


def _refuse_contexts(paths: list[str], prompt_key: str) -> None:
    """Raise ``InputError`` for the first row that is a stored context. Remote files are not looked at."""
    for path, number, messages in _values(paths, prompt_key):
        if any(message["role"] == "assistant" for message in messages):
            problem = f"row {number}: {prompt_key}: goes on with a conversation, and trajectories of cobalt.online"
            maker = "preproc/verl_preproc_single_turn.py writes problems"
            raise InputError.at(path, None, f"{problem} begin with a problem: {maker}")


def _values(paths: Sequence[str], column: str) -> Iterator[tuple[str, int, Any]]:
    """Path, number and value of each row of the local files; None where it has none. ``column``: a dotted name."""
    from pyarrow.parquet import ParquetFile

    for path in (path for path in paths if "://" not in path):
        with parquet_errors(path):
            batches = ParquetFile(path).iter_batches(columns=[column])
            for number, value in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
                for name in column.split("."):
                    value = (value or {}).get(name)
                yield path, number, value


def refuse_missing_liger() -> None:
    """Raise ``SetupError`` without the kernels of ``model.use_liger``."""
    if find_spec("liger_kernel") is None:
        raise SetupError(
            "actor_rollout_ref.model.use_liger=true, and liger-kernel is not installed: scripts/setup_gpu.sh installs "
            "it; without it there is actor_rollout_ref.model.use_liger=false"
        )


def refuse_missing_cross_entropy() -> None:
    """Raise ``SetupError`` without flash-attn's cross-entropy, which veRL's own passes need for rows without padding.

    Where it is missing, veRL says nothing and takes log-probabilities one token after the other
    (``logprobs_from_logits_v2``): all that follows the rollouts takes 5 times as long.
    """
    found = find_spec("flash_attn")
    if found is None or not any(Path(at, CROSS_ENTROPY).is_file() for at in found.submodule_search_locations or ()):
        missing = "flash-attn" if found is None else f"flash-attn's {CROSS_ENTROPY}"
        raise SetupError(
            f"veRL's own passes over rows without padding need {missing}, which is not installed: install a wheel of "
            "it; without it there is cobalt.share_prompts=true"
        )
