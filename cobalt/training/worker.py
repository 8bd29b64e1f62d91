"""What veRL's workers import before they build anything (``model.external_lib``): names of ours.

Here is also the worker of online training. veRL cuts a batch into mini-batches of so many rows. Online, the trainer
says into how many updates (``num_mini_batch``), and each is a mean over its own rows.
"""

import os
from typing import Any

import torch
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.rollout import base

import cobalt.training.engine  # noqa: F401 - registers

base._ROLLOUT_REGISTRY["vllm", "async"] = "cobalt.training.weights.ServerAdapter"


class OnlineTrainingWorker(TrainingWorker):
    """The policy that is trained."""

    def train_mini_batch(self, data: Any) -> Any:
        """The updates of a step, on equally many rows."""
        tu.pop(data, "mini_batch_size")
        return super().train_mini_batch(data)

    def train_batch(self, data: Any) -> Any:
        """One update. Losses that are means over rows do not count padding."""
        rows = torch.tensor(sum(bool(mask.any()) for mask in data["loss_mask"].unbind()), device=get_device_id())
        torch.distributed.all_reduce(rows, group=self.engine.get_data_parallel_group())
        tu.assign_non_tensor(data, global_batch_size=max(1, rows.item()))
        return super().train_batch(data)


class CobaltWorker(ActorRolloutRefWorker):
    """veRL's process of policy, reference and rollouts."""

    actor_worker_cls = OnlineTrainingWorker


if os.environ.get("VERL_PLATFORM") == "cpu":
    from cobalt.training import cpu

    cpu.register()
