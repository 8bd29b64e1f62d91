"""What is replaced in veRL by name: on a CPU in a worker's process, and rotary frequencies; documents list it all."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config
from verl.workers import fsdp_workers

from cobalt.training import patches
from cobalt.training.launch import PAPER

ROOT = Path(__file__).parents[2]
CPU_WORKER = """
import torch, verl, os
print("verl", verl.__version__, os.path.dirname(verl.__file__))
from cobalt.training import patches
for _ in range(2):
    patches.work_on_a_cpu()
import verl.workers.fsdp_workers as workers
from verl.utils.device import get_torch_device
print("backend", workers.get_nccl_backend(), get_torch_device().get_device_name(), get_torch_device().mem_get_info())
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("dtype", (torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
print("pinned", workers.CPUOffloadPolicy(pin_memory=True).pin_memory)
workers.dist.init_process_group("cpu:gloo,cpu:gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
print("group", workers.dist.get_world_size())
"""


def test_the_installed_verl_works_on_a_cpu():
    """From the repository's root, whose folder ``verl`` must not hide the package."""
    done = subprocess.run([sys.executable, "-c", CPU_WORKER], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"verl {PAPER} " in done.stdout and "site-packages" in done.stdout
    for line in ("backend gloo CPU (0, 0)", "dtype torch.float32", "pinned False", "group 1"):
        assert line in done.stdout


def test_the_documentation_lists_every_patch():
    page = (ROOT / "docs/training.md").read_text()
    names = [
        name
        for name, function in inspect.getmembers(patches, inspect.isfunction)
        if function.__module__ == patches.__name__ and not inspect.signature(function).parameters
    ]
    assert len(names) == 5
    assert all(f"`{name}`" in page for name in [*names, "use_own_trainer"])


SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
}
CONFIGS = [Qwen3Config(head_dim=16, rope_theta=1e6, **SIZES), LlamaConfig(**SIZES)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_frequencies_are_those_before_the_cast_and_the_weights_stay_bf16(config, monkeypatch):
    given = []
    monkeypatch.setattr(fsdp_workers, "get_fsdp_wrap_policy", None)
    monkeypatch.setattr(patches, "_get_fsdp_wrap_policy", lambda *args, **kwargs: given.append((args, kwargs)))
    model = AutoModelForCausalLM.from_config(config)
    before = model.model.rotary_emb.inv_freq.clone()
    model.to(torch.bfloat16)
    assert not torch.equal(model.model.rotary_emb.inv_freq.float(), before)
    patches.keep_rotary_frequencies()
    fsdp_workers.get_fsdp_wrap_policy(module=model, config={"a": 1}, is_lora=True)
    assert given == [((model,), {"config": {"a": 1}, "is_lora": True})]
    assert torch.equal(model.model.rotary_emb.inv_freq, before)
    assert "model.rotary_emb.inv_freq" not in model.state_dict()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_log_probs_at_late_positions_are_then_those_of_the_rounded_weights():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[0], attn_implementation="sdpa").eval()
    ids = torch.randint(64, (1, 2048))

    def late_log_probs():
        with torch.no_grad():
            return model(ids).logits[0, -512:].log_softmax(-1)

    rounded = {name: weight.bfloat16().float() for name, weight in model.state_dict().items()}
    model.load_state_dict(rounded)
    expected = late_log_probs()
    model.to(torch.bfloat16).float()  # the cast, then arithmetic that rounds nothing more
    assert (late_log_probs() - expected).abs().max() > 0.05
    patches.restore_frequencies(model)
    assert torch.equal(late_log_probs(), expected)


def test_models_without_rotary_embeddings_are_left_alone():
    model = torch.nn.Linear(2, 2)
    patches.restore_frequencies(model)
    assert not dict(model.named_buffers())
