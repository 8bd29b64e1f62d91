"""Trajectories with vLLM rollouts: the engine inside veRL's ``vLLMRollout`` for ``cobalt.training.online``."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from verl import DataProto

from cobalt.training.online.rollouts import MultiTurn, OnFinished, Request
from cobalt.training.online.settings import OnlineSettings


def play_with_vllm(vllm_rollout: Any) -> None:
    """In ``verl.workers.rollout.vllm_rollout``, from where veRL's workers import ``vLLMRollout`` when they are made."""

    from vllm.sampling_params import RequestOutputKind  # type: ignore[import-not-found]

    class OnlineVLLMRollout(vllm_rollout.vLLMRollout):
        """``vLLMRollout`` whose training rollouts are trajectories; seeds are vLLM's own."""

        def __init__(self, model_path: str, config: Any, tokenizer: Any, model_hf_config: Any, **kwargs: Any):
            super().__init__(model_path, config, tokenizer, model_hf_config, **kwargs)
            self._multi_turn = MultiTurn(OnlineSettings.from_environment(), config)
            self._request_ids = count()
            self.sampling_params.output_kind = RequestOutputKind.FINAL_ONLY  # as ``LLM.generate`` does

        def generate_sequences(self, prompts: DataProto, **kwargs: Any) -> DataProto:
            """One row for each of ``prompts``; in validation a single turn."""
            if prompts.meta_info.get("validate", False):
                return super().generate_sequences(prompts, **kwargs)
            engine = self.inference_engine.llm_engine
            generate = partial(generate_with_vllm, engine, self.sampling_params, self._request_ids)
            return self._multi_turn.rollout(prompts, generate, [0] * len(prompts))

    vllm_rollout.vLLMRollout = OnlineVLLMRollout


def generate_with_vllm(
    engine: Any, sampling: Any, ids: "count[int]", requests: Sequence[Request], on_finished: OnFinished
) -> None:
    """``Generate`` on the engine inside vLLM's ``LLM``, whose own ``generate`` hands over all rows at the end."""
    places = {str(next(ids)): place for place in range(len(requests))}
    for request_id, place in places.items():
        engine.add_request(request_id, {"prompt_token_ids": list(requests[place].prompt)}, sampling)
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                on_finished(places[output.request_id], list(output.outputs[0].token_ids))
