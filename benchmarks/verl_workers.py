"""veRL's actor and reference policy in this process, with random weights of a Qwen3 shape."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import shapes
import torch
from step_costs import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from cobalt.training.settings import CPU_BACKEND, TrainingConfig

TINY = shapes.Shape(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=1024,
    tie_word_embeddings=False,
    max_position_embeddings=1024,
)
SHAPES = {**{name.removeprefix("qwen3-"): shape for name, shape in shapes.SHAPES.items()}, "tiny": TINY}


def rendezvous() -> None:
    """The environment that torchrun would have made, for a single process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        os.environ.setdefault(name, value)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))


def make_actors(
    shape: str, layers: int | None, prompts: int, samples: int, max_tokens: int
) -> tuple[Any, Any, Any, Any]:
    """veRL's actor and reference, their model's configuration, and the settings (``actor_rollout_ref``)."""
    from cobalt.training.workers import CobaltWorker

    with tempfile.TemporaryDirectory() as folder, _random_weights():
        model_config = _write_model(shape, layers, Path(folder))
        settings = _settings(prompts, samples, max_tokens, folder)
        workers = [CobaltWorker(settings, role=role) for role in ("actor", "ref")]
        for worker in workers:
            worker.init_model()
    return workers[0].actor, workers[1].ref_policy, model_config, settings


def _write_model(name: str, layers: int | None, folder: Path) -> Any:
    """A model's configuration, and a tokenizer, which veRL wants to see."""
    shape = replace(SHAPES[name], num_hidden_layers=layers or SHAPES[name].num_hidden_layers)
    made = Qwen3Config(**asdict(shape), rope_theta=1e6, architectures=["Qwen3ForCausalLM"])
    made.save_pretrained(folder)
    AutoTokenizer.from_pretrained(ROOT / "assets/minicoder").save_pretrained(folder)
    return made


def _settings(prompts: int, samples: int, max_tokens: int, folder: str) -> Any:
    """``actor_rollout_ref`` of the release's recipe; the update is one mini-batch that changes nothing."""
    from hydra import compose, initialize_config_module
    from omegaconf import open_dict

    on_gpu = torch.cuda.is_available()
    overrides = [
        f"hydra.searchpath=[file://{ROOT / 'verl/config'}]",
        "+recipe=multi_turn",
        f"+preset={'paper-qwen3' if on_gpu else 'cpu'}",
        f"actor_rollout_ref.model.path={folder}",
        f"actor_rollout_ref.rollout.n={samples}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts * int(os.environ['WORLD_SIZE'])}",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={max_tokens}",
        "actor_rollout_ref.actor.optim.lr=0",
        "actor_rollout_ref.model.use_liger=false",
        "actor_rollout_ref.actor.fsdp_config.param_offload=false",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=false",
    ]
    if not on_gpu:
        overrides.append("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2")
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides)
    with open_dict(config):
        own = TrainingConfig(backend="verl" if on_gpu else CPU_BACKEND, share_prompts=True)
        config.actor_rollout_ref.cobalt = asdict(own)
    return config.actor_rollout_ref


@contextlib.contextmanager
def liger_kernels(models: Iterable[Any]) -> Iterator[None]:
    """Meanwhile these models (in FSDP) compute as with ``model.use_liger``."""
    from liger_kernel.transformers.monkey_patch import (  # pyright: ignore[reportMissingImports]
        _apply_liger_kernel_to_instance,
    )
    from transformers.models.qwen3 import modeling_qwen3

    names = dict(vars(modeling_qwen3))
    inner = [model.module for model in models]
    for model in inner:
        _apply_liger_kernel_to_instance(model=model)
    try:
        yield
    finally:
        vars(modeling_qwen3).update(names)
        for module in (module for model in inner for module in model.modules()):
            vars(module).pop("forward", None)


@contextlib.contextmanager
def _random_weights() -> Iterator[None]:
    """Meanwhile loading a causal language model makes one, each time with the same random weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    load = AutoModelForCausalLM.from_pretrained

    def make(*_args: Any, config: Any, torch_dtype: Any, **_kwargs: Any) -> Any:
        torch.manual_seed(0)
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32).to(torch_dtype)

    AutoModelForCausalLM.from_pretrained = make  # pyright: ignore[reportAttributeAccessIssue] - a bound method
    try:
        yield
    finally:
        AutoModelForCausalLM.from_pretrained = load
