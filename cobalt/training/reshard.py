"""veRL's FSDP2 checkpoints of another number of ranks, which veRL itself does not load.

Each rank has saved its shards: ``model_world_size_N_rank_R.pt`` and ``optim_...`` with a DTensor for each parameter and
each of its optimizer states, ``extra_state_...`` with the schedule of the learning rate and random states, and
``fsdp_config.json`` with N.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from cobalt.training.resume import saved_ranks


def load_other_ranks(checkpoint: Path, model: torch.nn.Module, optimizer: Any, scheduler: Any) -> None:
    """Load what other ranks have saved into this rank's shards. Random states stay as they are."""
    saved, _ = saved_ranks(checkpoint)

    def read(kind: str, rank: int) -> Any:
        file = checkpoint / f"{kind}_world_size_{saved}_rank_{rank}.pt"
        return torch.load(file, map_location="cpu", weights_only=False, mmap=True)

    weights, states = ([read(kind, rank) for rank in range(saved)] for kind in ("model", "optim"))
    own = model.state_dict()
    model.load_state_dict({name: placed([part[name] for part in weights], like) for name, like in own.items()})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {name: placed([part["state"][number][name] for part in states], parameters[number]) for name in values}
        for number, values in states[0]["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": states[0]["param_groups"]})
    schedule = read("extra_state", 0)["lr_scheduler"]
    if scheduler is not None and schedule is not None:
        scheduler.load_state_dict(schedule)


def placed(parts: Sequence[Any], like: Any) -> Any:
    """A value of all ranks as this rank's shard of it, laid out as ``like``; what is not sharded as it was."""
    if not isinstance(parts[0], DTensor):
        return parts[0]
    placement: Any = parts[0].placements[-1]
    mesh: Any = parts[0].device_mesh
    shards = [part.to_local() for part in parts[: mesh.size(-1)]]  # the rest are copies (`fsdp_size`)
    whole = torch.cat(shards, dim=placement.dim) if placement.is_shard() else shards[0]
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
