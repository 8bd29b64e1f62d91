"""Training on CPU cores: veRL's platform, engine and rollouts for them, through veRL's own registries.

``VERL_USE_EXTERNAL_MODULES`` names this module, so every process that imports veRL knows the platform. What the
registries do not reach is replaced in ``register``: two names.
"""

import types
from contextlib import nullcontext
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

PLATFORM = "cpu"
"""Value of ``VERL_PLATFORM``."""
ROLLOUTS = "hf"
"""Value of ``rollout.name``."""


def device_module() -> types.ModuleType:
    """``torch.cpu`` with answers to what veRL asks of ``torch.cuda``: there is no memory of a device to count."""
    module = types.ModuleType("cobalt_cpu")
    module.__dict__.update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")})
    nothing = ("empty_cache", "reset_peak_memory_stats", "manual_seed", "manual_seed_all", "ipc_collect", "set_device")
    zero = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
    module.__dict__.update({name: lambda *_, **__: None for name in nothing})
    module.__dict__.update({name: lambda *_, **__: 0 for name in zero})
    module.__dict__.update(
        mem_get_info=lambda *_: (0, 0),
        get_device_name=lambda *_: "CPU",
        device_count=lambda: 1,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
    )
    return module


@PlatformRegistry.register(platform=PLATFORM)
class CpuPlatform(PlatformBase):
    """One device, the host. Ray's GPUs are logical: one for each process of training."""

    device_name, vendor_name, device_module = "cpu", "none", device_module()  # pyright: ignore

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def nothing(self, *_: Any, **__: Any) -> None:
        """There is no other device to choose, to wait for, to empty or to profile."""

    set_device = synchronize = set_allocator_settings = empty_cache = nothing
    profiler_start = profiler_stop = cudart = nothing

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False


_init_process_group = torch.distributed.init_process_group


def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
    """PyTorch's. veRL asks for ``cpu:gloo,{device}:{backend}``, and here the device is the CPU, too."""
    return _init_process_group("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)


def register() -> None:
    """Make the rollouts known, in a process that builds them."""
    from verl.workers.rollout import base, replica

    def load() -> Any:
        from cobalt.training.cpu_rollouts import CpuReplica

        return CpuReplica

    torch.distributed.init_process_group = init_process_group
    base._ROLLOUT_REGISTRY[ROLLOUTS, "async"] = "cobalt.training.cpu_rollouts.WeightsSender"
    replica.RolloutReplicaRegistry.register(ROLLOUTS, load)
