"""Each prompt computed once: the responses to a prompt share it in the forward passes of policy and reference.

veRL 0.5.0 computes each prompt ``rollout.n`` times in old log-probabilities, reference and update. Here the rows of a
micro-batch with equal prompts form a group, and each token goes through the model once, without padding. Log-
probabilities, entropies and gradients are the same up to rounding. One layout serves both kinds of machine:

| | attention | scores |
|---|---|---|
| GPU: ``forward_varlen`` | kernels for sequences of varying length (``shared_attention``) | ``token_scores`` |
| CPU: ``forward_dense`` | torch's own, with a dense mask | from all logits |

The loss is veRL's own. What a token counts for in it, ``workers`` says.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from verl.utils import torch_functional
from verl.utils.device import get_device_name
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions, log_seqlen_unbalance

from cobalt.training.shared_attention import SharedPrompts, attention_kept, extend_attention, spans
from cobalt.training.token_scores import TokenScores

MODELS = ("llama", "qwen2", "qwen3")
"""Model types known to hand ``shared_prompts`` to every layer and to score with a plain output layer."""


@dataclass(frozen=True)
class Group:
    """Rows of a batch with one prompt, in a row's order, and their lengths in tokens.

    A group's cost is its *shared* tokens: the prompt once, and all responses.
    """

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

    pieces: list[Group] = []  # whole groups, or the fewest parts of one that fit
    for group in groups:
        if (longest := group.prompt + max(group.responses)) > max_tokens:
            raise ValueError(f"a row of {longest} tokens in micro-batches of {max_tokens}")
        for count in range(1, len(group.rows) + 1):
            parts = [group.part(places) for places in _even_shares(group.responses, count)]
            if all(part.tokens <= max_tokens for part in parts):
                pieces += parts
                break
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


def _even_shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Indices of ``costs`` in ``count`` shares (at most one for each), the next costliest to the cheapest so far."""
    shares: list[list[int]] = [[] for _ in range(count)]
    totals = [(0, 0)] * count  # of cost and of items, so that items without cost spread too
    for index in sorted(range(len(costs)), key=lambda i: -costs[i]):
        cheapest = min(range(count), key=totals.__getitem__)
        shares[cheapest].append(index)
        totals[cheapest] = (totals[cheapest][0] + costs[index], totals[cheapest][1] + 1)
    return shares


def prepare_dynamic_batch(data: Any, max_token_len: int) -> tuple[list[Any], list[list[int]]]:
    """Replaces veRL's function: micro-batches of at most ``max_token_len`` shared tokens, and the rows of each.

    They hold whole groups where these fit. All ranks have equally many.
    """
    groups = groups_of(data.batch)
    count = len(micro_batches(groups, max_token_len))
    if torch.distributed.is_initialized():
        most = torch.tensor(count, device=get_device_name())
        torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
        count = int(most)
    rows = micro_batches(groups, max_token_len, at_least=count)
    return [data.select_idxs(chosen) for chosen in rows], rows


def balanced_rows(groups: Sequence[Group], ranks: int) -> tuple[list[int], dict[str, float]]:
    """An order of rows that gives ranks whole groups of about equally many shared tokens, and veRL's metrics of it.

    Rows of a group are adjacent. Groups are cut, in equal parts, only where a rank's rows are no multiple of a group's.
    """
    parts = rank_parts(groups, ranks)
    tokens = [part.tokens for part in parts]
    by_rank: Any = get_seqlen_balanced_partitions(tokens, k_partitions=ranks, equal_size=True)
    rows = [row for places in by_rank for place in places for row in parts[place].rows]
    return rows, log_seqlen_unbalance(seqlen_list=tokens, partitions=by_rank, prefix="global_seqlen")


@dataclass(frozen=True)
class Layout:
    """L tokens of a micro-batch, first all prompts and then all responses, and its R response tokens.

    A cell is a token's place in the micro-batch as veRL has it, flattened.
    """

    groups: list[Group]
    """Those with a response token. If no group has one, the first."""
    cells_L: Tensor
    cells_R: Tensor
    predictors_R: Tensor
    """Index in L of the token that predicts each response token: its predecessor."""

    def attention(self) -> SharedPrompts:
        """Which tokens attend to which."""
        prompts, device = [group.prompt for group in self.groups], self.cells_L.device
        responses = [tokens for group in self.groups for tokens in group.responses if tokens]
        alone = spans(prompts + responses, prompts + responses, device)
        of_groups = [sum(group.responses) for group in self.groups]
        return SharedPrompts(sum(prompts), alone, spans(of_groups, prompts, device) if responses else None)


def lay_out(groups: Sequence[Group], cells_of: Callable[[int], tuple[Tensor, Tensor]], device: Any) -> Layout:
    """``cells_of``: of a row's prompt and of its response.

    The places are worked out on the host. On a GPU the many small operations would take longer.
    """
    groups = [group for group in groups if sum(group.responses)] or list(groups[:1])
    prompts = [cells_of(group.rows[0])[0] for group in groups]
    responses = [cells_of(row)[1] for group in groups for row in group.rows]

    # A response's first token is predicted by the last of its prompt, the others by those before them.
    predictors, end_of_prompt, start = [], 0, sum(group.prompt for group in groups)
    for group in groups:
        end_of_prompt += group.prompt
        for tokens in group.responses:
            places = torch.arange(start - 1, start + tokens - 1)
            places[:1] = end_of_prompt - 1
            predictors.append(places)
            start += tokens
    cells = torch.cat([*prompts, *responses]), torch.cat(responses), torch.cat(predictors)
    return Layout(groups, *(places.to(device) for places in cells))


def padded_layout(micro_batch: Any) -> Layout:
    """``micro_batch``: ``input_ids`` and ``attention_mask`` (B, prompt + response), ``responses`` (B, response)."""
    valid, width = micro_batch["attention_mask"].bool().cpu(), micro_batch["responses"].shape[1]
    cells = torch.arange(valid.numel()).view(valid.shape)

    def cells_of(row: int) -> tuple[Tensor, Tensor]:
        return cells[row, :-width][valid[row, :-width]], cells[row, -width:][valid[row, -width:]]

    return lay_out(groups_of(micro_batch), cells_of, micro_batch["input_ids"].device)


def spread(values_R: Tensor, layout: Layout, micro_batch: Any) -> Tensor:
    """Values of response tokens at their places in (B, response), 0 elsewhere."""
    shape, width = micro_batch["input_ids"].shape, micro_batch["responses"].shape[1]
    return values_R.new_zeros(shape.numel()).index_put((layout.cells_R,), values_R).view(shape)[:, -width:]


def dense_mask(groups: list[Group]) -> Tensor:
    """Additive mask (1, 1, L, L) in fp32: causal, a group's prompt for all of the group, a response for itself.

    A response stands behind other responses, so a causal mask alone would show them to it. What is hidden gets the
    least finite number.
    """
    numbers, lengths = torch.arange(len(groups)), torch.tensor([group.prompt for group in groups])
    rows = torch.tensor([row for group in groups for row in group.rows])
    row_lengths = torch.tensor([tokens for group in groups for tokens in group.responses])
    of_rows = numbers.repeat_interleave(torch.tensor([len(group.rows) for group in groups]))
    prompt_L = torch.cat([numbers.repeat_interleave(lengths), of_rows.repeat_interleave(row_lengths)])
    row_L = torch.cat([torch.full((int(lengths.sum()),), -1), rows.repeat_interleave(row_lengths)])
    seen = (prompt_L == prompt_L[:, None]) & ((row_L == -1) | (row_L == row_L[:, None]))
    mask = torch.zeros(seen.shape, dtype=torch.float32)
    return mask.masked_fill_(~seen.tril_(), torch.finfo(torch.float32).min)[None, None]


def forward_dense(actor: Any, micro_batch: Any, temperature: float, calculate_entropy: bool) -> Any:
    """Entropies (or None) and log-probabilities, each (B, response) with 0 outside of the response."""
    layout = padded_layout(micro_batch)
    ids, positions = (micro_batch[name].flatten() for name in ("input_ids", "position_ids"))
    with torch.autocast(device_type=actor.device_name, dtype=torch.bfloat16):
        output = actor.actor_module(
            input_ids=ids[layout.cells_L][None],
            position_ids=positions[layout.cells_L][None],
            attention_mask=dense_mask(layout.groups),
            use_cache=False,
        )
        logits_RV = output.logits.flatten(0, 1)[layout.predictors_R] / temperature
        # as one row: without flash-attn, veRL loops over rows
        log_probs_R = torch_functional.logprobs_from_logits(logits_RV[None], ids[layout.cells_R][None])[0]
        entropies_R = torch_functional.entropy_from_logits(logits_RV) if calculate_entropy else None
    entropies = None if entropies_R is None else spread(entropies_R, layout, micro_batch)
    return entropies, spread(log_probs_R, layout, micro_batch)


def forward_varlen(actor: Any, micro_batch: Any, temperature: float, calculate_entropy: bool) -> Any:
    """The same. Raises ``NotImplementedError`` for models that it does not know."""
    model, layout = actor.actor_module, padded_layout(micro_batch)
    prepare(model, actor.use_fused_kernels or actor.use_ulysses_sp)
    flat = (micro_batch[name].flatten() for name in ("input_ids", "position_ids"))
    settings = temperature, calculate_entropy, actor.config.get("use_torch_compile", True)
    with torch.autocast(actor.device_name, torch.bfloat16):
        log_probs_R, entropies_R = score_tokens(model, model.get_output_embeddings(), layout, *flat, *settings)
    entropies = spread(entropies_R, layout, micro_batch) if calculate_entropy else None
    return entropies, spread(log_probs_R, layout, micro_batch)


def prepare(model: Any, is_split_or_fused: bool) -> None:
    """Make ``model`` obey ``shared_prompts``. Where layers are computed again for gradients, attention is not.

    ``is_split_or_fused``: whether veRL divides sequences among GPUs, or fuses the loss into the model. Raises
    ``NotImplementedError`` then, and for a model that is not known.
    """
    if is_split_or_fused or model.config.model_type not in MODELS:
        raise NotImplementedError(
            "shared prompts exclude use_fused_kernels and ulysses_sequence_parallel_size > 1, and know "
            f"{', '.join(MODELS)}, not {model.config.model_type}"
        )
    extend_attention(model.config)
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=attention_kept)


def score_tokens(model: Any, head: Any, layout: Layout, ids: Tensor, positions: Tensor, *settings: Any) -> Any:
    """Log-probabilities and entropies (R,). ``ids``, ``positions``: flat; ``settings``: of ``scoring``."""
    with scoring(head, ids[layout.cells_R], *settings):
        output = model(
            input_ids=ids[layout.cells_L][None],
            position_ids=positions[layout.cells_L][None],
            attention_mask=ids.new_ones(1, 1, 1, 1),  # else transformers makes a mask
            use_cache=False,
            logits_to_keep=layout.predictors_R,
            shared_prompts=layout.attention(),
        )
    return output.logits[0].unbind(-1)


@contextmanager
def scoring(head: Any, targets_R: Tensor, temperature: float, with_entropy: bool, compiled: bool) -> Iterator[None]:
    """Meanwhile the output layer (a bias-free ``Linear``) gives log-probabilities and entropies, (1, R, 2).

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
