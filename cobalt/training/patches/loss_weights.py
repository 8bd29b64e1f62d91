"""What a response token counts for in the actor's loss (``cobalt.loss_weights``), whatever micro-batches it is in.

veRL 0.5.0 takes the mean over the tokens of a micro-batch. Micro-batches of a fixed number of rows then count the same,
those sized by tokens as many times as they have rows. So a token's weight depends on the rows that it is computed with.
Here it depends on the mini-batch alone: ``rows`` consecutive rows count the same as any other ``rows``, and so does
each token in them. The loss is a sum over tokens, so any micro-batches give the same gradients.

| ``loss_weights`` | ``rows`` | |
|---|---|---|
| ``release`` | ``ppo_micro_batch_size_per_gpu`` | what veRL computes in micro-batches of so many rows |
| ``tokens`` | all of the mini-batch on a GPU | what veRL computes in one micro-batch: the mean over tokens |

The weights stand in the response mask, and veRL adds them up (``loss_agg_mode=seq-mean-token-sum``): the policy's loss,
the KL term and the entropy term alike.
"""

import os
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from cobalt.training.patches.table import RELEASE, WEIGHTS_VARIABLE


def patch_actor(dp_actor: Any) -> None:
    """Weigh tokens where micro-batches of ``verl.workers.actor.dp_actor`` would not do it by themselves."""
    actor = dp_actor.DataParallelPPOActor
    update_policy = actor.update_policy
    follow_release = os.environ.get(WEIGHTS_VARIABLE, RELEASE) == RELEASE

    @wraps(update_policy)
    def update_weighted(self: Any, data: Any) -> Any:
        config = self.config
        if follow_release and not config.use_dynamic_bsz:
            return update_policy(self, data)
        rows = config.ppo_micro_batch_size_per_gpu if follow_release else config.ppo_mini_batch_size
        weighted = data.select(list(data.batch.keys()))
        weighted.batch["response_mask"] = token_weights(data.batch["response_mask"], rows)
        configured, config.loss_agg_mode = config.loss_agg_mode, "seq-mean-token-sum"
        try:
            return update_policy(self, weighted)
        finally:
            config.loss_agg_mode = configured

    actor.update_policy = update_weighted


def token_weights(response_mask_BR: Tensor, rows: int) -> Tensor:
    """Weights (B, response) that are the same within ``rows`` consecutive rows and add up to ``rows`` there.

    >>> token_weights(torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]]), 2).tolist()
    [[0.5, 0.5, 0.5], [0.5, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    chunks = response_mask_BR.float().split(rows)
    return torch.cat([chunk * (rows / chunk.sum().clamp(min=1)) for chunk in chunks])
