"""Patches: the table is true of the installed veRL; each reaches what it names, once, says so, and nothing else."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

from cobalt.errors import SetupError
from cobalt.tables import markdown_table
from cobalt.training.patches import install
from cobalt.training.patches.table import BACKENDS, PATCHES, VERL_VERSION, patches_of

ROOT = Path(__file__).parents[2]


def run_python(code, **environment):
    """A fresh interpreter, as a Ray worker is; what it prints."""
    environment = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(printed):
    """What patches said when they became active."""
    return [line for line in printed.splitlines() if line.startswith("cobalt: patches ")]


def line_of(patch):
    return f"cobalt: patches {patch.module} ({patch.what})"


def test_import_verl_finds_the_installed_package_from_the_repository_root():
    printed = run_python("import verl, os; print(verl.__version__, os.path.dirname(verl.__file__))")
    version, folder = printed.split()[-2:]
    assert version == VERL_VERSION
    assert "site-packages" in folder


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.what)
def test_every_row_names_a_module_of_verl_and_something_to_do(patch):
    assert importlib.util.find_spec(patch.module) is not None
    names = [name for name in (patch.apply, patch.during) if name is not None]
    assert names
    assert all(callable(resolve_name(name)) for name in names)


def _listed(backends):
    return ", ".join(f"`{backend}`" for backend in backends)


def _with(patch):
    """What a patch is active with, as documents say it."""
    backends = [] if patch.backends == BACKENDS else [_listed(patch.backends)]
    settings = ["`share_prompts`"] * patch.sharing + ["`online`"] * patch.online
    return ", ".join([*settings, *backends]) or "all"


def as_table():
    """The table of patches as documents show it."""
    rows = [
        (
            f"`{patch.module}`",
            patch.what,
            patch.fault,
            patch.until,
            _with(patch),
            f"`{(patch.apply or patch.during).removeprefix('cobalt.training.patches.')}`",
        )
        for patch in PATCHES
    ]
    return markdown_table(("module of veRL", "change", "what veRL does", "needed until", "with", "by"), rows)


def test_the_documentation_shows_the_table():
    assert as_table() in (ROOT / "docs/training.md").read_text(), f"docs/training.md lacks this table:\n{as_table()}"


def test_unknown_backends_are_refused():
    with pytest.raises(SetupError, match="choose one of"):
        patches_of("tpu", share_prompts=False)


def test_another_version_of_verl_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(install, "version", lambda _package: "0.6.1")
    with pytest.raises(SetupError, match=r"veRL 0\.6\.1 is installed.*is for veRL 0\.5\.0 only") as refused:
        install.install()
    assert "\n" not in str(refused.value)
    assert not any(isinstance(finder, install.PatchingFinder) for finder in sys.meta_path)


INSTALL = "from cobalt.training.patches.install import install; install()\n"
IMPORT = "import verl.workers.fsdp_workers, verl.workers.actor.dp_actor, verl.workers.rollout, verl.utils.device\n"

TASK_RUNNER = f"""{INSTALL}{IMPORT}
import verl.trainer.main_ppo
from verl.trainer.ppo import ray_trainer
from verl.utils.tracking import Tracking
from verl.workers.reward_manager import get_reward_manager_cls
install()
print("manager", get_reward_manager_cls("cobalt").__module__)
print("metrics", ray_trainer.compute_data_metrics.__code__.co_name)
print("tracking", Tracking.__module__)
layers, function = 0, ray_trainer.RayPPOTrainer.fit
while hasattr(function, "__wrapped__"):
    layers, function = layers + 1, function.__wrapped__
print("layers", layers)
"""


def test_without_a_backend_the_manager_is_known_metrics_are_complete_and_nothing_else_is_changed():
    printed = run_python(TASK_RUNNER)
    assert "manager cobalt.training.manager" in printed
    assert "metrics with_reward_parts" in printed
    assert "tracking cobalt.training.patches.tracking" in printed
    assert "layers 3" in printed  # three patches wrap it, each once
    assert sorted(said(printed)) == sorted(line_of(patch) for patch in patches_of("verl", share_prompts=False))


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_has_what_the_default_one_has(backend):
    for share in (False, True):
        assert set(patches_of("verl", share)) <= set(patches_of(backend, share))


def test_sharing_prompts_adds_its_patches_and_no_others():
    added = set(patches_of("verl", share_prompts=True)) - set(patches_of("verl", share_prompts=False))
    assert {patch.module for patch in added} == {"verl.workers.actor.dp_actor", "verl.trainer.ppo.ray_trainer"}
    assert all(patch.sharing for patch in added)


CPU_WORKER = """
import torch, verl.workers.fsdp_workers as workers
from verl.utils.device import get_torch_device
print("backend", workers.get_nccl_backend(), get_torch_device().get_device_name(), get_torch_device().mem_get_info())
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("dtype", (torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
from verl.workers.actor.dp_actor import DataParallelPPOActor
from verl.workers.rollout import HFRollout
print("forward", DataParallelPPOActor._forward_micro_batch.__code__.co_name)
print("rollout", HFRollout.__module__)
print("pinned", workers.CPUOffloadPolicy(pin_memory=True).pin_memory)
workers.dist.init_process_group("cpu:gloo,cpu:gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
print("group", workers.dist.get_world_size())
"""
RELOAD = f"""{INSTALL}{IMPORT}
import importlib, sys
for name in ("verl.workers.rollout", "verl.workers.actor.dp_actor", "verl.utils.device", "verl.workers.fsdp_workers"):
    importlib.reload(sys.modules[name])
"""
ORDERS = {"late": IMPORT + INSTALL, "twice": INSTALL + "install()\n" + IMPORT + "install()\n", "reloaded": RELOAD}


@pytest.mark.parametrize("order", ORDERS)
def test_cpu_backend_in_a_worker(order):
    printed = run_python(ORDERS[order] + CPU_WORKER, COBALT_BACKEND="cpu")
    assert "backend gloo CPU (0, 0)" in printed
    assert "dtype torch.float32" in printed
    assert "forward forward_packed" in printed
    assert "rollout cobalt.training.patches.hf_rollout" in printed
    assert "pinned False" in printed
    assert "group 1" in printed
    times = 2 if order == "reloaded" else 1
    own = [patch for patch in patches_of("cpu", share_prompts=False) if patch.backends != BACKENDS]
    of_cpu = [patch for patch in own if patch.apply is not None]
    assert [said(printed).count(line_of(patch)) for patch in of_cpu] == [times] * len(of_cpu)


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
    printed = run_python(STAND_IN)
    assert "cross entropy False" in printed
    assert "after None" in printed
    assert "transformers False" in printed
    assert "use_remove_padding=False" in printed
