"""Which rows of a batch go together when the responses to one prompt share it.

A group's cost is its *shared* tokens: the prompt once, and all responses.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Rows of a batch with one prompt, in a row's order, and their lengths in tokens."""

    rows: tuple[int, ...]
    prompt: int
    responses: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return self.prompt + sum(self.responses)

    def part(self, places: Sequence[int]) -> "Group":
        """The rows at ``places`` of this group, with the prompt of their own that they then need."""
        chosen = sorted(places)
        return Group(tuple(self.rows[i] for i in chosen), self.prompt, tuple(self.responses[i] for i in chosen))


def groups_of(batch: Mapping[str, Tensor]) -> list[Group]:
    """Rows with equal prompts, in order of appearance.

    ``batch`` has ``input_ids`` and ``attention_mask`` (B, prompt + response), ``responses`` (B, response).
    """
    width = batch["responses"].shape[1]
    valid = batch["attention_mask"].bool().cpu()
    prompt_ids, prompt_valid = batch["input_ids"].cpu()[:, :-width], valid[:, :-width]
    rows: dict[bytes, list[int]] = {}
    for row, (ids, keep) in enumerate(zip(prompt_ids, prompt_valid, strict=True)):
        rows.setdefault(ids[keep].numpy().tobytes(), []).append(row)
    prompts, responses = prompt_valid.sum(1).tolist(), valid[:, -width:].sum(1).tolist()
    return [Group(tuple(group), prompts[group[0]], tuple(responses[row] for row in group)) for group in rows.values()]


def micro_batches(groups: Sequence[Group], max_tokens: int, at_least: int = 1) -> list[list[int]]:
    """Rows of each micro-batch: few micro-batches of about equal cost, the costliest first, none over ``max_tokens``.

    A group is cut only if it does not fit into one micro-batch, or if there must be ``at_least`` so many micro-batches
    (ranks that share a model need equally many). Raises ``ValueError`` where a single row does not fit.
    """

    def cost(batch: Sequence[Group]) -> int:
        return sum(group.tokens for group in batch)

    pieces = [piece for group in groups for piece in _pieces(group, max_tokens)]
    batches: list[list[Group]] = []
    for count in range(math.ceil(cost(pieces) / max_tokens), len(pieces) + 1):
        batches = [[pieces[i] for i in share] for share in _even_shares([piece.tokens for piece in pieces], count)]
        if all(cost(batch) <= max_tokens for batch in batches):
            break
    while len(batches) < at_least:
        # The costliest micro-batch that has several rows becomes two; its groups stay whole if there are several.
        divisible = [i for i, batch in enumerate(batches) if sum(len(group.rows) for group in batch) > 1]
        batch = batches.pop(max(divisible, key=lambda i: cost(batches[i])))
        if len(batch) > 1:
            batches += [[batch[i] for i in share] for share in _even_shares([group.tokens for group in batch], 2)]
        else:
            batches += [[batch[0].part(places)] for places in _even_shares(batch[0].responses, 2)]
    batches.sort(key=lambda batch: (-cost(batch), batch[0].rows))
    return [sorted(row for group in batch for row in group.rows) for batch in batches]


def rank_parts(groups: Sequence[Group], ranks: int) -> list[Group]:
    """Parts of groups with equally many rows, as large as ``ranks`` with equally many rows can be made of.

    These are the groups themselves wherever a rank's rows are a multiple of a group's.
    """
    rows_per_rank = sum(len(group.rows) for group in groups) // ranks
    size = math.gcd(rows_per_rank, *(len(group.rows) for group in groups))
    return [group.part(range(start, start + size)) for group in groups for start in range(0, len(group.rows), size)]


def _pieces(group: Group, max_tokens: int) -> list[Group]:
    """The group, or the fewest parts of it that fit."""
    if group.prompt + max(group.responses) > max_tokens:
        raise ValueError(f"a row of {group.prompt + max(group.responses)} tokens in micro-batches of {max_tokens}")
    for count in range(1, len(group.rows) + 1):
        parts = [group.part(places) for places in _even_shares(group.responses, count)]
        if all(part.tokens <= max_tokens for part in parts):
            return parts
    raise AssertionError("single rows fit")


def _even_shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices of ``costs`` in ``count`` shares (at most one for each), the next costliest to the cheapest so far."""
    shares: list[list[int]] = [[] for _ in range(count)]
    totals = [(0, 0)] * count  # of cost and of items, so that items without cost spread too
    for index in sorted(range(len(costs)), key=lambda i: -costs[i]):
        cheapest = min(range(count), key=totals.__getitem__)
        shares[cheapest].append(index)
        totals[cheapest] = (totals[cheapest][0] + costs[index], totals[cheapest][1] + 1)
    return shares
