"""Which rows of a step an optimizer update gets, and which rank computes them."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

from cobalt.training.online import shares_of_updates
from cobalt.training.rollouts import trajectories_of
from cobalt.training.shared_prompts import Rows, balanced_rows, rows_by_prefix


def shared_out(
    batch: Any, updates: int, ranks: int, share_prompts: bool, end_token: int
) -> tuple[Any, int, dict[str, float]]:
    """Online: whole trajectories to ``updates``, and the rows of each update to the ranks.

    veRL's mini-batches have a fixed number of rows, and a trajectory up to as many rows as turns. Padding fills up the
    updates, evenly over ranks. Returns the batch in the order that veRL cuts, the number of updates, which is less with
    fewer trajectories, and veRL's metrics of the balance.
    """
    shares, count = shares_of_updates([*trajectories_of(batch).values()], updates), len(batch)
    size = math.ceil(max(map(len, shares)) / ranks) * ranks
    batch = upsample_batch_to_divisible_size(batch, size * len(shares), end_token)
    padding, balance = iter(range(count, len(batch))), Counter[str]()
    rows_of_ranks: list[list[int]] = [[] for _ in range(ranks)]
    for share in shares:
        fillers = [(size - len(share) + rank) // ranks for rank in range(ranks)]
        order, unbalance = balanced_rows(rows_of(batch, share, share_prompts), ranks, fillers)
        balance.update(unbalance)  # ranks wait for each other at each update
        rows = iter(order)
        for of_rank, more in zip(rows_of_ranks, fillers, strict=True):
            of_rank += [share[row] for row in islice(rows, size // ranks - more)]
            of_rank += islice(padding, more)
    batch.reorder([row for of_rank in rows_of_ranks for row in of_rank])
    return batch, len(shares), dict(balance)


def evened(rows: Rows, ranks: int, updates: int) -> tuple[list[int], dict[str, float]]:
    """An order of rows for veRL, which cuts it into ranks and what a rank gets into updates, and its metrics of it.

    Each update has equally many rows and about equally many tokens, and so has each rank in it: ranks wait for each
    other at each update. Raises ``ValueError`` as ``balanced_rows``.
    """
    places = {row: place for place, row in enumerate(rows.rows)}
    order, size = balanced_rows(rows, updates)[0], len(places) // updates
    balance, of_ranks = Counter[str](), [[] for _ in range(ranks)]
    for start in range(0, len(order), size):
        in_update, unbalance = balanced_rows(rows.part(places[row] for row in order[start : start + size]), ranks)
        balance.update(unbalance)
        for rank, of_rank in enumerate(of_ranks):
            of_rank += in_update[rank * size // ranks : (rank + 1) * size // ranks]
    return [*chain.from_iterable(of_ranks)], dict(balance)


def rows_of(batch: Any, rows: Iterable[int], share_prompts: bool) -> Rows:
    """What these rows share; nothing if each prompt is computed for itself."""
    tags, keys = zip(*((batch.tags[row], batch.keys[row]) for row in rows), strict=True)
    responses = tuple(tag["response_len"] for tag in tags)
    if not share_prompts:
        return Rows(tuple(range(len(tags))), tuple(tag["prompt_len"] for tag in tags), responses, (0,) * len(tags))
    data: Any = tq.kv_batch_get(keys=list(keys), partition_id=batch.partition_id, select_fields=["prompts"])
    return rows_by_prefix(list(data["prompts"].unbind()), responses)
