"""Trajectories with Hugging Face rollouts: the sampler of ``hf_rollout`` for ``cobalt.training.online``."""

from collections.abc import Sequence
from typing import Any

from verl import DataProto

from cobalt.sampler.sampling import Row
from cobalt.training.online.rollouts import MultiTurn, OnFinished, Request
from cobalt.training.online.settings import OnlineSettings
from cobalt.training.patches.hf_rollout import HFRollout, as_set


def play_with_hugging_face(rollout: Any) -> None:
    """In ``verl.workers.rollout``, from where veRL's workers import ``HFRollout`` when they are made."""
    rollout.HFRollout = OnlineHFRollout


class OnlineHFRollout(HFRollout):
    """``HFRollout`` whose training rollouts are trajectories."""

    def __init__(self, module: Any, config: Any):
        super().__init__(module, config)
        self._multi_turn = MultiTurn(OnlineSettings.from_environment(), config)

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """One row for each of ``prompts``; in validation a single turn."""
        if prompts.meta_info.get("validate", False):
            return super().generate_sequences(prompts)
        temperature, top_p = self._sampling(prompts.meta_info)
        end_tokens, width = as_set(prompts.meta_info["eos_token_id"]), self._config.response_length
        self._refresh_copy(prompts.batch["input_ids"].device)

        def generate(requests: Sequence[Request], on_finished: OnFinished) -> None:
            rows = [Row(request.prompt, width, temperature, top_p, request.seed) for request in requests]
            self._sample(rows, end_tokens, on_finished)

        return self._multi_turn.rollout(prompts, generate, self._seeds(len(prompts)))
