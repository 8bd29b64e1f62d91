"""Checkpoints that another number of ranks goes on from, and those that none but as many can."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from cobalt.errors import InputError
from cobalt.training.reshard import load_other_ranks
from cobalt.training.resume import RANKS_FILE, refuse_other_ranks

WIDTH = 5
"""Of the layers: two and three ranks have shards of other sizes than each other."""


def trained_parts(shape, steps):
    """A model on a mesh of ``shape``, its optimizer and schedule, after some steps that are the same for all ranks."""
    torch.manual_seed(steps)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("ddp", "fsdp")[-len(shape) :])
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    for _ in range(steps):
        one_step(model, optimizer, schedule)
    return model, optimizer, schedule


def one_step(model, optimizer, schedule):
    optimizer.zero_grad()
    model(torch.arange(3.0 * WIDTH).reshape(3, WIDTH)).square().mean().backward()
    optimizer.step()
    schedule.step()


def whole(model, optimizer, schedule):
    values = [*model.state_dict().values(), *(value for one in optimizer.state.values() for value in one.values())]
    tensors = [value.full_tensor() if isinstance(value, DTensor) else value for value in values]
    return [*map(torch.clone, tensors), torch.tensor(schedule.get_last_lr())]


def work(rank, ranks, shapes, folder):
    """Two ranks save, on a mesh of each shape, and ``ranks`` load. Each writes what it has then, and a step later."""
    for world in (2, ranks):
        if rank >= world:
            continue
        dist.init_process_group("gloo", f"file://{folder}/store-{world}", rank=rank, world_size=world)
        try:
            for number, shape in enumerate(shapes):
                save_or_load(rank, world, shape, folder / str(number))
            dist.barrier()
        finally:
            dist.destroy_process_group()


def save_or_load(rank, world, shape, checkpoint):
    if world == 2:
        parts = model, optimizer, schedule = trained_parts(shape, 2)
        name = f"world_size_{world}_rank_{rank}.pt"
        torch.save(model.state_dict(), checkpoint / f"model_{name}")
        torch.save(optimizer.state_dict(), checkpoint / f"optim_{name}")
        torch.save({"lr_scheduler": schedule.state_dict(), "rng": None}, checkpoint / f"extra_state_{name}")
    else:
        parts = trained_parts((world,), 1)
        load_other_ranks(checkpoint, *parts)
    found = whole(*parts)
    one_step(*parts)
    after = whole(*parts)
    if rank == 0:
        torch.save((found, after), checkpoint / f"whole-{world}.pt")


def work_of_other(index, *work_of_all):
    work(index + 1, *work_of_all)


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_another_number_of_ranks_goes_on_as_the_saved_ones_would(tmp_path, ranks):
    """Of two that share the model, and of one and its copy."""
    shapes = [(2,), (2, 1)]
    for number in range(len(shapes)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / RANKS_FILE).write_text(json.dumps({"world_size": 2, "FSDP_version": 2}))
    settings = ranks, shapes, tmp_path
    others = processes.spawn(work_of_other, settings, nprocs=max(2, ranks) - 1, join=False, daemon=True)
    work(0, *settings)  # imports nothing again
    while not others.join():
        pass
    for number in range(len(shapes)):
        files = (tmp_path / str(number) / f"whole-{world}.pt" for world in (2, ranks))
        (saved, saved_after), (loaded, loaded_after) = map(torch.load, files)
        assert len(saved) > 10 and all(map(torch.equal, saved, loaded))
        assert all(map(torch.allclose, saved_after, loaded_after))
        assert not all(map(torch.equal, loaded, loaded_after))


@pytest.mark.parametrize(
    ("fsdp", "reshards", "ranks", "told"),
    [
        (1, True, 4, "was saved by 2 GPUs, with actor.strategy=fsdp, which does not split it anew; 4 cannot go on"),
        (2, False, 1, "was saved by 2 GPUs; 1 cannot go on from it"),
        (1, False, 2, None),
        (2, True, 3, None),
    ],
)
@pytest.mark.parametrize("place", ["actor", "."])
def test_ranks_that_cannot_go_on_are_refused(tmp_path: Path, place, fsdp, reshards, ranks, told):
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / RANKS_FILE).write_text(json.dumps({"world_size": 2, "FSDP_version": fsdp}))
    if told is None:
        refuse_other_ranks(tmp_path, ranks, reshards)
        return
    with pytest.raises(InputError, match=told):
        refuse_other_ranks(tmp_path, ranks, reshards)
