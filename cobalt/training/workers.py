"""veRL's worker and actor, by subclass: our rollouts and forward pass, and what a token counts for in the loss.

In veRL 0.5.0 a token's weight depends on the rows that it is computed with: the loss is a mean over the tokens of a
micro-batch. Here it depends on the mini-batch alone: ``rows`` consecutive rows count the same as any other ``rows``,
and so does each token in them. The loss is a sum over tokens, so any micro-batches give the same gradients.

| ``cobalt.loss_weights`` | ``rows`` | |
|---|---|---|
| ``release`` | ``ppo_micro_batch_size_per_gpu`` | what veRL computes in micro-batches of so many rows |
| ``tokens`` | all of the mini-batch on a GPU | what veRL computes in one micro-batch: the mean over tokens |
"""

from typing import Any

import torch
from torch import Tensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.actor.dp_actor import DataParallelPPOActor
from verl.workers.fsdp_workers import ActorRolloutRefWorker, AsyncActorRolloutRefWorker
from verl.workers.sharding_manager.base import BaseShardingManager

from cobalt.training import patches, shared_prompts
from cobalt.training.online import MINI_BATCHES, MultiTurn
from cobalt.training.rollout_engines import HFRollout, OnlineRollout
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import CPU_BACKEND, RELEASE, Method


class CobaltActor(DataParallelPPOActor):
    """The policy or the reference. ``settings``: the fields of ``TrainingConfig``."""

    def __init__(self, config: Any, actor_module: Any, actor_optimizer: Any, settings: Any):
        super().__init__(config, actor_module, actor_optimizer)
        self.settings = settings

    def _forward_micro_batch(self, micro_batch: Any, temperature: float, calculate_entropy: bool = False) -> Any:
        """Entropies (or None) and log-probabilities, each (B, response)."""
        if not self.settings.share_prompts:
            return super()._forward_micro_batch(micro_batch, temperature, calculate_entropy)
        forward = shared_prompts.forward_varlen if micro_batch["input_ids"].is_cuda else shared_prompts.forward_dense
        return forward(self, micro_batch, temperature, calculate_entropy)

    def update_policy(self, data: Any) -> Any:
        """veRL's update, in which tokens count as ``loss_weights`` says. Online, in equal shares of the rows left."""
        config, settings = self.config, {}
        mini_batch = config.ppo_mini_batch_size
        if MINI_BATCHES in data.meta_info:
            settings["ppo_mini_batch_size"] = mini_batch = len(data) // data.meta_info[MINI_BATCHES]
        release = self.settings.loss_weights == RELEASE
        if config.use_dynamic_bsz or not release:
            # veRL adds up the weights in the response mask: in the policy's loss, the KL term and the entropy term
            data = data.select(list(data.batch.keys()))
            rows = config.ppo_micro_batch_size_per_gpu if release else mini_batch
            data.batch["response_mask"] = token_weights(data.batch["response_mask"], rows)
            settings["loss_agg_mode"] = "seq-mean-token-sum"
        before = {name: config[name] for name in settings}
        config.update(settings)
        try:
            return super().update_policy(data)
        finally:
            config.update(before)


def token_weights(response_mask_BR: Tensor, rows: int) -> Tensor:
    """Weights (B, response) that are the same within ``rows`` consecutive rows and add up to ``rows`` there.

    >>> token_weights(torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]]), 2).tolist()
    [[0.5, 0.5, 0.5], [0.5, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    chunks = response_mask_BR.float().split(rows)
    return torch.cat([chunk * (rows / chunk.sum().clamp(min=1)) for chunk in chunks])


def restore_frequencies(model: torch.nn.Module) -> None:
    """Compute each rotary embedding's ``inv_freq`` again, in fp32."""
    module: Any
    for module in model.modules():
        inv_freq = getattr(module, "inv_freq", None)
        if isinstance(inv_freq, Tensor) and hasattr(module, "rope_init_fn"):
            exact, _ = module.rope_init_fn(module.config, "cpu")  # as where the model was made
            module.register_buffer("inv_freq", exact.to(inv_freq.device), persistent=False)


class CobaltWorker(ActorRolloutRefWorker):
    """A process of policy, reference and rollouts. ``config``: ``actor_rollout_ref``, with our ``cobalt`` in it."""

    def __init__(self, config: Any, role: str, **kwargs: Any):
        if config.cobalt.backend == CPU_BACKEND:
            patches.work_on_a_cpu()
        if config.cobalt.share_prompts:
            patches.share_prompts_in_micro_batches()
        super().__init__(config, role, **kwargs)

    def _build_model_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """veRL's, whose cast of the reference to bf16 takes the rotary frequencies along, which must stay in fp32.

        A frequency then keeps 8 of its 24 bits. The angle at position p is wrong by up to p / 512 radians per radian,
        so the reference is another model from a few hundred tokens on. With equal random weights of 36 layers
        ``kl_loss`` (mse) was 0.37 at 4,000 tokens. With fp32 frequencies it was 0.002.
        """
        module, *rest = super()._build_model_optimizer(*args, **kwargs)
        restore_frequencies(module)
        return module, *rest

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # pyright: ignore[reportAttributeAccessIssue] - a dynamic enumeration
    def init_model(self) -> None:
        """veRL names the actor's class in this method, so its actors are made again, of the same parts."""
        super().init_model()
        if self._is_actor:
            self.actor = CobaltActor(
                self.config.actor, self.actor_module_fsdp, self.actor_optimizer, self.config.cobalt
            )
        if self._is_ref:
            self.ref_policy = CobaltActor(self.config.ref, self.ref_module_fsdp, None, self.config.cobalt)

    def _build_rollout(self, trust_remote_code: bool = False) -> Any:
        config = self.config.rollout
        if config.name == "hf":
            rollout: Any = HFRollout(self.actor_module_fsdp, config, self.config.cobalt.seed)
            sharding_manager: Any = BaseShardingManager()
        else:
            rollout, sharding_manager = super()._build_rollout(trust_remote_code)
        if (ours := self.config.cobalt).online:
            reward = RewardSettings.read(ours.reward_kwargs)
            rollout = OnlineRollout(rollout, MultiTurn(Method(**ours.online), reward, self.tokenizer, config))
        return rollout, sharding_manager


class AsyncCobaltWorker(CobaltWorker, AsyncActorRolloutRefWorker):
    """``CobaltWorker`` for ``rollout.mode=async``."""
