"""The reward manager of veRL 0.9.1: it scores each response as soon as it is generated.

A reward worker is a process with one event loop. It holds one connection to the execution service as long as it lives.
A failure of the infrastructure is no verdict: such a response gets ``infra`` 1, and the trainer makes it neutral.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from cobalt.training.manager import CobaltRewardManager
from cobalt.training.scoring import INFRA, SCORE_NAMES, SERVICE_ERRORS, Batch


class StreamingRewardManager(RewardManagerBase):
    """veRL's interface to ``CobaltRewardManager``. Its settings are ``config.reward.reward_kwargs``."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_router: Any):
        super().__init__(config, tokenizer, compute_score)
        self._manager = CobaltRewardManager(tokenizer, 0, compute_score, **(config.reward.get("reward_kwargs") or {}))
        self._stack, self._opening, self._service = AsyncExitStack(), asyncio.Lock(), None

    async def run_single(self, data: Any) -> dict[str, Any]:
        """``reward_score`` of the trajectory's last response, and ``reward_extra_info``: the reward's parts by name.

        veRL does not say whether it validates (its issue 7121). The data's ``split`` does.
        """
        (item,) = await asyncio.to_thread(self._manager.items, data[-1:])
        try:
            batch = Batch(await self._opened(), self._manager.counter(), item["extra_info"].get("split") == "test")
            named = await self._manager.score(item, batch)
        except SERVICE_ERRORS as error:
            print(f"cobalt: INFRA FAILURE: a response was not scored: {error}", flush=True)
            return {"reward_score": 0.0, "reward_extra_info": {**dict.fromkeys(SCORE_NAMES, 0.0), INFRA: 1.0}}
        return {"reward_score": named.pop("score"), "reward_extra_info": {**named, INFRA: 0.0}}

    async def _opened(self) -> Any:
        """The execution service. It stays open."""
        async with self._opening:
            if self._service is None:
                self._service = await self._stack.enter_async_context(self._manager.settings.open_service())
        return self._service
