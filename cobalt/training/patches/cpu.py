"""What veRL assumes about accelerators, replaced where there is none. For tests and small runs.

Arithmetic is fp32 throughout: most CPUs have no fast bfloat16, so veRL's autocast is switched off.
"""

from typing import Any

import torch
import torch.distributed as dist

ANSWERS = {
    "empty_cache": None,
    "max_memory_allocated": 0,
    "max_memory_reserved": 0,
    "memory_allocated": 0,
    "memory_reserved": 0,
    "mem_get_info": (0, 0),
    "get_device_name": "CPU",
}
"""What veRL asks of ``torch.cuda`` or ``torch.cpu`` and the latter cannot tell."""
_init_process_group = dist.init_process_group


class Fp32Autocast(torch.autocast):
    """``torch.autocast`` that changes nothing on a CPU."""

    def __init__(self, device_type: str, *args: Any, enabled: bool = True, **kwargs: Any):
        super().__init__(device_type, *args, enabled=enabled and device_type != "cpu", **kwargs)


def gloo() -> str:
    """The collective backend of CPUs."""
    return "gloo"


def answer_for_a_gpu(device: Any) -> None:
    """``verl.utils.device``: the collective backend, and the queries that ``torch.cpu`` lacks."""
    torch.autocast = Fp32Autocast
    device.get_nccl_backend = gloo
    for name, answer in ANSWERS.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda *_args, _answer=answer: _answer)


def work_without_a_gpu(workers: Any) -> None:
    """``verl.workers.fsdp_workers``: the process group names the CPU twice; pinned memory needs an accelerator."""
    workers.get_nccl_backend = gloo  # its own copy of the name, if it was imported before the patches
    dist.init_process_group = init_on_cpu
    offload_policy = workers.CPUOffloadPolicy
    workers.CPUOffloadPolicy = lambda pin_memory=True: offload_policy(pin_memory=False)


def init_on_cpu(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
    """``init_process_group`` for "cpu:gloo,{device}:{backend}" on a device that is the CPU."""
    return _init_process_group("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)
