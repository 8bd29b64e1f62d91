"""The reward manager that veRL calls once per batch, registered as ``cobalt``.

All programs of a batch go through the execution service at once, identical ones once. A failure of the infrastructure
is never a verdict: its sample is neutralised (``cobalt.training.neutral``) and counted in ``infra``. An error in the
reward function itself is raised: it would otherwise be learned.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Literal

import torch
from verl import DataProto
from verl.workers.reward_manager import register

from cobalt.errors import CobaltError, InfraError, SetupError
from cobalt.rewards import o200k_counter, tokenizer_counter
from cobalt.serving.execution import ExecutionService, open_execution_service
from cobalt.training.execution import MAX_IN_FLIGHT, BatchExecution
from cobalt.training.neutral import fill_with_mean, neutralise_groups
from cobalt.training.scoring import BATCH, INFRA, SCORE_NAMES, Batch, Score

MANAGER_NAME = "cobalt"
LENGTHS = ("policy", "o200k_base")
MAX_INFRA_RATE = 0.25
OPEN_DELAYS_S = (1, 2, 4, 8)
"""Waits between attempts to reach the execution service, for a batch that starts while it is away."""


@register(MANAGER_NAME)
class CobaltRewardManager:
    """veRL's reward manager interface; ``settings`` come from ``reward_model.reward_kwargs``."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any],
        reward_fn_key: str = "data_source",
        *,
        executor: Literal["serve", "local"] = "serve",
        lengths: str = "policy",
        require_end: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_infra_rate: float = MAX_INFRA_RATE,
        **limits: Any,
    ):
        """``lengths``: whose tokens the format part counts. ``require_end``: a response without an end token counts
        as one without a program. ``limits`` go to the executor. ``max_infra_rate`` is read by the task runner
        (``cobalt.training.metrics``); ``num_examine``, veRL's number of samples to print, is not: dumps show them all.
        """
        if lengths not in LENGTHS:
            raise SetupError(f"reward_model.reward_kwargs.lengths={lengths}: choose one of {', '.join(LENGTHS)}")
        self.tokenizer = tokenizer
        self.compute_score = compute_score
        self.reward_fn_key = reward_fn_key
        self.executor: Literal["serve", "local"] = executor
        self.lengths = lengths
        self.require_end = require_end
        self.max_in_flight = max_in_flight
        self.limits = limits
        # No handle, loop or connection here: veRL pickles the manager when rewards are computed asynchronously.

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """Rewards on the last token of each response: tensor (batch, response length), with named scores if asked."""
        validate = bool(data.meta_info.get("validate", False))
        ends_B = _response_lengths(data)
        outcomes_B = asyncio.run(self._score_batch(self._items(data, ends_B), validate))
        scores_B = [None if isinstance(outcome, CobaltError) else outcome for outcome in outcomes_B]
        _report_failures([outcome for outcome in outcomes_B if isinstance(outcome, CobaltError)], len(data))
        totals_B = [score["score"] if score else None for score in scores_B]
        rewards_B = fill_with_mean(totals_B) if validate else neutralise_groups(totals_B, _groups(data))
        rewards = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
        for index, (reward, end) in enumerate(zip(rewards_B, ends_B, strict=True)):
            rewards[index, max(end - 1, 0)] = reward
        if not return_dict:
            return rewards
        return {"reward_tensor": rewards, "reward_extra_info": _named_scores(scores_B)}

    def _items(self, data: DataProto, ends_B: list[int]) -> list[dict[str, Any]]:
        """One set of arguments of ``compute_score`` per response."""
        ids_B = [ids[:end].tolist() for ids, end in zip(data.batch["responses"], ends_B, strict=True)]
        texts_B = self.tokenizer.batch_decode(ids_B, skip_special_tokens=True)
        width = data.batch["responses"].shape[-1]
        extras_B = data.non_tensor_batch.get("extra_info", [None] * len(ids_B))
        return [
            {
                "data_source": source,
                "solution_str": text,
                "ground_truth": truth["ground_truth"],
                "extra_info": {**(extra or {}), "finished": not self.require_end or self._finished(ids, width)},
            }
            for source, text, truth, extra, ids in zip(
                data.non_tensor_batch[self.reward_fn_key],
                texts_B,
                data.non_tensor_batch["reward_model"],
                extras_B,
                ids_B,
                strict=True,
            )
        ]

    def _finished(self, ids: list[int], width: int) -> bool:
        """Whether the policy ended the response itself: it is shorter than it could be, or has an end token."""
        return len(ids) < width or ids[-1] == self.tokenizer.eos_token_id

    async def _score_batch(self, items: list[dict[str, Any]], validate: bool) -> list[Score | CobaltError]:
        """Per response a score, or the error by which the infrastructure failed."""
        count = o200k_counter() if self.lengths == "o200k_base" else tokenizer_counter(self.tokenizer)
        async with AsyncExitStack() as stack:
            try:
                service = await self._open_service(stack)
            except SetupError as error:
                return [error] * len(items)
            BATCH.set(Batch(BatchExecution(service, self.max_in_flight), count, validate))
            return list(await asyncio.gather(*[self._score(item) for item in items]))

    async def _open_service(self, stack: AsyncExitStack) -> ExecutionService:
        """The service, waited for: it may be restarting. Raises ``SetupError`` when the last attempt fails."""
        for delay_s in OPEN_DELAYS_S:
            with suppress(SetupError):
                return await stack.enter_async_context(open_execution_service(self.executor, **self.limits))
            await asyncio.sleep(delay_s)
        return await stack.enter_async_context(open_execution_service(self.executor, **self.limits))

    async def _score(self, item: dict[str, Any]) -> Score | CobaltError:
        try:
            result = self.compute_score(**item)
            if inspect.isawaitable(result):
                result = await result
        except InfraError as error:
            return error
        named = result if isinstance(result, dict) else {"score": result}
        return {name: float(value) for name, value in named.items()}


def _response_lengths(data: DataProto) -> list[int]:
    """Valid tokens of each response."""
    prompt_width = data.batch["prompts"].shape[-1]
    return data.batch["attention_mask"][:, prompt_width:].sum(-1).tolist()


def _groups(data: DataProto) -> list[Any]:
    """The prompt that each response belongs to; a group of its own where veRL names none."""
    uids = data.non_tensor_batch.get("uid")
    return list(range(len(data))) if uids is None else list(uids)


def _named_scores(scores_B: list[Score | None]) -> dict[str, list[float]]:
    """Equal keys for all samples: the function's own, and ``infra`` (1: not scored; its values are then means)."""
    names = dict.fromkeys(name for score in scores_B if score for name in score) or dict.fromkeys(SCORE_NAMES)
    named = {name: fill_with_mean([score.get(name) if score else None for score in scores_B]) for name in names}
    named.pop("score", None)  # veRL has a key of this name
    return {**named, INFRA: [float(score is None) for score in scores_B]}


def _report_failures(errors: list[CobaltError], total: int) -> None:
    if errors:
        print(f"cobalt: INFRA FAILURE: {len(errors)} of {total} samples not scored; the first: {errors[0]}", flush=True)
