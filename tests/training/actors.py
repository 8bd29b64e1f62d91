"""Small models, batches and veRL's actor, for tests of forward passes and updates."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl import DataProto
from verl.workers.actor import dp_actor

from cobalt.training.settings import TrainingConfig
from cobalt.training.workers import CobaltActor

PROMPTS, RESPONSES, VOCAB = 9, 6, 50
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
SETTINGS = {
    "ulysses_sequence_parallel_size": 1,
    "entropy_from_logits_with_chunking": False,
    "entropy_checkpointing": False,
    "use_remove_padding": False,
    "use_torch_compile": False,
    "use_dynamic_bsz": False,
    "ppo_epochs": 1,
    "clip_ratio": 0.2,
    "clip_ratio_low": 0.2,
    "clip_ratio_high": 0.4,
    "entropy_coeff": 0.01,
    "loss_agg_mode": "token-mean",
    "policy_loss": {"loss_mode": "vanilla"},
    "use_kl_loss": True,
    "kl_loss_type": "mse",
    "kl_loss_coef": 0.1,
    "grad_clip": 1.0,
    "ppo_mini_batch_size": 4,
}
"""Of an actor."""


def make_model(model=Qwen3ForCausalLM, config=Qwen3Config, tied=True):
    torch.manual_seed(0)
    made = config(**SHAPE, tie_word_embeddings=tied)
    made._attn_implementation = "sdpa"
    return model(made)


def make_batch(rows, seed=0):
    """A batch of ``rows``: name of the prompt (whose length is its ordinal among the letters), response tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCAB, (len(rows), PROMPTS + RESPONSES), generator=generator)
    prompts = {name: torch.randint(1, VOCAB, (PROMPTS,), generator=generator) for name in "abcdefghi"}
    mask = torch.zeros_like(ids)
    for row, (name, tokens) in enumerate(rows):
        ids[row, :PROMPTS] = prompts[name]
        mask[row, PROMPTS - 1 - "abcdefghi".index(name) : PROMPTS + tokens] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "responses": ids[:, PROMPTS:]}


def make_data(rows, **extra):
    return DataProto(batch=TensorDict({**make_batch(rows), **extra}, batch_size=len(rows)))


def make_update(rows):
    """A batch as veRL's trainer hands it to ``update_policy``."""
    generator = torch.Generator().manual_seed(1)
    noise = [torch.randn(len(rows), RESPONSES, generator=generator) for _ in range(3)]
    data = make_data(
        rows,
        response_mask=make_batch(rows)["attention_mask"][:, PROMPTS:],
        old_log_probs=noise[0] * 0.1 - 4,
        ref_log_prob=noise[1] * 0.1 - 4,
        advantages=noise[2],
    )
    data.meta_info["temperature"] = 1.0
    return data


def worker_settings(**settings):
    return OmegaConf.create(asdict(TrainingConfig(**settings)))


def stand_in(model, **config):
    """What forward passes need of an actor."""
    actor = SimpleNamespace(actor_module=model, device_name="cpu", use_fused_kernels=False, use_ulysses_sp=False)
    actor.config = OmegaConf.create({**SETTINGS, **config})
    actor.use_remove_padding = False
    return actor


def updated(actor_class, data, settings=None, **config):
    """Gradients of each optimizer step (before clipping), metrics, and the parameters after it."""
    model, gradients = make_model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(
        lambda *_: gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    )
    config = OmegaConf.create({**SETTINGS, **config})
    more = [settings] if actor_class is CobaltActor else []
    before = OmegaConf.to_container(config)
    metrics = actor_class(config, model, optimizer, *more).update_policy(data)
    assert OmegaConf.to_container(config) == before
    return torch.stack(gradients), metrics, torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture
def verls_actor(monkeypatch):
    """veRL's actor alone in a process, in fp32; what is patched in this test is put back after it."""
    monkeypatch.setattr(torch, "autocast", lambda *_args, **_kwargs: torch.enable_grad())
    monkeypatch.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", {})
    monkeypatch.setattr(dp_actor, "prepare_dynamic_batch", dp_actor.prepare_dynamic_batch)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr("verl.utils.profiler.performance._get_current_mem_info", lambda: ("",) * 4)
    return monkeypatch
