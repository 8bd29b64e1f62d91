"""Backends: patches reach the modules that they name, say so, and leave everything else alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from cobalt.errors import SetupError
from cobalt.training.patches.table import patches_of

ROOT = Path(__file__).parents[2]


def run_python(code, **environment):
    """A fresh interpreter, as a Ray worker is."""
    import os

    environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )


def test_import_verl_finds_the_installed_package_from_the_repository_root():
    done = run_python("import verl, os; print(verl.__version__, os.path.dirname(verl.__file__))")
    version, folder = done.stdout.split()[-2:]
    assert version == "0.5.0"
    assert "site-packages" in folder


def test_unpatched_verl_by_default():
    assert patches_of("verl") == {}


def test_unknown_backends_are_refused():
    with pytest.raises(SetupError, match="choose one of"):
        patches_of("tpu")


CPU_WORKER = """
from cobalt.training import backends
backends.install()
import torch, verl.workers.fsdp_workers as workers
from verl.utils.device import get_nccl_backend, get_torch_device
print("backend", get_nccl_backend(), get_torch_device().get_device_name(), get_torch_device().mem_get_info())
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("dtype", (torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
from verl.workers.actor.dp_actor import DataParallelPPOActor
print("forward", DataParallelPPOActor._forward_micro_batch.__module__)
"""


def test_cpu_backend_in_a_worker():
    done = run_python(CPU_WORKER, COBALT_BACKEND="cpu")
    assert "backend gloo CPU (0, 0)" in done.stdout, done.stderr
    assert "dtype torch.float32" in done.stdout
    assert "forward cobalt.training.patches.packing" in done.stdout
    for name in ("verl.utils.device", "verl.workers.fsdp_workers", "verl.workers.actor.dp_actor"):
        assert f"cobalt: backend 'cpu' patches {name}" in done.stdout


def test_installing_too_late_is_an_error():
    done = run_python(
        "import verl.utils.device; from cobalt.training import backends; backends.install()", COBALT_BACKEND="cpu"
    )
    assert done.returncode != 0
    assert "verl.utils.device imported before" in done.stderr


STAND_IN = """
import importlib.util, sys
from cobalt.training.patches.flash_attn import stand_in
with stand_in():
    from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input
    import verl.utils.torch_functional as functional
    print("cross entropy", functional.FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE)
print("after", importlib.util.find_spec("flash_attn"))
from transformers.utils import is_flash_attn_2_available
print("transformers", is_flash_attn_2_available())
try:
    pad_input()
except NotImplementedError as error:
    print(error)
"""


def test_the_flash_attention_stand_in_is_gone_after_the_import():
    done = run_python(STAND_IN)
    assert "cross entropy False" in done.stdout, done.stderr
    assert "after None" in done.stdout
    assert "transformers False" in done.stdout
    assert "use_remove_padding=False" in done.stdout
