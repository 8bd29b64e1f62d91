"""The reward manager of veRL 0.9.1: it scores each response as soon as it is generated.

A reward worker is a process with one event loop. It holds one connection to the execution service as long as it lives.
A failure of the infrastructure is no verdict: such a response gets ``infra`` 1, and the trainer makes it neutral.
"""

import asyncio
import inspect
from contextlib import AsyncExitStack
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from cobalt.rewards import o200k_counter, tokenizer_counter
from cobalt.training.execution import SERVICE_ERRORS, open_programs
from cobalt.training.manager import MAX_IN_FLIGHT, _without_verls_wrapper
from cobalt.training.scoring import BATCH, INFRA, SCORE_NAMES, Batch, is_finished


class StreamingRewardManager(RewardManagerBase):
    """veRL's interface; the settings are ``config.reward.reward_kwargs``, those of the recipes."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_router: Any):
        super().__init__(config, tokenizer, compute_score)
        settings = dict(config.reward.get("reward_kwargs") or {})
        self.executor = settings.pop("executor", "serve")
        self.lengths = settings.pop("lengths", "policy")
        self.require_end = settings.pop("require_end", False)
        self.max_in_flight = settings.pop("max_in_flight", MAX_IN_FLIGHT)
        settings.pop("max_infra_rate", None)  # the trainer's
        self.limits = settings
        self.gives_batch = BATCH in inspect.signature(_without_verls_wrapper(compute_score)).parameters
        self.width = config.data.max_response_length
        self._stack, self._opening = AsyncExitStack(), asyncio.Lock()
        self._programs: Any = None

    async def run_single(self, data: Any) -> dict[str, Any]:
        """``reward_score`` of the trajectory's last response, and ``reward_extra_info``: the reward's parts by name."""
        row = data[-1]
        ids, text = await asyncio.to_thread(self._decoded, row)
        fields = row.non_tensor_batch
        extra_info = dict(fields.get("extra_info") or {})
        validate = extra_info.get("split") == "test"  # veRL does not pass it (its issue 7121)
        finished = not self.require_end or is_finished(ids, self.width, self.tokenizer.eos_token_id)
        item = {
            "data_source": fields["data_source"],
            "solution_str": text,
            "ground_truth": fields["reward_model"]["ground_truth"],
            "extra_info": {**extra_info, "finished": finished},
        }
        try:
            if self.gives_batch:
                item[BATCH] = Batch(await self._connected(), self._count_tokens, validate)
            result = self.compute_score(**item)
            if inspect.isawaitable(result):
                result = await result
        except SERVICE_ERRORS as error:
            print(f"cobalt: INFRA FAILURE: a response was not scored: {error}", flush=True)
            return {"reward_score": 0.0, "reward_extra_info": {**dict.fromkeys(SCORE_NAMES, 0.0), INFRA: 1.0}}
        named = result if isinstance(result, dict) else {"score": result}
        parts = {name: float(value) for name, value in named.items() if name != "score"}
        return {"reward_score": float(named["score"]), "reward_extra_info": {**parts, INFRA: 0.0}}

    def _decoded(self, row: Any) -> tuple[list[int], str]:
        width = row.batch["responses"].shape[-1]
        length = int(row.batch["attention_mask"][-width:].sum())
        ids = row.batch["responses"][:length].tolist()
        return ids, self.tokenizer.decode(ids, skip_special_tokens=True)

    async def _connected(self) -> Any:
        async with self._opening:
            if self._programs is None:
                opened = open_programs(self.executor, self.max_in_flight, self.limits)
                self._programs, _ = await self._stack.enter_async_context(opened)
                self._count_tokens = (
                    o200k_counter() if self.lengths == "o200k_base" else tokenizer_counter(self.tokenizer)
                )
        return self._programs
