"""Forward passes of veRL's actor in which the responses to one prompt share that prompt, and nothing is padding.

Without flash-attn, veRL computes prompt and response of each sample at full padded width. Here the samples of a group
become one sequence ``prompt, response 1, response 2, ...``: each response sees the prompt and itself, at the positions
that it had. Log-probabilities, entropies and gradients are the same up to rounding, at a fraction of the tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from verl.utils import torch_functional

from cobalt.training.patches.batch_rows import groups_of, spread

PROMPT, PADDING = 0, -1


@dataclass(frozen=True)
class Packed:
    """G sequences of L tokens that hold the valid tokens of B samples, and where their R response tokens are."""

    input_ids_GL: Tensor
    position_ids_GL: Tensor
    segments_GL: Tensor
    """What a token is part of: ``PROMPT``, the response 1, 2, ... of the group, or ``PADDING``."""
    predictors_R: Tensor
    """Index in G·L of the token that predicts each response token: its predecessor."""
    targets_R: Tensor
    """Index in B · response width of each response token."""

    def attention_GLL(self, dtype: torch.dtype) -> Tensor:
        """Additive mask (G, 1, L, L): causal, the prompt for all, a response for itself.

        A response stands behind the other responses of its group, so a causal mask alone would show them to it: the
        segments hide them. Padding sees the prompt, and what is hidden gets the least finite number: a row without any
        key, and minus infinity, would give NaN, whose gradients reach what is read.
        """
        key, query = self.segments_GL[:, None, :], self.segments_GL[:, :, None]
        seen = ((key == PROMPT) | (key == query)).tril()
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]


def pack_groups(dp_actor: Any) -> None:
    """Replace the padded forward pass of ``verl.workers.actor.dp_actor.DataParallelPPOActor``."""
    actor = dp_actor.DataParallelPPOActor
    forward = actor._forward_micro_batch

    @wraps(forward)
    def forward_packed(self: Any, micro_batch: Any, temperature: float, calculate_entropy: bool = False) -> Any:
        if self.use_remove_padding or self.use_fused_kernels:
            return forward(self, micro_batch, temperature, calculate_entropy)
        return _forward(self, micro_batch, temperature, calculate_entropy)

    actor._forward_micro_batch = forward_packed


def _forward(
    actor: Any, micro_batch: Mapping[str, Tensor], temperature: float, calculate_entropy: bool
) -> tuple[Tensor | None, Tensor]:
    """Entropies (or None) and log-probabilities, each (B, response) with 0 outside of the response."""
    packed = pack(micro_batch)
    responses = micro_batch["responses"]
    with torch.autocast(device_type=actor.device_name, dtype=torch.bfloat16):
        output = actor.actor_module(
            input_ids=packed.input_ids_GL,
            attention_mask=packed.attention_GLL(torch.float32),
            position_ids=packed.position_ids_GL,
            use_cache=False,
        )
        logits_RV = output.logits.flatten(0, 1)[packed.predictors_R] / temperature
        labels_R = responses.flatten()[packed.targets_R]
        # as one row: without flash-attn, veRL loops over rows
        log_probs_R = torch_functional.logprobs_from_logits(logits_RV[None], labels_R[None])[0]
        entropy = None
        if calculate_entropy:
            entropy = spread(torch_functional.entropy_from_logits(logits_RV), packed.targets_R, responses)
        return entropy, spread(log_probs_R, packed.targets_R, responses)


def pack(micro_batch: Mapping[str, Tensor]) -> Packed:
    """Pack a micro-batch of the actor.

    It has ``input_ids``, ``attention_mask`` and ``position_ids`` (B, prompt + response), ``responses`` (B, response).

    The places are worked out on the host: on a GPU the many small operations would take longer than the forward pass.
    """
    ids, response_width = micro_batch["input_ids"], micro_batch["responses"].shape[1]
    valid = micro_batch["attention_mask"].bool().cpu()
    groups = [_pack_group(group.rows, valid, response_width) for group in groups_of(micro_batch)]
    longest = max(len(group.cells) for group in groups)
    cells_GL = torch.stack([_padded(group.cells, longest, 0) for group in groups]).to(ids.device)
    segments_GL = torch.stack([_padded(group.segments, longest, PADDING) for group in groups])
    predictors_R = torch.cat([group.predictors + index * longest for index, group in enumerate(groups)])
    return Packed(
        input_ids_GL=ids.flatten()[cells_GL],
        position_ids_GL=micro_batch["position_ids"].flatten()[cells_GL],
        segments_GL=segments_GL.to(ids.device),
        predictors_R=predictors_R.to(ids.device),
        targets_R=torch.cat([group.targets for group in groups]).to(ids.device),
    )


@dataclass(frozen=True)
class _Group:
    """One packed sequence: its tokens' cells of (B, prompt + response), and segments; see ``Packed`` for the others."""

    cells: Tensor
    segments: Tensor
    predictors: Tensor
    targets: Tensor


def _pack_group(rows: Sequence[int], valid: Tensor, response_width: int) -> _Group:
    """The prompt of ``rows``, then their responses; ``valid`` (B, prompt + response)."""
    width = valid.shape[1]
    prompt = valid[rows[0], :-response_width].nonzero()[:, 0]
    cells, segments = [rows[0] * width + prompt], [torch.full_like(prompt, PROMPT)]
    predictors, targets, length = [], [], len(prompt)
    for segment, row in enumerate(rows, start=1):
        response = valid[row, -response_width:].nonzero()[:, 0]
        cells.append(row * width + width - response_width + response)
        segments.append(torch.full_like(response, segment))
        # the first token of each response is predicted by the last one of the prompt, not by the response before it
        predictors.append(torch.where(response == 0, len(prompt) - 1, length + response - 1))
        targets.append(row * response_width + response)
        length += len(response)
    return _Group(*(torch.cat(parts) for parts in (cells, segments, predictors, targets)))


def _padded(values: Tensor, length: int, value: int) -> Tensor:
    return pad(values, (0, length - len(values)), value=value)
