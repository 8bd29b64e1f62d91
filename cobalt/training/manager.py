"""The reward manager that veRL calls once per batch, known to it as ``cobalt`` (``patches.reward_manager``).

All programs of a batch go through the execution service at once, identical ones once. A failure of the infrastructure
is never a verdict: its sample is neutralised (``cobalt.training.unscored``) and counted in ``infra``. An error in the
reward function itself is raised: it would otherwise be learned.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from verl import DataProto

from cobalt.errors import InputError
from cobalt.rewards import CountTokens, o200k_counter, tokenizer_counter
from cobalt.serving.service_check import check_service
from cobalt.training.execution import SERVICE_ERRORS, open_programs
from cobalt.training.reward_metrics import shared_costs
from cobalt.training.scoring import BATCH, INFRA, SCORE_NAMES, Batch, RewardSettings, Score, is_finished
from cobalt.training.unscored import fill_with_mean, neutralise_groups

REWARD_LOADER = "verl.trainer.ppo.reward"
"""The module of veRL that loads reward functions by path."""
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class CobaltRewardManager:
    """veRL's reward manager interface. No handle, loop or connection is kept: veRL pickles the manager."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any],
        reward_fn_key: str = "data_source",
        **reward_kwargs: Any,
    ):
        """``reward_kwargs``: of ``RewardSettings``. ``num_examine``, veRL's number of samples to print, is not read:
        dumps show them all. Raises ``InputError``."""
        self.settings = RewardSettings.read(reward_kwargs)
        self.tokenizer = tokenizer
        self.compute_score = compute_score
        self.reward_fn_key = reward_fn_key
        # veRL binds the user's function to its constants as partial(call, function, constants). ``call`` takes any
        # arguments, so only the function itself tells whether it wants the batch.
        is_bound = isinstance(compute_score, partial) and compute_score.func.__module__ == REWARD_LOADER
        function = compute_score.args[0] if is_bound else compute_score
        self.gives_batch = BATCH in inspect.signature(function).parameters

    def check(self) -> None:
        """Before training: raise ``InputError`` for settings that no executor takes, ``SetupError`` for no service."""
        self._counter()
        try:
            check_service(self.settings.executor, **self.settings.limits)
        except (TypeError, ValueError) as error:
            raise InputError(f"reward_model.reward_kwargs: {error}") from None

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """Rewards on the last token of each response: tensor (batch, response length), with named scores if asked."""
        validate = data.meta_info.get("validate", False)
        outcomes_B, work = self.judged(self.score, self.items(data), validate)
        return self.rewards(data, dict(enumerate(outcomes_B)), work, return_dict)

    def items(self, data: DataProto) -> list[dict[str, Any]]:
        """One set of arguments of ``compute_score`` per response."""
        width, columns = data.batch["responses"].shape[-1], data.non_tensor_batch
        ids_B = [ids[:end].tolist() for ids, end in zip(data.batch["responses"], response_lengths(data), strict=True)]
        texts_B = self.tokenizer.batch_decode(ids_B, skip_special_tokens=True)
        extras_B = columns.get("extra_info", [None] * len(ids_B))
        rows = zip(columns[self.reward_fn_key], texts_B, columns["reward_model"], extras_B, ids_B, strict=True)
        any_end = not self.settings.require_end
        return [
            {
                "data_source": source,
                "solution_str": text,
                "ground_truth": truth["ground_truth"],
                "extra_info": {
                    **(extra or {}),
                    "finished": any_end or is_finished(ids, width, self.tokenizer.eos_token_id),
                },
            }
            for source, text, truth, extra, ids in rows
        ]

    def judged(
        self, judge: Callable[[Item, Batch], Awaitable[Outcome]], items: Sequence[Item], validate: bool
    ) -> tuple[list[Outcome | Exception], dict[str, float]]:
        """What ``judge`` says of each item, or the error by which the infrastructure failed; and what that took."""
        count_tokens = self._counter()

        async def judge_all() -> tuple[list[Outcome | Exception], dict[str, float]]:
            settings = self.settings
            try:
                async with open_programs(settings.executor, settings.max_in_flight, settings.limits) as opened:
                    batch = Batch(opened[0], count_tokens, validate)
                    outcomes = await asyncio.gather(*[judge(item, batch) for item in items])
                    return [*outcomes], opened[1].work_done()
            except SERVICE_ERRORS as error:
                return [error] * len(items), {}

        return asyncio.run(judge_all())

    async def score(self, item: dict[str, Any], batch: Batch) -> Score | Exception:
        """What the reward function says of one response, or the error by which the infrastructure failed."""
        surroundings = {BATCH: batch} if self.gives_batch else {}
        try:
            result = self.compute_score(**item, **surroundings)
            if inspect.isawaitable(result):
                result = await result
        except SERVICE_ERRORS as error:
            return error
        named = result if isinstance(result, dict) else {"score": result}
        return {name: float(value) for name, value in named.items()}

    def rewards(
        self,
        data: DataProto,
        outcomes: Mapping[int, Score | Exception],
        work: Mapping[str, float],
        return_dict: bool,
        **columns: list[float],
    ) -> Any:
        """What ``__call__`` gives. ``outcomes``: of every row with a response; ``columns``: further named scores."""
        validate = data.meta_info.get("validate", False)
        failures = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
        if failures:
            of = f"{len(failures)} of {len(outcomes)} samples not scored"
            print(f"cobalt: INFRA FAILURE: {of}; the first: {failures[0]}", flush=True)
        scores = {row: None if isinstance(outcome, Exception) else outcome for row, outcome in outcomes.items()}
        totals = [score["score"] if score else None for score in scores.values()]
        groups_B = data.non_tensor_batch.get("uid", range(len(data)))  # without names each row is a group of its own
        filled = fill_with_mean(totals) if validate else neutralise_groups(totals, [groups_B[row] for row in scores])
        rewards, ends_B = torch.zeros_like(data.batch["responses"], dtype=torch.float32), response_lengths(data)
        for row, reward in zip(scores, filled, strict=True):
            rewards[row, max(ends_B[row] - 1, 0)] = reward
        if not return_dict:
            return rewards
        # veRL wants equal keys for all samples, and has a key "score" itself. Rows without a score get means.
        names = dict.fromkeys(name for score in scores.values() if score for name in score) or dict.fromkeys(
            SCORE_NAMES
        )
        scores_B = [scores.get(row) for row in range(len(data))]
        named = {
            name: fill_with_mean([score.get(name) if score else None for score in scores_B])
            for name in names
            if name != "score"
        }
        infra_B = [float(isinstance(outcomes.get(row), Exception)) for row in range(len(data))]
        costs = {} if validate else shared_costs("reward", work, len(data))
        return {"reward_tensor": rewards, "reward_extra_info": {**named, INFRA: infra_B, **columns, **costs}}

    def _counter(self) -> CountTokens:
        return o200k_counter() if self.settings.lengths == "o200k_base" else tokenizer_counter(self.tokenizer)


def response_lengths(data: DataProto) -> list[int]:
    """Valid tokens of each response."""
    return data.batch["attention_mask"][:, data.batch["prompts"].shape[-1] :].sum(-1).tolist()
