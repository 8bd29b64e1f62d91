"""What the trainer does with the rows of trajectories: those after an end are dropped, so that nothing is computed of
them and no token's weight in the loss depends on them."""

from typing import Any

import numpy as np
import torch

TRAJECTORY, TURN, ADVANTAGE = "trajectory", "turn", "advantage"
"""Columns: which trajectory of the batch a row belongs to, which turn of it it is, and what the manager gives it."""
MINI_BATCHES = "mini_batches"
"""In ``meta_info``: optimizer steps that the batch is for; with rows dropped a fixed number of rows would not tell."""


def kept_rows(live_B: list[bool], unit: int) -> list[int]:
    """Indices of the live rows, in order, and of as few others as make their number a multiple of ``unit``.

    The others are spread evenly, so that no rank and no micro-batch has more of them than another.

    >>> kept_rows([True, False, True, True, False, False], 2)
    [0, 2, 1, 3]
    """
    live = [index for index, is_live in enumerate(live_B) if is_live]
    fillers = [index for index, is_live in enumerate(live_B) if not is_live][: -len(live) % unit]
    total = len(live) + len(fillers)
    places = {int((number + 0.5) * total / len(fillers)) for number in range(len(fillers))}
    live_rows, filler_rows = iter(live), iter(fillers)
    return [next(filler_rows if place in places else live_rows) for place in range(total)]


def drop_rows_after_end(batch: Any, turns: int, rows_of_problem: int, mini_batches: int, unit: int) -> None:
    """Name the trajectory and turn of the rows of veRL's ``batch`` and drop those without a response, in place.

    Then each problem's rows come turn by turn: its first responses share their prompt. ``unit``: what the number of
    rows of an optimizer step must be a multiple of.
    """
    numbers_B = np.arange(len(batch))
    batch.non_tensor_batch[TRAJECTORY], batch.non_tensor_batch[TURN] = numbers_B // turns, numbers_B % turns
    batch.reorder(torch.from_numpy(np.lexsort((numbers_B % turns, numbers_B // rows_of_problem))))
    live_B = batch.batch["response_mask"].any(-1).tolist()
    batch.reorder(torch.tensor(kept_rows(live_B, mini_batches * unit)))
    batch.meta_info[MINI_BATCHES] = mini_batches


def with_given_advantages(batch: Any) -> Any:
    """``batch`` with the advantages that the manager gave its rows, at every token of their responses."""
    advantages_B = torch.tensor(batch.non_tensor_batch[ADVANTAGE].astype(np.float32))
    advantages = advantages_B[:, None] * batch.batch["response_mask"]
    batch.batch["advantages"], batch.batch["returns"] = advantages, advantages
    return batch
