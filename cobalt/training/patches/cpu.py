"""What veRL 0.5.0 assumes about accelerators, replaced where there is none. For tests and small runs.

Arithmetic is fp32 throughout: most CPUs have no fast bfloat16, so veRL's autocast is switched off.
"""

from typing import Any


def patch_device(device: Any) -> None:
    """``verl.utils.device``: the collective backend, and the queries that ``torch.cpu`` lacks."""
    import torch

    _switch_off_autocast(torch)
    device.get_nccl_backend = lambda: "gloo"
    for name, value in {
        "empty_cache": None,
        "max_memory_allocated": 0,
        "max_memory_reserved": 0,
        "memory_allocated": 0,
        "memory_reserved": 0,
        "mem_get_info": (0, 0),
        "get_device_name": "CPU",
    }.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda *_args, _value=value: _value)


def _switch_off_autocast(torch: Any) -> None:
    autocast = torch.autocast

    class Autocast(autocast):
        def __init__(self, device_type: str, *args: Any, enabled: bool = True, **kwargs: Any):
            super().__init__(device_type, *args, enabled=enabled and device_type != "cpu", **kwargs)

    torch.autocast = Autocast


def patch_fsdp_workers(workers: Any) -> None:
    """``verl.workers.fsdp_workers``: the process group names the CPU twice; pinned memory needs an accelerator."""
    init_process_group = workers.dist.init_process_group

    def init_on_cpu(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return init_process_group("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    workers.dist.init_process_group = init_on_cpu
    offload_policy = workers.CPUOffloadPolicy
    workers.CPUOffloadPolicy = lambda pin_memory=True: offload_policy(pin_memory=False)
