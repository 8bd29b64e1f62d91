"""The reward manager of online training, known to veRL as ``cobalt_online``.

Each program gets the reward that the bandit gives it in the same context: the best pass rate so far is that of its own
trajectory. From all programs of a group come the advantages, which the trainer takes as they are
(``rows.with_given_advantages``). Validation is the bandit's.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from verl import DataProto

from cobalt.errors import InfraError
from cobalt.extraction import extract_code
from cobalt.records import TestCases
from cobalt.training.manager import (
    CobaltRewardManager,
    groups_of,
    named_scores,
    on_last_tokens,
    report_failures,
    response_lengths,
    shared_costs,
)
from cobalt.training.neutral import neutralise_groups
from cobalt.training.online.credit import Played, Program, advantages_by_row
from cobalt.training.online.rollouts import ROLLOUT_FAILED
from cobalt.training.online.rows import ADVANTAGE, TRAJECTORY
from cobalt.training.online.settings import OnlineSettings
from cobalt.training.scoring import INFRA, Batch, Score

ROLLOUT_FAILURE = InfraError("a program could not be run during the rollout")


@dataclass(frozen=True)
class Judged:
    """A program's named scores, and its result on each test."""

    score: Score
    passed_K: tuple[bool, ...]


class OnlineRewardManager(CobaltRewardManager):
    """See the module. Takes the settings of ``CobaltRewardManager``; the method's come with the job."""

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """As the bandit's; with ``advantage`` among the named scores."""
        if data.meta_info.get("validate", False):
            return super().__call__(data, return_dict)
        ends_B = response_lengths(data)
        items = self._items(data, ends_B)
        trajectories = _rows_by_trajectory(data, ends_B)

        async def judge_all(batch: Batch) -> list[list[Judged | Exception]]:
            return list(await asyncio.gather(*[self._judge([items[i] for i in rows], batch) for rows in trajectories]))

        judged, work = asyncio.run(self._with_batch(judge_all, len(trajectories), validate=False))
        outcomes_B = _by_row(data, trajectories, judged)
        rewards, named = _named(data, trajectories, outcomes_B, OnlineSettings.from_environment())
        rewards = on_last_tokens(rewards, ends_B, data)
        if not return_dict:
            return rewards
        return {"reward_tensor": rewards, "reward_extra_info": {**named, **shared_costs("reward", work, len(data))}}

    async def _judge(self, items: list[dict[str, Any]], batch: Batch) -> list[Judged | Exception]:
        """The programs of one trajectory, in order."""
        best: float = items[0]["extra_info"].get("prev_best_pass_rate") or 0.0
        judged: list[Judged | Exception] = []
        for item in items:
            item["extra_info"]["prev_best_pass_rate"] = best
            outcome = await self._score(item, batch)
            if not isinstance(outcome, Exception):
                best = max(best, outcome.get("pass_rate", 0.0))
                outcome = Judged(outcome, await _passed(item, batch))
            judged.append(outcome)
        return judged


async def _passed(item: dict[str, Any], batch: Batch) -> tuple[bool, ...]:
    """Results on the tests; the reward function has had the program run, so this takes nothing more."""
    code = extract_code(item["solution_str"]) if item["extra_info"]["finished"] else None
    if code is None:
        return (False,) * len(TestCases.parse(item["ground_truth"]))
    return (await batch.execute(code, item["ground_truth"])).passing


def _rows_by_trajectory(data: DataProto, ends_B: list[int]) -> list[list[int]]:
    """Rows with a response, by trajectory, in the order of its turns."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(data.non_tensor_batch[TRAJECTORY]):
        if ends_B[row]:
            rows[number].append(row)
    return list(rows.values())


def _by_row(
    data: DataProto, trajectories: list[list[int]], judged: list[list[Judged | Exception] | Exception]
) -> dict[int, Judged | Exception]:
    """What became of each row; every row of a trajectory has failed if one has."""
    outcomes: dict[int, Judged | Exception] = {}
    for rows, of_rows in zip(trajectories, judged, strict=True):
        failures = [of_rows] if isinstance(of_rows, Exception) else [o for o in of_rows if isinstance(o, Exception)]
        if data.non_tensor_batch[ROLLOUT_FAILED][rows[0]]:
            failures.append(ROLLOUT_FAILURE)
        outcomes.update(zip(rows, [failures[0]] * len(rows) if failures else of_rows, strict=True))  # type: ignore[arg-type]
    return outcomes


def _named(
    data: DataProto, trajectories: list[list[int]], outcomes: dict[int, Judged | Exception], settings: OnlineSettings
) -> tuple[list[float], dict[str, list[float]]]:
    """Rewards, and named scores with ``advantage``, of all rows: 0, or means, for those without a response."""
    count, groups_B = len(data), groups_of(data)
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
    report_failures(failures, len(outcomes))
    judged = {row: outcome for row, outcome in outcomes.items() if isinstance(outcome, Judged)}
    scores_B = [judged[row].score if row in judged else None for row in range(count)]
    live = sorted(outcomes)
    totals = [judged[row].score["score"] if row in judged else None for row in live]
    rewards = dict(zip(live, neutralise_groups(totals, [groups_B[row] for row in live]), strict=True))
    played = [
        Played(
            groups_B[rows[0]],
            tuple(rows),
            tuple(Program(judged[i].score["score"], judged[i].passed_K) if i in judged else None for i in rows),
        )
        for rows in trajectories
    ]
    advantages = advantages_by_row(played, settings)
    named = {
        **named_scores(scores_B),
        INFRA: [float(isinstance(outcomes.get(row), Exception)) for row in range(count)],
        ADVANTAGE: [advantages.get(row, 0.0) for row in range(count)],
    }
    return [rewards.get(row, 0.0) for row in range(count)], named
