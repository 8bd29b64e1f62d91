"""Each prompt computed once: veRL's actor and reference on sequences in which the responses to a prompt share it.

A batch of the bandit is ``rollout.n`` responses to each of a few long prompts, and veRL 0.5.0 computes each prompt n
times in old log-probabilities, reference and update. Here the rows of a micro-batch with equal prompts form a group:
each token of the prompt and of the responses goes through the model once (``shared_attention``), logits exist for
response tokens only (``token_scores``), and log-probabilities, entropies and gradients are the same up to rounding.

| what veRL does | what it does with the patches |
|---|---|
| ``_forward_micro_batch`` with ``use_remove_padding`` computes every row, prompt included | computes groups |
| ``prepare_dynamic_batch`` balances rows by their tokens, prompt included | whole groups by shared tokens |
| ``RayPPOTrainer._balance_batch`` gives ranks rows of about equally many tokens | whole groups |

Everything else is veRL's own, the loss too: the update is exactly veRL's on the same micro-batches. What a token counts
for in these micro-batches, ``loss_weights`` says.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cobalt.training.patches.batch_rows import groups_of, spread
from cobalt.training.patches.shared_attention import SharedPrompts, attention_kept, extend_attention, spans
from cobalt.training.patches.shared_batches import Group, micro_batches, rank_parts
from cobalt.training.patches.token_scores import TokenScores

MODELS = ("llama", "qwen2", "qwen3")
"""Model types known to hand ``shared_prompts`` to every layer and to score with a plain output layer."""


def patch_actor(module: Any) -> None:
    """Share prompts in ``verl.workers.actor.dp_actor`` where padding is removed (``use_remove_padding``)."""
    actor = module.DataParallelPPOActor
    forward = actor._forward_micro_batch

    def forward_shared(self: Any, micro_batch: Any, temperature: float, calculate_entropy: bool = False) -> Any:
        if not self.use_remove_padding:
            return forward(self, micro_batch, temperature, calculate_entropy)
        return _forward(self, micro_batch, temperature, calculate_entropy)

    actor._forward_micro_batch = forward_shared
    module.prepare_dynamic_batch = prepare_dynamic_batch


def patch_trainer(module: Any) -> None:
    """Balance ranks by groups in ``verl.trainer.ppo.ray_trainer``."""
    module.RayPPOTrainer._balance_batch = balance_batch


def prepare_dynamic_batch(data: Any, max_token_len: int) -> tuple[list[Any], list[list[int]]]:
    """Micro-batches of at most ``max_token_len`` shared tokens, equally many on all ranks, and the rows of each."""
    groups = groups_of(data.batch)
    count = _most_of_all_ranks(len(micro_batches(groups, max_token_len)))
    rows = micro_batches(groups, max_token_len, at_least=count)
    return [data.select_idxs(chosen) for chosen in rows], rows


def _most_of_all_ranks(count: int) -> int:
    from verl.utils.device import get_device_name

    if not torch.distributed.is_initialized():
        return count
    most = torch.tensor(count, device=get_device_name())
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
    return int(most)


def balance_batch(self: Any, batch: Any, metrics: dict[str, Any], logging_prefix: str = "global_seqlen") -> None:
    """Reorder ``batch`` so that ranks get whole groups of about equally many shared tokens, rows of a group adjacent.

    Groups are cut, in equal parts, only where a rank's rows are no multiple of a group's. A method of the trainer.
    """
    from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions, log_seqlen_unbalance

    ranks = self.actor_rollout_wg.world_size
    parts = rank_parts(groups_of(batch.batch), ranks)
    tokens = [part.tokens for part in parts]
    by_rank: Any = get_seqlen_balanced_partitions(tokens, k_partitions=ranks, equal_size=True)
    batch.reorder(torch.tensor([row for places in by_rank for i in places for row in parts[i].rows]))
    metrics.update(log_seqlen_unbalance(seqlen_list=tokens, partitions=by_rank, prefix=logging_prefix))


@dataclass(frozen=True)
class Layout:
    """L tokens of the prompts and then the responses of a micro-batch of B rows, and its R response tokens."""

    cells_L: Tensor
    """Index of each token in B · (prompt + response)."""
    predictors_R: Tensor
    """Index in L of the token that predicts each response token: its predecessor."""
    targets_R: Tensor
    """Index in B · response width of each response token."""
    shared: SharedPrompts


def lay_out(micro_batch: Any) -> Layout:
    """Where the tokens of a micro-batch go. Groups without a response token are left out (unless there is no other).

    The places are worked out on the host: on a GPU the many small operations would take longer.
    """
    device, width = micro_batch["input_ids"].device, micro_batch["responses"].shape[1]
    valid = micro_batch["attention_mask"].bool().cpu()
    groups = groups_of(micro_batch)
    groups = [group for group in groups if sum(group.responses)] or groups[:1]
    cells = torch.arange(valid.numel()).view(valid.shape)
    answered = [row for group in groups for row, tokens in zip(group.rows, group.responses, strict=True) if tokens]
    prompts = [_kept(cells, valid, group.rows[0])[: group.prompt] for group in groups]
    responses = [_kept(cells[:, -width:], valid[:, -width:], row) for row in answered]
    targets = torch.arange(valid.shape[0] * width).view(-1, width)
    return Layout(
        cells_L=torch.cat([*prompts, *responses]).to(device),
        predictors_R=_predictors(groups).to(device),
        targets_R=torch.cat([_kept(targets, valid[:, -width:], row) for row in answered] or [targets[0, :0]]).to(
            device
        ),
        shared=_shared(groups, device),
    )


def _kept(values_BL: Tensor, valid_BL: Tensor, row: int) -> Tensor:
    return values_BL[row][valid_BL[row]]


def _predictors(groups: list[Group]) -> Tensor:
    """A response's first token is predicted by the last of its prompt, the others by those before them."""
    end_of_prompt, start, predictors = 0, sum(group.prompt for group in groups), []
    for group in groups:
        end_of_prompt += group.prompt
        for tokens in group.responses:
            places = torch.arange(start - 1, start + tokens - 1)
            places[:1] = end_of_prompt - 1
            predictors.append(places)
            start += tokens
    return torch.cat(predictors)


def _shared(groups: list[Group], device: Any) -> SharedPrompts:
    prompts = [group.prompt for group in groups]
    responses = [tokens for group in groups for tokens in group.responses if tokens]
    alone, across = spans(prompts + responses, prompts + responses, device), None
    if responses:
        across = spans([sum(group.responses) for group in groups], prompts, device)
    return SharedPrompts(sum(prompts), alone, across)


def _forward(actor: Any, micro_batch: Any, temperature: float, calculate_entropy: bool) -> Any:
    """Entropies (or None) and log-probabilities, each (B, response) with 0 outside of the response."""
    _refuse_unsupported(actor)
    extend_attention(actor.actor_module.config)
    _keep_attention(actor.actor_module)
    layout, responses = lay_out(micro_batch), micro_batch["responses"]
    head = actor.actor_module.get_output_embeddings()
    settings = responses.flatten()[layout.targets_R], temperature, calculate_entropy, _compiles(actor)
    with torch.autocast(device_type=actor.device_name, dtype=torch.bfloat16), _scoring(head, *settings):
        output = actor.actor_module(
            input_ids=micro_batch["input_ids"].flatten()[layout.cells_L][None],
            position_ids=micro_batch["position_ids"].flatten()[layout.cells_L][None],
            attention_mask=responses.new_ones(1, 1, 1, 1),  # transformers makes no mask where it is given one so shaped
            use_cache=False,
            logits_to_keep=layout.predictors_R,
            shared_prompts=layout.shared,
        )
    log_probs_R, entropies_R = output.logits[0].unbind(-1)
    log_probs = spread(log_probs_R, layout.targets_R, responses)
    return spread(entropies_R, layout.targets_R, responses) if calculate_entropy else None, log_probs


def _refuse_unsupported(actor: Any) -> None:
    kind = actor.actor_module.config.model_type
    if actor.use_fused_kernels or actor.use_ulysses_sp or kind not in MODELS:
        reason = "they exclude use_fused_kernels and ulysses_sequence_parallel_size > 1"
        raise NotImplementedError(f"shared prompts: {reason}, and know {', '.join(MODELS)}, not {kind}")


def _keep_attention(model: Any) -> None:
    """Where the model's layers are computed again for their gradients, their attention is not."""
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=attention_kept)


def _compiles(actor: Any) -> bool:
    return actor.config.get("use_torch_compile", True)


@contextmanager
def _scoring(head: Any, targets_R: Tensor, temperature: float, with_entropy: bool, compiled: bool) -> Iterator[None]:
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
