"""Trajectories as rows of veRL's batches.

veRL repeats each prompt ``rollout.n`` times, which is samples × turns here, and wants as many rows back; they may have
prompts of their own. So the rows of a trajectory are adjacent, one for each turn, and those after its end are empty.
The trainer drops these: nothing is computed of them, and no token's weight in the loss depends on them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.nn.functional import pad
from verl import DataProto

from cobalt.completion import Message
from cobalt.sandbox import TestCases
from cobalt.training.reward_metrics import shared_costs

TRAJECTORY, TURN, ADVANTAGE = "trajectory", "turn", "advantage"
"""Columns: the row's trajectory in the batch, its turn, and the advantage that the manager gives it."""
ROLLOUT_FAILED = "rollout_failed"
"""Column: whether the infrastructure ended the row's trajectory."""
MINI_BATCHES = "mini_batches"
"""In ``meta_info``: the optimizer steps of the batch. Rows are dropped, so a fixed number of rows would not tell."""


@dataclass
class Trajectory:
    """One conversation of the policy. ``prompts`` and ``responses`` have one entry of token ids per turn played."""

    messages: list[Message]
    next_prompt: tuple[int, ...]
    seeds_T: Sequence[int]
    tests: TestCases | None
    """Public ones; not needed with a single turn."""
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    open: bool = True
    failed: bool = False
    """An infrastructure failure ended it: nothing may be learned from it."""


def rows_of(
    trajectories: Sequence[Trajectory],
    turns: int,
    prompt_width: int,
    response_width: int,
    pad_token: int,
    costs: Mapping[str, float],
) -> DataProto:
    """One row per trajectory and turn. A row after the end holds one prompt token, which models need, and no response.

    The rows with a response share the costs, because the trainer drops the others.
    """
    tensors, failed = [], []
    for trajectory in trajectories:
        played = [*zip(trajectory.prompts, trajectory.responses, strict=True)]
        empty = (trajectory.prompts[0][-1:], [])
        for prompt, response in played + [empty] * (turns - len(played)):
            # the prompt padded on its left, the response on its right; positions count valid tokens and then go on
            before = prompt_width - len(prompt)
            prompts = pad(torch.tensor(prompt), (before, 0), value=pad_token)
            ids = torch.tensor(response, dtype=torch.long)
            responses = pad(ids, (0, response_width - len(response)), value=pad_token)
            places = torch.arange(prompt_width + response_width)
            tensors.append(
                {
                    "prompts": prompts,
                    "responses": responses,
                    "input_ids": torch.cat([prompts, responses]),
                    "attention_mask": ((places >= before) & (places < prompt_width + len(response))).long(),
                    "position_ids": (places - before).clamp(min=0),
                }
            )
            failed.append(trajectory.failed)
    batch = {name: torch.stack([row[name] for row in tensors]) for name in tensors[0]}
    named = {ROLLOUT_FAILED: np.array(failed, dtype=object)}
    live_B = batch["attention_mask"][:, prompt_width:].any(1).numpy()
    for name, shares in shared_costs("rollout", costs, int(live_B.sum())).items():
        named[name] = np.where(live_B, shares[0], 0.0).astype(object)
    return DataProto(batch=TensorDict(batch, batch_size=len(tensors)), non_tensor_batch=named)


def kept_rows(live_B: list[bool], unit: int) -> list[int]:
    """Indices of the live rows, in order, and of the fewest others that make the count a multiple of ``unit``.

    The others are spread evenly over ranks and micro-batches.

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

    Each problem's rows then come turn by turn, so that those with the same prompt are adjacent. The rows of an
    optimizer step are a multiple of ``unit``.
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
