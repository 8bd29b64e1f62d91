"""Running veRL 0.5.0 where it does not run by itself: on a CPU, and on one GPU without flash-attn and vLLM.

Nothing in veRL is edited. A backend is a table of patches, each applied once, right after (or just before) a veRL
module is imported, in every Ray worker of the training job: ``install`` is the job's ``worker_process_setup_hook``.
Processes that never import the patched modules pay nothing, and each patch that becomes active says so on stdout.

| backend | for |
|---|---|
| ``verl`` | vLLM or SGLang rollouts on GPUs: no patch |
| ``hf`` | Hugging Face rollouts on GPUs: ``HFRollout``'s own fault, padding, and flash-attn where it is not installed |
| ``cpu`` | Hugging Face rollouts on a CPU: as ``hf``, and what veRL assumes about accelerators |
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from cobalt.errors import SetupError

BACKENDS = ("verl", "hf", "cpu")
BACKEND_VARIABLE = "COBALT_BACKEND"
SEED_VARIABLE = "COBALT_ROLLOUT_SEED"


@dataclass(frozen=True)
class Patches:
    """What to do around the import of one module: hold ``during`` open meanwhile, then call ``after`` with it."""

    after: Callable[[ModuleType], None]
    during: Callable[[], AbstractContextManager[None]] = nullcontext


def install() -> None:
    """Make the backend named in the environment (``COBALT_BACKEND``) active in this process."""
    backend = os.environ.get(BACKEND_VARIABLE, "verl")
    patches = patches_of(backend)
    late = [name for name in patches if name in sys.modules]
    if late:
        raise SetupError(f"backend {backend}: {', '.join(late)} imported before it was installed")
    if patches:
        sys.meta_path.insert(0, _PatchingFinder(backend, patches))


def patches_of(backend: str) -> dict[str, Patches]:
    """The patches of a backend by module name. Raises ``SetupError`` for an unknown backend."""
    if backend not in BACKENDS:
        raise SetupError(f"cobalt.backend={backend}: choose one of {', '.join(BACKENDS)}")
    if backend == "verl":
        return {}
    from cobalt.training import cpu, flash_attn, hf_rollout, packing

    patches = {
        "verl.workers.rollout.hf_rollout": Patches(hf_rollout.patch),
        "verl.workers.actor.dp_actor": Patches(packing.patch, during=flash_attn.stand_in),
    }
    if backend == "cpu":
        patches["verl.utils.device"] = Patches(cpu.patch_device)
        patches["verl.workers.fsdp_workers"] = Patches(cpu.patch_fsdp_workers)
    return patches


class _PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds modules as usual and patches those in the table when they are executed."""

    def __init__(self, backend: str, patches: dict[str, Patches]):
        self._backend = backend
        self._patches = patches

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        patches = self._patches.get(fullname)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if patches else None
        if patches is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_patched(module: ModuleType) -> None:
            with patches.during():
                execute(module)
            patches.after(module)
            print(f"cobalt: backend '{self._backend}' patches {fullname}", flush=True)

        spec.loader.exec_module = execute_patched
        return spec
