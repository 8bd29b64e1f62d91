"""The reward manager that veRL calls once per batch, known to it as ``cobalt`` (``patches.reward_manager``).

All programs of a batch go through the execution service at once, identical ones once. A failure of the infrastructure
is never a verdict: its sample is neutralised (``cobalt.training.neutral``) and counted in ``infra``. An error in the
reward function itself is raised: it would otherwise be learned.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar, get_args

import torch
from verl import DataProto

from cobalt.cli.flags import ExecutorName
from cobalt.errors import InputError
from cobalt.rewards import CountTokens, o200k_counter, tokenizer_counter
from cobalt.serving.service_check import check_service
from cobalt.training.execution import SERVICE_ERRORS, open_programs
from cobalt.training.infra_guard import MAX_INFRA_RATE
from cobalt.training.neutral import fill_with_mean, neutralise_groups
from cobalt.training.reward_metrics import COST_PREFIX
from cobalt.training.scoring import BATCH, INFRA, SCORE_NAMES, Batch, Score, is_finished

MANAGER_NAME = "cobalt"
LENGTHS = ("policy", "o200k_base")
MAX_IN_FLIGHT = 512
"""Programs at the service at once. More would only wait there."""
REWARD_LOADER = "verl.trainer.ppo.reward"
"""The module of veRL that loads reward functions by path."""
Outcome = TypeVar("Outcome")


class CobaltRewardManager:
    """veRL's reward manager interface; ``settings`` come from ``reward_model.reward_kwargs``."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any],
        reward_fn_key: str = "data_source",
        *,
        executor: ExecutorName = "serve",
        lengths: str = "policy",
        require_end: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_infra_rate: float = MAX_INFRA_RATE,
        **limits: Any,
    ):
        """``lengths``: whose tokens the format part counts. ``require_end``: a response without an end token counts
        as one without a program. ``max_infra_rate``: see ``cobalt.training.infra_guard``. ``limits`` go to the
        executor. ``num_examine``, veRL's number of samples to print, is not read: dumps show them all.
        """
        for name, value, known in (("executor", executor, get_args(ExecutorName)), ("lengths", lengths, LENGTHS)):
            if value not in known:
                raise InputError(f"reward_model.reward_kwargs.{name}={value}: choose one of {', '.join(known)}")
        self.tokenizer = tokenizer
        self.compute_score = compute_score
        self.gives_batch = BATCH in inspect.signature(_without_verls_wrapper(compute_score)).parameters
        self.reward_fn_key = reward_fn_key
        self.executor: ExecutorName = executor
        self.lengths = lengths
        self.require_end = require_end
        self.max_in_flight = max_in_flight
        self.max_infra_rate = max_infra_rate
        self.limits = limits
        # No handle, loop or connection here: veRL pickles the manager when rewards are computed asynchronously.

    def check(self) -> None:
        """Before training: raise ``InputError`` for settings that no executor takes, ``SetupError`` for no service."""
        self._counter()
        try:
            check_service(self.executor, **self.limits)
        except (TypeError, ValueError) as error:
            raise InputError(f"reward_model.reward_kwargs: {error}") from None

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """Rewards on the last token of each response: tensor (batch, response length), with named scores if asked."""
        validate = bool(data.meta_info.get("validate", False))
        ends_B = response_lengths(data)
        items = self._items(data, ends_B)

        async def score_all(batch: Batch) -> list[Score | Exception]:
            return list(await asyncio.gather(*[self._score(item, batch) for item in items]))

        outcomes_B, work = asyncio.run(self._with_batch(score_all, len(items), validate))
        scores_B = [None if isinstance(outcome, Exception) else outcome for outcome in outcomes_B]
        report_failures([outcome for outcome in outcomes_B if isinstance(outcome, Exception)], len(data))
        totals_B = [score["score"] if score else None for score in scores_B]
        rewards_B = fill_with_mean(totals_B) if validate else neutralise_groups(totals_B, groups_of(data))
        rewards = on_last_tokens(rewards_B, ends_B, data)
        if not return_dict:
            return rewards
        costs = {} if validate else shared_costs("reward", work, len(items))
        return {"reward_tensor": rewards, "reward_extra_info": {**named_scores(scores_B), **costs}}

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
                "extra_info": {**(extra or {}), "finished": self._counts_as_finished(ids, width)},
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

    def _counts_as_finished(self, ids: list[int], width: int) -> bool:
        return not self.require_end or is_finished(ids, width, self.tokenizer.eos_token_id)

    def _counter(self) -> CountTokens:
        return o200k_counter() if self.lengths == "o200k_base" else tokenizer_counter(self.tokenizer)

    async def _with_batch(
        self, work: Callable[[Batch], Awaitable[list[Outcome]]], count: int, validate: bool
    ) -> tuple[list[Outcome | Exception], dict[str, float]]:
        """What ``work`` makes of a batch of ``count`` responses, and what running programs took; or the error by which
        the infrastructure failed, for each response."""
        count_tokens = self._counter()
        try:
            async with open_programs(self.executor, self.max_in_flight, self.limits) as (programs, counter):
                return list(await work(Batch(programs, count_tokens, validate))), counter.work_done()
        except SERVICE_ERRORS as error:
            return [error] * count, {}

    async def _score(self, item: dict[str, Any], batch: Batch) -> Score | Exception:
        surroundings = {BATCH: batch} if self.gives_batch else {}
        try:
            result = self.compute_score(**item, **surroundings)
            if inspect.isawaitable(result):
                result = await result
        except SERVICE_ERRORS as error:
            return error
        named = result if isinstance(result, dict) else {"score": result}
        return {name: float(value) for name, value in named.items()}


def _without_verls_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    """The user's function. veRL binds it to its ``reward_kwargs`` as ``partial(call, function, reward_kwargs)``, where
    ``call`` takes any arguments, so that the signature of the whole says nothing."""
    is_wrapped = isinstance(function, partial) and function.func.__module__ == REWARD_LOADER
    return function.args[0] if is_wrapped else function


def response_lengths(data: DataProto) -> list[int]:
    """Valid tokens of each response."""
    prompt_width = data.batch["prompts"].shape[-1]
    return data.batch["attention_mask"][:, prompt_width:].sum(-1).tolist()


def groups_of(data: DataProto) -> list[Any]:
    """The prompt that each response belongs to; a group of its own where veRL names none."""
    uids = data.non_tensor_batch.get("uid")
    return list(range(len(data))) if uids is None else list(uids)


def on_last_tokens(rewards_B: list[float], ends_B: list[int], data: DataProto) -> torch.Tensor:
    """Rewards at the last valid tokens of the responses: (batch, response length), else 0."""
    rewards = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
    for index, (reward, end) in enumerate(zip(rewards_B, ends_B, strict=True)):
        rewards[index, max(end - 1, 0)] = reward
    return rewards


def shared_costs(phase: str, costs: Mapping[str, float], rows: int) -> dict[str, list[float]]:
    """Costs of a batch as columns whose sums they are: veRL carries numbers from phase to phase by row only."""
    return {f"{COST_PREFIX}{phase}_{name}": [value / rows] * rows for name, value in costs.items()}


def named_scores(scores_B: list[Score | None]) -> dict[str, list[float]]:
    """Equal keys for all samples: the function's own, and ``infra`` (1: not scored; its values are then means)."""
    names = dict.fromkeys(name for score in scores_B if score for name in score) or dict.fromkeys(SCORE_NAMES)
    named = {name: fill_with_mean([score.get(name) if score else None for score in scores_B]) for name in names}
    named.pop("score", None)  # veRL has a key of this name
    return {**named, INFRA: [float(score is None) for score in scores_B]}


def report_failures(errors: list[Exception], total: int) -> None:
    if errors:
        print(f"cobalt: INFRA FAILURE: {len(errors)} of {total} samples not scored; the first: {errors[0]}", flush=True)
