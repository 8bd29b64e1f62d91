"""What is replaced in veRL 0.5.0 by name. No subclass, registry or setting reaches these places.

Everything else is subclassed: ``trainer`` (task runner and trainer) and ``workers`` (worker and actor). Each function
here may be called more than once in a process. Nothing of veRL is edited on disk.
"""

from typing import Any

import torch
import torch.distributed as dist
from verl.trainer import main_ppo
from verl.trainer.ppo import ray_trainer
from verl.utils import device, tracking
from verl.workers import fsdp_workers
from verl.workers.actor import dp_actor

from cobalt.training.batch_scores import cost_metrics, reward_metrics
from cobalt.training.online import played_rows, with_given_advantages
from cobalt.training.shared_prompts import prepare_dynamic_batch

CPU_ANSWERS = {
    "empty_cache": None,
    "max_memory_allocated": 0,
    "max_memory_reserved": 0,
    "memory_allocated": 0,
    "memory_reserved": 0,
    "mem_get_info": (0, 0),
    "get_device_name": "CPU",
}
"""Answers to veRL's questions that ``torch.cpu`` does not have."""
_compute_data_metrics = ray_trainer.compute_data_metrics
_init_process_group = dist.init_process_group
_offload_policy: Any = fsdp_workers.CPUOffloadPolicy


def use_own_trainer(trainer: type, metrics_log: type) -> None:
    """``TaskRunner.run`` names the trainer's class, ``RayPPOTrainer.fit`` the logger's. Neither is a setting."""
    main_ppo.RayPPOTrainer = trainer
    tracking.Tracking = metrics_log


def log_reward_parts() -> None:
    """``fit`` gives ``reward_extra_info`` to dumps and validation only, not to the metrics of a step."""

    def with_reward_parts(batch: Any, use_critic: bool = True) -> dict[str, Any]:
        metrics = _compute_data_metrics(batch=batch, use_critic=use_critic)
        return {**metrics, **reward_metrics(batch.non_tensor_batch, played_rows(batch)), **cost_metrics(batch)}

    ray_trainer.compute_data_metrics = with_reward_parts


def take_given_advantages() -> None:
    """Online training: ``fit`` can only derive advantages from the rewards of single rows.

    The registry of estimators does not help: ``RayPPOTrainer`` refuses names that it does not know.
    """
    ray_trainer.compute_advantage = lambda data, *_args, **_kwargs: with_given_advantages(data)


def share_prompts_in_micro_batches() -> None:
    """``compute_log_prob`` and ``update_policy`` size micro-batches by whole rows, each prompt counted every time."""
    dp_actor.prepare_dynamic_batch = prepare_dynamic_batch


class Fp32Autocast(torch.autocast):
    """``torch.autocast`` that changes nothing on a CPU. Most CPUs compute bfloat16 slowly."""

    def __init__(self, device_type: str, *args: Any, enabled: bool = True, **kwargs: Any):
        super().__init__(device_type, *args, enabled=enabled and device_type != "cpu", **kwargs)


def work_on_a_cpu() -> None:
    """veRL needs an accelerator: for collectives, memory queries, pinned memory, and autocast to bfloat16."""

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        """veRL asks for "cpu:gloo,{device}:{backend}", and here the device is the CPU, too."""
        return _init_process_group("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.autocast = Fp32Autocast
    device.get_nccl_backend = fsdp_workers.get_nccl_backend = lambda: "gloo"
    dist.init_process_group = init_process_group
    fsdp_workers.CPUOffloadPolicy = lambda pin_memory=True: _offload_policy(pin_memory=False)
    for name, answer in CPU_ANSWERS.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda *_args, _answer=answer: _answer)
