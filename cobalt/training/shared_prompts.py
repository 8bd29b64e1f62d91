"""What rows begin with computed once: the responses to a prompt share it, and prompts share how they begin.

veRL computes each prompt ``rollout.n`` times in old log-probabilities, reference and update. The prompts of several
turns of a conversation, and of several conversations about one problem, also begin alike. Here the rows of a
micro-batch form trees: a token that several rows have at their beginning goes through the model once, without padding.
Log-probabilities, entropies and gradients are the same up to rounding.

Attention is that of ``shared_attention`` on GPUs, and torch's own with a dense mask on CPU cores. The loss is veRL's.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, groupby, pairwise, product
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from verl.utils.seqlen_balancing import log_seqlen_unbalance

from cobalt.training.settings import SHARED_PROMPT_MODELS
from cobalt.training.shared_attention import (
    Segment,
    SharedPrompts,
    attention_kept,
    extend_attention,
    newer_kernels,
    shares_prompts,
)
from cobalt.training.token_scores import TokenScores

LEVEL_COST = 1 / 32
"""What a level of the tree costs each token below it, in tokens.

It is one more call of attention and one more merge: at 4B, a rough 3 % of a token's way through the model and back. So
of all trees the cheapest is taken. Hardly ever shared, then, are the system prompt that all problems have, and the few
tokens that end a prompt.
"""
UNITS = 2
"""A tree with more tokens than a rank's share over this is divided among ranks at its branches.

Where answers are short, all problems are one tree, by their system prompt.
"""
NEARLY_EVEN = 1.01
"""Ranks are even enough if none has more tokens than this times their mean."""
SHARED = "shared"
"""Column of micro-batches: ``Rows.shared``."""


@dataclass(frozen=True)
class Rows:
    """Rows of a batch, those next to each other that share tokens. All lengths are in tokens.

    ``shared``: what a row has in common with the one before it, at the beginning of its prompt. Rows a < b share
    ``min(shared[a + 1 : b + 1])`` tokens. A *span* is a range of indices.
    """

    rows: tuple[int, ...]
    prompts: tuple[int, ...]
    responses: tuple[int, ...]
    shared: tuple[int, ...]

    def part(self, indices: Iterable[int]) -> "Rows":
        """The rows at these indices, and what they share with each other."""
        chosen = sorted(indices)
        rows, prompts, responses = (
            tuple(values[index] for index in chosen) for values in (self.rows, self.prompts, self.responses)
        )
        shared = (min(self.shared[one + 1 : other + 1]) for one, other in pairwise(chosen))
        return Rows(rows, prompts, responses, (0, *shared))

    @property
    def tokens(self) -> int:
        """The cost: shared tokens count once."""
        return self.cost(range(len(self.rows)))

    def cost(self, span: range) -> int:
        """Tokens of a span's rows, as a part of their own."""
        at = slice(span.start, span.stop)
        # what the first row shares with the row before it lies outside of the span, so it counts in full
        return sum(self.prompts[at]) + sum(self.responses[at]) - sum(self.shared[span.start + 1 : span.stop])

    def trees(self) -> list[range]:
        """The spans of rows that share tokens."""
        return self.branches(range(len(self.rows)), 0)

    def branches(self, span: range, above: int) -> list[range]:
        """A span whose rows all share ``above`` tokens, cut where neighbours share no more than these."""
        starts = [index for index in span if index == span.start or self.shared[index] <= above]
        return [range(*ends) for ends in pairwise([*starts, span.stop])]

    def common(self, span: range) -> int:
        """What all rows of a span share. It has two rows or more."""
        return min(self.shared[span.start + 1 : span.stop])


class Branch(NamedTuple):
    """Rows that share what is above them in a tree. ``shared``: as in ``Rows``; ``tokens``: of their own."""

    rows: tuple[int, ...]
    shared: tuple[int, ...]
    tokens: int


def joined(branches: Sequence[Branch], common: int, more: int) -> Branch:
    """Branches that share ``common`` tokens, in the order of the batch. ``more``: how many of these are their own."""
    first, *others = sorted(branches, key=lambda branch: min(branch.rows))
    rows, shared = [*first.rows], [*first.shared]
    for other in others:
        rows += other.rows
        shared += [common, *other.shared[1:]]
    return Branch(tuple(rows), tuple(shared), more + sum(branch.tokens for branch in branches))


def rows_by_prefix(prompts: Sequence[Tensor], responses: Sequence[int]) -> Rows:
    """Rows with these prompts (token ids on the host) and lengths of responses, as the cheapest trees (``LEVEL_COST``).

    Trees, branches, and rows with equal prompts are in the batch's order.
    """
    ids, lengths = [prompt.numpy().tobytes() for prompt in prompts], [len(prompt) for prompt in prompts]
    # Sorted by their bytes, prompts that begin alike are neighbours. So what two of them share is the least of what
    # the neighbours between them share, and each tree is a stretch of the order.
    order = sorted(range(len(ids)), key=ids.__getitem__)
    common = [0, *(common_tokens(prompts[one], prompts[other]) for one, other in pairwise(order))]

    @cache
    def cheapest(start: int, end: int, above: int) -> tuple[float, list[Branch]]:
        """The cost and branches of ``order[start:end]``, which share ``above`` tokens, without these."""
        if end - start == 1:
            row = order[start]
            tokens = lengths[row] + responses[row] - above
            return tokens, [Branch((row,), (0,), tokens)]
        here = min(common[start + 1 : end])
        starts = [start, *(index for index in range(start + 1, end) if common[index] == here), end]
        costs: dict[int, float] = {}
        branches_with: dict[int, list[Branch]] = {}
        for shared in (here, above):  # with a level for what they share beyond `above`, and without
            parts = [cheapest(*ends, shared) for ends in pairwise(starts)]
            costs[shared] = sum(cost for cost, _ in parts)
            branches_with[shared] = [branch for _, branches in parts for branch in branches]
        of_level = here - above + LEVEL_COST * sum(branch.tokens for branch in branches_with[here])
        if costs[here] + of_level < costs[above]:
            return costs[here] + of_level, [joined(branches_with[here], here, here - above)]
        return costs[above], branches_with[above]

    rows, shared, _ = joined(cheapest(0, len(order), 0)[1], 0, 0)
    return Rows(rows, tuple(lengths[row] for row in rows), tuple(responses[row] for row in rows), shared)


def common_tokens(one: Tensor, other: Tensor) -> int:
    """How many tokens two prompts begin with in common."""
    length = min(len(one), len(other))
    differ = (one[:length] != other[:length]).nonzero()
    return int(differ[0]) if len(differ) else length


def micro_batches(rows: Rows, max_tokens: int, at_least: int = 1) -> list[Rows]:
    """Few micro-batches of about equal cost, the costliest first, none over ``max_tokens``.

    A tree is cut only if it does not fit into one micro-batch, or if there must be ``at_least`` so many micro-batches
    (ranks that share a model need equally many). Raises ``ValueError`` where a single row does not fit.
    """

    def cost(batch: Sequence[range]) -> int:
        return sum(map(rows.cost, batch))

    for prompt, response in zip(rows.prompts, rows.responses, strict=True):
        if prompt + response > max_tokens:
            raise ValueError(f"a row of {prompt + response} tokens in micro-batches of {max_tokens}")
    # Cutting a tree makes its upper part count twice. So trees are cut only where they must be, and then spread.
    pieces = [piece for tree in rows.trees() for piece in _pieces(rows, tree, max_tokens)]
    batches: list[list[range]] = []
    for count in range(math.ceil(cost(pieces) / max_tokens), len(pieces) + 1):
        batches = [[pieces[i] for i in share] for share in _even_shares([*map(rows.cost, pieces)], count)]
        if all(cost(batch) <= max_tokens for batch in batches):
            break
    while len(batches) < at_least:
        # The costliest micro-batch that has several rows becomes two; its trees stay whole if there are several.
        divisible = [i for i, batch in enumerate(batches) if sum(map(len, batch)) > 1]
        batch = batches.pop(max(divisible, key=lambda i: cost(batches[i])))
        if len(batch) > 1:
            batches += [[batch[i] for i in share] for share in _even_shares([*map(rows.cost, batch)], 2)]
        else:
            halves = [(range(batch[0].start, cut), range(cut, batch[0].stop)) for cut in batch[0][1:]]
            batches += [[half] for half in min(halves, key=lambda halves: max(map(rows.cost, halves)))]
    parts = [rows.part(chain.from_iterable(batch)) for batch in batches]
    return sorted(parts, key=lambda part: (-part.tokens, part.rows))


def _pieces(rows: Rows, span: range, most: int) -> list[range]:
    """A span in pieces of at most ``most`` tokens. Branches that fit stay whole; rows with one prompt part evenly."""
    if rows.cost(span) <= most:
        return [span]
    branches = rows.branches(span, rows.common(span))
    if len(branches) == len(span):
        # The least limit that needs no more pieces makes them about equally large, not full ones and a small rest.
        count = len(_joined(rows, branches, most))
        most = bisect_left(range(most), -count, key=lambda most: -len(_joined(rows, branches, most)))
        return _joined(rows, branches, most)
    return _joined(rows, [piece for branch in branches for piece in _pieces(rows, branch, most)], most)


def _joined(rows: Rows, pieces: Sequence[range], most: int) -> list[range]:
    """Neighbours together as long as they have at most ``most`` tokens."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        both = range(joined[-1].start, piece.stop)
        joined[-1:] = [both] if rows.cost(both) <= most else [joined[-1], piece]
    return joined


def _even_shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices of ``costs`` in ``count`` shares (at most one for each), the next costliest to the cheapest so far."""
    shares: list[list[int]] = [[] for _ in range(count)]
    totals = [(0, 0)] * count  # of cost and of items, so that items without cost spread too
    for index in sorted(range(len(costs)), key=lambda i: -costs[i]):
        cheapest = min(range(count), key=totals.__getitem__)
        shares[cheapest].append(index)
        totals[cheapest] = (totals[cheapest][0] + costs[index], totals[cheapest][1] + 1)
    return shares


def balanced_rows(rows: Rows, ranks: int, fillers: Sequence[int] = ()) -> tuple[list[int], dict[str, float]]:
    """An order of rows that gives ranks equally many rows and about equally many tokens, and veRL's metrics of it.

    Trees stay together, in the batch's order on their rank, unless they are large (``UNITS``). One is also cut where no
    rank has room for all its rows. ``fillers``: rows that each rank has beside these, without tokens that count. Raises
    ``ValueError`` if the ranks cannot have equally many rows.
    """
    fillers, total = fillers or [0] * ranks, len(rows.rows) + sum(fillers)
    if total % ranks:
        raise ValueError(f"{total} rows for {ranks} ranks")
    room, loads, of_ranks = [total // ranks - count for count in fillers], [0] * ranks, [[] for _ in range(ranks)]
    most = rows.tokens / (ranks * UNITS)
    units = [unit for tree in rows.trees() for unit in _units(rows, tree, most)]
    units.sort(key=rows.cost)
    while units:
        unit = units.pop()
        fitting = [rank for rank in range(ranks) if room[rank] >= len(unit)]
        rank = min(fitting, key=loads.__getitem__) if fitting else max(range(ranks), key=room.__getitem__)
        part, rest = unit[: room[rank]], unit[room[rank] :]
        of_ranks[rank].append(part)
        room[rank] -= len(part)
        loads[rank] += rows.cost(part)
        units += [rest] if rest else []
    _swap(rows, of_ranks, loads)
    parts = [rows.part(chain.from_iterable(of_rank)) for of_rank in of_ranks]
    tokens, each = [part.tokens for part in parts], [[rank] for rank in range(ranks)]
    return [row for part in parts for row in part.rows], log_seqlen_unbalance(tokens, each, prefix="global_seqlen")


def _units(rows: Rows, span: range, most: float) -> list[range]:
    """A span, or its branches if it has more than ``most`` tokens. Neighbours without more in common stay together."""
    if len(span) == 1 or rows.cost(span) <= most:
        return [span]
    units: list[range] = []
    for is_row, branches in groupby(rows.branches(span, rows.common(span)), lambda branch: len(branch) == 1):
        spans = [*branches]
        units += [range(spans[0].start, spans[-1].stop)] if is_row else chain(*(_units(rows, s, most) for s in spans))
    return units


def _swap(rows: Rows, of_ranks: Sequence[list[range]], loads: list[int]) -> None:
    """Swap units of equally many rows between the rank with most tokens and others, as long as that helps."""
    costs = {unit: rows.cost(unit) for units in of_ranks for unit in units}
    enough = NEARLY_EVEN * sum(loads) / len(loads)
    while max(loads) > enough:
        high = loads.index(max(loads))
        swaps = [
            (max(loads[high] - saved, loads[low] + saved), low, one, other, saved)
            for low in range(len(loads))
            for one, other in product(of_ranks[high], of_ranks[low])
            if len(one) == len(other) and 0 < (saved := costs[one] - costs[other]) < loads[high] - loads[low]
        ]
        if not swaps:
            return
        _, low, one, other, saved = min(swaps, key=itemgetter(0))
        for rank, gone, come, more in ((high, one, other, -saved), (low, other, one, saved)):
            of_ranks[rank].remove(gone)
            of_ranks[rank].append(come)
            loads[rank] += more


class Placed(NamedTuple):
    """A segment of a layout: ``tokens`` of the ``row`` (an index). ``before``: index in L of the token before them."""

    row: int
    tokens: slice
    before: int
    segment: Segment


def segments_of(rows: Rows) -> list[Placed]:
    """The segments of all trees in the order of L: top segments first, then what is below each of them.

    Below a segment it is the same again: the segments of the next level, what is below each of them, and last what
    only one row has. So a level's segments, and what is below them, lie together wherever they have one parent.
    """

    def place(span: range, above: int, start: int, level: int, before: int) -> Iterator[Placed]:
        """Rows that share ``above`` tokens, without these, from ``start`` on."""
        branches = rows.branches(span, above)
        inner = [branch for branch in branches if len(branch) > 1]
        ends = [rows.common(branch) for branch in inner]
        first = start + sum(ends) - above * len(ends)
        for branch, end in zip(inner, ends, strict=True):
            last = first + rows.cost(branch) - end
            segment = Segment(level, start, start + end - above, first, last)
            # any row of the branch holds these tokens; its first one stands for all
            yield Placed(branch.start, slice(above, end), before, segment)
            yield from place(branch, end, first, level + 1, segment.end - 1)
            start, first = segment.end, last
        for branch in branches:
            if len(branch) == 1:
                end = rows.prompts[branch.start] + rows.responses[branch.start]
                last = first + end - above
                yield Placed(branch.start, slice(above, end), before, Segment(level, first, last, last, last))
                first = last

    placed = place(range(len(rows.rows)), 0, 0, 0, -1)
    return sorted(placed, key=lambda one: one.segment.start)


@dataclass(frozen=True)
class Layout:
    """L tokens of a micro-batch, in the segments of trees, and its R response tokens.

    A cell is a token's index in veRL's flattened micro-batch.
    """

    segments: list[Segment]
    cells_L: Tensor
    cells_R: Tensor
    predictors_R: Tensor
    """Index in L of the token that predicts each response token: its predecessor."""

    def attention(self) -> SharedPrompts:
        """Which tokens attend to which."""
        return SharedPrompts.of(self.segments, self.cells_L.device)

    def dense_mask(self) -> Tensor:
        """The same as an additive mask (1, 1, L, L) in fp32. What is hidden gets the least finite number."""
        seen = torch.zeros(len(self.cells_L), len(self.cells_L), dtype=torch.bool)
        for _, start, end, first, last in self.segments:
            seen[start:end, start:end] = torch.ones(end - start, end - start, dtype=torch.bool).tril()
            seen[first:last, start:end] = True
        mask = torch.zeros(seen.shape, dtype=torch.float32)
        return mask.masked_fill_(~seen, torch.finfo(torch.float32).min)[None, None]


def lay_out(rows: Rows, cells_of: Callable[[int], Tensor], device: Any) -> Layout:
    """The layout of ``rows``; ``cells_of`` gives those of a row.

    Rows without a response are left out. If no row has one, the first remains, for a model needs an input.
    """
    # All indices are computed on the host. On a GPU the many small operations would take longer.
    rows = rows.part([index for index, tokens in enumerate(rows.responses) if tokens] or [0])
    placed, cells, responses, predictors = segments_of(rows), [], [], []
    for index, tokens, before, segment in placed:
        row, prompt = cells_of(rows.rows[index]), rows.prompts[index]
        cells.append(row[tokens])
        if segment.last == segment.first:  # nothing is below: the end of a row
            responses.append(row[prompt:])
            predecessors = torch.arange(segment.end - len(row[prompt:]) - 1, segment.end - 1)
            if tokens.start == prompt:  # the prompt's last token is in the segment above
                predecessors[:1] = before
            predictors.append(predecessors)
    tensors = (torch.cat(indices).to(device) for indices in (cells, responses, predictors))
    return Layout([one.segment for one in placed], *tensors)


def prepare(model: Any, is_split_or_fused: bool) -> None:
    """Make ``model`` obey ``shared_prompts``. Where layers are computed again for gradients, slow attention is not.

    ``is_split_or_fused``: whether veRL divides sequences among GPUs, or fuses the loss into the model. Raises
    ``NotImplementedError`` then, and for a model that is not known.
    """
    if is_split_or_fused or model.config.model_type not in SHARED_PROMPT_MODELS:
        raise NotImplementedError(
            "shared prompts exclude use_fused_kernels and ulysses_sequence_parallel_size > 1, and know "
            f"{', '.join(SHARED_PROMPT_MODELS)}, not {model.config.model_type}"
        )
    extend_attention(model.config)
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False) and newer_kernels() is None:
            module._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=attention_kept)


def score_tokens(model: Any, head: Any, layout: Layout, ids: Tensor, positions: Tensor, *settings: Any) -> Any:
    """Log-probabilities and entropies (R,). ``ids``, ``positions``: flat; ``settings``: of ``scoring``."""
    if shares_prompts(model.config):
        attention = {"attention_mask": ids.new_ones(1, 1, 1, 1), "shared_prompts": layout.attention()}
    else:
        attention = {"attention_mask": layout.dense_mask()}
    with scoring(head, ids[layout.cells_R], *settings):
        output = model(
            input_ids=ids[layout.cells_L][None],
            position_ids=positions[layout.cells_L][None],
            use_cache=False,
            logits_to_keep=layout.predictors_R,
            **attention,  # without a mask transformers makes one
        )
    return output.logits[0].unbind(-1)


@contextmanager
def scoring(head: Any, targets_R: Tensor, temperature: float, with_entropy: bool, compiled: bool) -> Iterator[None]:
    """While the body runs, the output layer (a bias-free ``Linear``) gives log-probabilities and entropies, (1, R, 2).

    It does so inside the model's forward pass, because FSDP gathers its weight only there.
    """

    def score(hidden_1RU: Tensor) -> Tensor:
        states = [hidden_1RU[0], head.weight]
        device_type = hidden_1RU.device.type
        if torch.is_autocast_enabled(device_type):
            states = [states.to(torch.get_autocast_dtype(device_type)) for states in states]
        scores: Any = TokenScores.apply(*states, targets_R, temperature, with_entropy, compiled)
        return torch.stack([values_R[None] for values_R in scores], -1)

    head.forward = score
    try:
        yield
    finally:
        del head.forward
