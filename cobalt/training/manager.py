"""The reward manager that veRL calls once per batch, known to it as ``cobalt``.

All programs of a batch go through the execution service at once, identical ones once. A failure of the infrastructure
is never a verdict: its sample is neutralised (``batch_scores``) and counted in ``infra``. An error in the reward
function itself is raised: it would otherwise be learned.
"""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from verl import DataProto

from cobalt.errors import CobaltError, InputError, first_line
from cobalt.rewards import CountTokens, o200k_counter, tokenizer_counter
from cobalt.training.batch_scores import fill_with_mean, neutralise_groups, shared_costs
from cobalt.training.scoring import BATCH, INFRA, SCORE_NAMES, SERVICE_ERRORS, Batch, RewardSettings, Score, is_finished

REWARD_LOADER = "verl.trainer.ppo.reward"
"""The module of veRL that loads reward functions by path."""
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class CobaltRewardManager:
    """veRL's reward manager interface. It keeps no handle, loop or connection, because veRL pickles it."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any],
        reward_fn_key: str = "data_source",
        **reward_kwargs: Any,
    ):
        """``reward_kwargs``: ``RewardSettings``. ``num_examine``, samples to print, is not read: dumps show them all.

        Raises ``InputError``.
        """
        self.settings = RewardSettings.read(reward_kwargs)
        self.tokenizer, self.compute_score, self.reward_fn_key = tokenizer, compute_score, reward_fn_key
        # veRL binds the user's function to its constants as partial(call, function, constants). ``call`` takes any
        # arguments, so only the function itself tells whether it wants the batch.
        is_bound = isinstance(compute_score, partial) and compute_score.func.__module__ == REWARD_LOADER
        function = compute_score.args[0] if is_bound else compute_score
        self.gives_batch = BATCH in inspect.signature(function).parameters

    def check(self) -> None:
        """Before training, as ``RewardSettings.check``."""
        self.settings.check()

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """Rewards on the last token of each response: tensor (batch, response length), with named scores if asked."""
        outcomes_B, work = self.judged(
            self.score, self.items(data, width_of(data)), data.meta_info.get("validate", False)
        )
        return self.rewards(data, dict(enumerate(outcomes_B)), work, return_dict)

    def items(self, data: DataProto, width: int) -> list[dict[str, Any]]:
        """One set of arguments of ``compute_score`` per response. ``width``: most tokens of a response."""
        responses, columns, end_token = data.batch["responses"], data.non_tensor_batch, self.tokenizer.eos_token_id
        ids_B = [ids[:end].tolist() for ids, end in zip(responses, response_lengths(data), strict=True)]
        texts_B = self.tokenizer.batch_decode(ids_B, skip_special_tokens=True)
        rule = self.settings.extraction
        infos_B = columns.get("extra_info", [None] * len(ids_B))
        finished_B = [not self.settings.require_end or is_finished(ids, width, end_token) for ids in ids_B]
        return [
            {
                "data_source": columns[self.reward_fn_key][row],
                "solution_str": text,
                "ground_truth": columns["reward_model"][row]["ground_truth"],
                "extra_info": {**(infos_B[row] or {}), "finished": finished_B[row], "extraction": rule},
            }
            for row, text in enumerate(texts_B)
        ]

    def judged(
        self, judge: Callable[[Item, Batch], Awaitable[Outcome]], items: Sequence[Item], validate: bool
    ) -> tuple[list[Outcome | Exception], dict[str, float]]:
        """Call ``judge`` on all items at once. Returns outcomes (or the infrastructure's errors) and the work done."""
        count_tokens = self.counter()

        async def judge_one(item: Item, batch: Batch) -> Outcome | Exception:
            try:
                return await judge(item, batch)
            except SERVICE_ERRORS as error:
                return error

        async def judge_all() -> tuple[list[Outcome | Exception], dict[str, float]]:
            async with self.settings.open_service() as service:
                batch = Batch(service, count_tokens, validate)
                outcomes = await asyncio.gather(*[judge_one(item, batch) for item in items])
                return outcomes, service.work_done()

        try:
            return asyncio.run(judge_all())
        except SERVICE_ERRORS as error:
            return [error] * len(items), {}

    async def score(self, item: dict[str, Any], batch: Batch) -> Score:
        """The named scores that the reward function gives one response.

        Raises one of ``SERVICE_ERRORS``, and ``InputError`` for any other error in the reward function.
        """
        try:
            result = self.compute_score(**item, **({BATCH: batch} if self.gives_batch else {}))
            if inspect.isawaitable(result):
                result = await result
            named = result if isinstance(result, dict) else {"score": result}
            return {name: float(value) for name, value in named.items()}
        except (CobaltError, *SERVICE_ERRORS):
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            told = f"the reward function raised {type(error).__name__}: {first_line(error)}"
            raise InputError(f"{told} ({place.filename}, line {place.lineno})") from error

    def rewards(
        self,
        data: DataProto,
        outcomes: Mapping[int, Score | Exception],
        work: Mapping[str, float],
        return_dict: bool,
        **columns: list[float],
    ) -> Any:
        """The result of ``__call__``. ``outcomes``: one per row with a response; ``columns``: more named scores."""
        validate, rows = data.meta_info.get("validate", False), range(len(data))
        failures = {row: outcome for row, outcome in outcomes.items() if isinstance(outcome, Exception)}
        if failures:
            shares = f"{len(failures)} of {len(outcomes)} samples not scored"
            print(f"cobalt: INFRA FAILURE: {shares}; the first: {next(iter(failures.values()))}", flush=True)
        scores = {row: outcome for row, outcome in outcomes.items() if not isinstance(outcome, Exception)}
        totals = [scores[row]["score"] if row in scores else None for row in outcomes]
        groups_B = data.non_tensor_batch.get("uid", rows)  # without names each row is a group of its own
        filled = fill_with_mean(totals) if validate else neutralise_groups(totals, [groups_B[row] for row in outcomes])
        rewards, ends_B = torch.zeros_like(data.batch["responses"], dtype=torch.float32), response_lengths(data)
        for row, reward in zip(outcomes, filled, strict=True):
            rewards[row, max(ends_B[row] - 1, 0)] = reward
        if not return_dict:
            return rewards
        # veRL wants equal keys for all samples, and has a key "score" itself. Rows without a score get means.
        names = dict.fromkeys(name for score in scores.values() for name in score) or dict.fromkeys(SCORE_NAMES)
        names.pop("score", None)
        named = {name: fill_with_mean([scores.get(row, {}).get(name) for row in rows]) for name in names}
        costs = {} if validate else shared_costs("reward", work, len(data))
        infra_B = [float(row in failures) for row in rows]
        return {"reward_tensor": rewards, "reward_extra_info": {**named, INFRA: infra_B, **columns, **costs}}

    def counter(self) -> CountTokens:
        return o200k_counter() if self.settings.lengths == "o200k_base" else tokenizer_counter(self.tokenizer)


def width_of(data: DataProto) -> int:
    """Most tokens of a response: veRL 0.5.0 pads to so many."""
    return data.batch["responses"].shape[-1]


def response_lengths(data: DataProto) -> list[int]:
    """Valid tokens of each response."""
    return data.batch["attention_mask"][:, data.batch["prompts"].shape[-1] :].sum(-1).tolist()
