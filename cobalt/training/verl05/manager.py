"""The reward manager that veRL 0.5.0 calls once per batch, known to it as ``cobalt``.

All programs of a batch go to the execution service at once, identical ones once. A failure of the infrastructure is
never a verdict: its sample is neutralised (``batch_scores``) and counted in ``infra``. An error in the reward function
itself ends training.
"""

import asyncio
from typing import Any

import ray
import torch
from verl import DataProto
from verl.workers.reward_manager.registry import register

from cobalt.errors import CobaltError
from cobalt.training.batch_scores import InfraGuard, fill_with_mean, neutralise_groups
from cobalt.training.responses import ResponseScorer
from cobalt.training.scoring import INFRA, SCORE_NAMES, Batch, Score, service_errors

MANAGER_NAME = "cobalt"


class JobGuard:
    """The training's ``InfraGuard``, in a process of its own.

    veRL pickles the manager for each step, so a guard within the manager would only ever see one step.
    """

    def __init__(self, max_infra_rate: float):
        actor = ray.remote(num_cpus=0)(InfraGuard)
        self._actor = actor.options(name="cobalt_guard", get_if_exists=True).remote(max_infra_rate)

    def note(self, share: float) -> None:
        """As ``InfraGuard``."""
        ray.get(self._actor.note.remote(share))


@register(MANAGER_NAME)
class BatchRewardManager:
    """veRL 0.5.0's reward manager interface. It keeps no connection or event loop, because veRL pickles it."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Any,
        reward_fn_key: str = "data_source",
        **reward_kwargs: Any,
    ):
        """``reward_kwargs``: ``RewardSettings``; ``num_examine`` is not read. Raises ``InputError``."""
        self.scorer = ResponseScorer(tokenizer, compute_score, reward_kwargs, reward_fn_key)
        guard = JobGuard if ray.is_initialized() else InfraGuard
        self.guard = guard(self.scorer.settings.max_infra_rate)
        self._error: CobaltError | None = None

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """Rewards on the last token of each response: tensor (batch, response length), with named scores if asked.

        Raises ``InputError`` for an error in the reward function, ``SetupError`` if too many samples are not scored.
        """
        if self._error is not None:  # after any error veRL calls once more, without return_dict
            raise self._error
        validates = data.meta_info.get("validate", False)
        try:
            outcomes_B = self._outcomes(data, validates)
            if failures := [outcome for outcome in outcomes_B if isinstance(outcome, Exception)]:
                share = f"{len(failures)} of {len(data)} samples not scored"
                print(f"cobalt: INFRA FAILURE: {share}; the first: {failures[0]}", flush=True)
            if not validates:
                self.guard.note(len(failures) / len(data))
        except CobaltError as error:
            self._error = error
            raise
        scores_B: list[Score] = [{} if isinstance(outcome, Exception) else outcome for outcome in outcomes_B]
        totals_B = [scores.get("score") for scores in scores_B]
        groups_B = data.non_tensor_batch.get("uid", range(len(data)))  # without names each row is a group of its own
        filled_B = fill_with_mean(totals_B) if validates else neutralise_groups(totals_B, groups_B)
        rewards = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
        for row, (end, reward) in enumerate(zip(lengths_of(data), filled_B, strict=True)):
            rewards[row, max(end - 1, 0)] = reward
        # veRL wants equal keys for all samples, and has a key "score" itself. Rows without a score get means.
        names = dict.fromkeys(name for scores in scores_B for name in scores) or dict.fromkeys(SCORE_NAMES)
        names.pop("score", None)
        named = {name: fill_with_mean([scores.get(name) for scores in scores_B]) for name in names}
        named[INFRA] = [float(isinstance(outcome, Exception)) for outcome in outcomes_B]
        return {"reward_tensor": rewards, "reward_extra_info": named} if return_dict else rewards

    def _outcomes(self, data: DataProto, validates: bool) -> list[Score | Exception]:
        """Named scores of each response, or the infrastructure's error. Raises ``InputError``."""
        responses = data.batch["responses"]
        ids_B = [ids[:end].tolist() for ids, end in zip(responses, lengths_of(data), strict=True)]
        items = self.scorer.items(ids_B, data.non_tensor_batch, responses.shape[-1])
        count_tokens = self.scorer.counter()

        async def score(item: dict[str, Any], batch: Batch) -> Score | Exception:
            try:
                return await self.scorer.score(item, batch)
            except service_errors() as error:
                return error

        async def score_all() -> list[Score | Exception]:
            async with self.scorer.settings.open_service() as service:
                batch = Batch(service, count_tokens, validates)
                return await asyncio.gather(*[score(item, batch) for item in items])

        try:
            return asyncio.run(score_all())
        except service_errors() as error:
            return [error] * len(items)


def lengths_of(data: DataProto) -> list[int]:
    """Valid tokens of each response."""
    return data.batch["attention_mask"][:, data.batch["prompts"].shape[-1] :].sum(-1).tolist()
