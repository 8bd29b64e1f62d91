"""Each prompt computed once: the responses to a prompt share it in the forward passes of policy and reference.

A batch of the bandit is ``rollout.n`` responses to each of a few long prompts. veRL 0.5.0 computes each prompt n times
in old log-probabilities, reference and update. Here the rows of a micro-batch with equal prompts form a group, and each
token goes through the model once, without padding. Log-probabilities, entropies and gradients are the same up to
rounding. One layout serves both kinds of machine:

| | attention | scores |
|---|---|---|
| GPU: ``forward_varlen`` | kernels for sequences of varying length (``shared_attention``) | ``token_scores`` |
| CPU: ``forward_dense`` | torch's own, with a dense mask | from all logits |

The loss is veRL's own. What a token counts for in it, ``workers`` says.
"""

from collections.abc import Iterator
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
from cobalt.training.shared_batches import Group, groups_of, micro_batches, rank_parts
from cobalt.training.token_scores import TokenScores

MODELS = ("llama", "qwen2", "qwen3")
"""Model types known to hand ``shared_prompts`` to every layer and to score with a plain output layer."""


@dataclass(frozen=True)
class Layout:
    """L tokens of a micro-batch of B rows, first all prompts and then all responses, and its R response tokens."""

    groups: list[Group]
    cells_L: Tensor
    """Index of each token in B · (prompt + response)."""
    predictors_R: Tensor
    """Index in L of the token that predicts each response token: its predecessor."""
    targets_R: Tensor
    """Index in B · response width of each response token."""

    def spread(self, values_R: Tensor, responses: Tensor) -> Tensor:
        """Values of response tokens at their places in (B, response), 0 elsewhere."""
        return values_R.new_zeros(responses.numel()).index_put((self.targets_R,), values_R).view(responses.shape)


def lay_out(micro_batch: Any) -> Layout:
    """Where the tokens of a micro-batch go. Groups without a response token are left out (unless there is no other).

    ``micro_batch``: ``input_ids``, ``attention_mask`` (B, prompt + response), ``responses`` (B, response). The places
    are worked out on the host: on a GPU the many small operations would take longer.
    """
    device, width = micro_batch["input_ids"].device, micro_batch["responses"].shape[1]
    valid = micro_batch["attention_mask"].bool().cpu()
    cells = torch.arange(valid.numel()).view(valid.shape)
    groups = groups_of(micro_batch)
    groups = [group for group in groups if sum(group.responses)] or groups[:1]
    prompts = [cells[group.rows[0], :-width][valid[group.rows[0], :-width]] for group in groups]
    responses = torch.cat([cells[row, -width:][valid[row, -width:]] for group in groups for row in group.rows])

    # A response's first token is predicted by the last of its prompt, the others by those before them.
    predictors, end_of_prompt, start = [], 0, sum(group.prompt for group in groups)
    for group in groups:
        end_of_prompt += group.prompt
        for tokens in group.responses:
            places = torch.arange(start - 1, start + tokens - 1)
            places[:1] = end_of_prompt - 1
            predictors.append(places)
            start += tokens

    rows, places = responses // valid.shape[1], responses % valid.shape[1]
    targets = rows * width + places - (valid.shape[1] - width)
    parts = (torch.cat([*prompts, responses]), torch.cat(predictors), targets)
    return Layout(groups, *(part.to(device) for part in parts))


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
    layout, responses = lay_out(micro_batch), micro_batch["responses"]
    with torch.autocast(device_type=actor.device_name, dtype=torch.bfloat16):
        output = actor.actor_module(
            input_ids=micro_batch["input_ids"].flatten()[layout.cells_L][None],
            position_ids=micro_batch["position_ids"].flatten()[layout.cells_L][None],
            attention_mask=dense_mask(layout.groups),
            use_cache=False,
        )
        logits_RV = output.logits.flatten(0, 1)[layout.predictors_R] / temperature
        labels_R = responses.flatten()[layout.targets_R]
        # as one row: without flash-attn, veRL loops over rows
        log_probs_R = torch_functional.logprobs_from_logits(logits_RV[None], labels_R[None])[0]
        entropies_R = torch_functional.entropy_from_logits(logits_RV) if calculate_entropy else None
    entropies = None if entropies_R is None else layout.spread(entropies_R, responses)
    return entropies, layout.spread(log_probs_R, responses)


def forward_varlen(actor: Any, micro_batch: Any, temperature: float, calculate_entropy: bool) -> Any:
    """The same. Raises ``NotImplementedError`` for models that it does not know."""
    model = actor.actor_module
    if actor.use_fused_kernels or actor.use_ulysses_sp or model.config.model_type not in MODELS:
        raise NotImplementedError(
            "shared prompts exclude use_fused_kernels and ulysses_sequence_parallel_size > 1, and know "
            f"{', '.join(MODELS)}, not {model.config.model_type}"
        )
    extend_attention(model.config)
    for module in model.modules():  # where layers are computed again for their gradients, their attention is not
        if getattr(module, "gradient_checkpointing", False):
            module._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=attention_kept)

    layout, responses = lay_out(micro_batch), micro_batch["responses"]
    prompts = [group.prompt for group in layout.groups]
    answers = [tokens for group in layout.groups for tokens in group.responses if tokens]
    alone = spans(prompts + answers, prompts + answers, responses.device)
    across = spans([sum(group.responses) for group in layout.groups], prompts, responses.device) if answers else None

    compiled = actor.config.get("use_torch_compile", True)
    settings = responses.flatten()[layout.targets_R], temperature, calculate_entropy, compiled
    with torch.autocast(actor.device_name, torch.bfloat16), scoring(model.get_output_embeddings(), *settings):
        output = model(
            input_ids=micro_batch["input_ids"].flatten()[layout.cells_L][None],
            position_ids=micro_batch["position_ids"].flatten()[layout.cells_L][None],
            attention_mask=responses.new_ones(1, 1, 1, 1),  # transformers makes no mask where it is given one so shaped
            use_cache=False,
            logits_to_keep=layout.predictors_R,
            shared_prompts=SharedPrompts(sum(prompts), alone, across),
        )
    log_probs_R, entropies_R = output.logits[0].unbind(-1)
    entropies = layout.spread(entropies_R, responses) if calculate_entropy else None
    return entropies, layout.spread(log_probs_R, responses)


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


def prepare_dynamic_batch(data: Any, max_token_len: int) -> tuple[list[Any], list[list[int]]]:
    """In place of veRL's: micro-batches of at most ``max_token_len`` shared tokens, and the rows of each.

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


def balance_batch(batch: Any, ranks: int, logging_prefix: str = "global_seqlen") -> dict[str, float]:
    """Reorder ``batch`` so that ranks get whole groups of about equally many shared tokens, rows of a group adjacent.

    Groups are cut, in equal parts, only where a rank's rows are no multiple of a group's. Returns veRL's metrics.
    """
    parts = rank_parts(groups_of(batch.batch), ranks)
    tokens = [part.tokens for part in parts]
    by_rank: Any = get_seqlen_balanced_partitions(tokens, k_partitions=ranks, equal_size=True)
    batch.reorder(torch.tensor([row for places in by_rank for i in places for row in parts[i].rows]))
    return log_seqlen_unbalance(seqlen_list=tokens, partitions=by_rank, prefix=logging_prefix)
