"""The reward manager of online training, known to veRL as ``cobalt_online``.

Each program gets the reward that the bandit gives it in the same context: the best pass rate so far is that of its own
trajectory. From all programs of a group come the advantages, which the trainer takes as they are
(``rows.with_given_advantages``). Validation is the bandit's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable
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
from cobalt.training.scoring import INFRA, SERVICE_ERRORS, Batch, Score

ROLLOUT_FAILURE = InfraError("a program could not be run during the rollout")


@dataclass(frozen=True)
class Judged:
    """A program's named scores, and its result on each test (VeRPO's; else none)."""

    score: Score
    passed_K: tuple[bool, ...]


class OnlineRewardManager(CobaltRewardManager):
    """See the module. Takes the settings of ``CobaltRewardManager``; the method's come with the job."""

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """As the bandit's; with ``advantage`` among the named scores."""
        if data.meta_info.get("validate", False):
            return super().__call__(data, return_dict)
        settings = OnlineSettings.from_environment()
        ends_B = response_lengths(data)
        items = self._items(data, ends_B)
        trajectories = _rows_by_trajectory(data, ends_B)

        async def judge_all(batch: Batch) -> list[list[Judged | Exception]]:
            return list(await asyncio.gather(*[judge([items[row] for row in rows], batch) for rows in trajectories]))

        async def judge(items: list[dict[str, Any]], batch: Batch) -> list[Judged | Exception]:
            return await self._judge(items, batch, with_tests=settings.method == "verpo")

        judged, work = asyncio.run(self._with_batch(judge_all, len(trajectories), validate=False))
        outcomes = _by_row(data, trajectories, judged)
        report_failures([outcome for outcome in outcomes.values() if isinstance(outcome, Exception)], len(outcomes))
        rewards = on_last_tokens(_rewards(outcomes, groups_of(data)), ends_B, data)
        if not return_dict:
            return rewards
        advantages = advantages_by_row(_played(trajectories, outcomes, groups_of(data)), settings)
        rows = range(len(data))
        named = {
            **named_scores([_score_of(outcomes.get(row)) for row in rows]),
            INFRA: [float(isinstance(outcomes.get(row), Exception)) for row in rows],
            ADVANTAGE: [advantages.get(row, 0.0) for row in rows],
            **shared_costs("reward", work, len(data)),
        }
        return {"reward_tensor": rewards, "reward_extra_info": named}

    async def _judge(self, items: list[dict[str, Any]], batch: Batch, with_tests: bool) -> list[Judged | Exception]:
        """The programs of one trajectory, in order. ``with_tests``: with their results on each test."""
        best: float = items[0]["extra_info"].get("prev_best_pass_rate") or 0.0
        judged: list[Judged | Exception] = []
        for item in items:
            item["extra_info"]["prev_best_pass_rate"] = best
            outcome = await self._score(item, batch)
            if not isinstance(outcome, Exception):
                best = max(best, outcome.get("pass_rate", 0.0))
                outcome = await _with_tests(outcome, item, batch) if with_tests else Judged(outcome, ())
            judged.append(outcome)
        return judged


async def _with_tests(score: Score, item: dict[str, Any], batch: Batch) -> Judged | Exception:
    """With the results on the tests: of a program that the reward function has had run this takes nothing more."""
    code = extract_code(item["solution_str"]) if item["extra_info"]["finished"] else None
    if code is None:
        return Judged(score, (False,) * len(TestCases.parse(item["ground_truth"])))
    try:
        return Judged(score, (await batch.execute(code, item["ground_truth"])).passing)
    except SERVICE_ERRORS as error:
        return error


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
    """What became of each row with a response; every row of a trajectory has failed if one has."""
    outcomes: dict[int, Judged | Exception] = {}
    for rows, of_rows in zip(trajectories, judged, strict=True):
        failures = [of_rows] if isinstance(of_rows, Exception) else [o for o in of_rows if isinstance(o, Exception)]
        if data.non_tensor_batch[ROLLOUT_FAILED][rows[0]]:
            failures.append(ROLLOUT_FAILURE)
        outcomes.update(zip(rows, [failures[0]] * len(rows) if failures else of_rows, strict=True))  # type: ignore[arg-type]
    return outcomes


def _score_of(outcome: Judged | Exception | None) -> Score | None:
    return outcome.score if isinstance(outcome, Judged) else None


def _rewards(outcomes: dict[int, Judged | Exception], groups_B: list[Hashable]) -> list[float]:
    """Of all rows, for dumps and metrics: a failed one gets its group's mean, one without a response 0."""
    scores = {row: _score_of(outcome) for row, outcome in outcomes.items()}
    totals = [score["score"] if score else None for score in scores.values()]
    rewards = dict(zip(scores, neutralise_groups(totals, [groups_B[row] for row in scores]), strict=True))
    return [rewards.get(row, 0.0) for row in range(len(groups_B))]


def _played(
    trajectories: list[list[int]], outcomes: dict[int, Judged | Exception], groups_B: list[Hashable]
) -> list[Played]:
    def program(outcome: Judged | Exception) -> Program | None:
        return Program(outcome.score["score"], outcome.passed_K) if isinstance(outcome, Judged) else None

    return [
        Played(groups_B[rows[0]], tuple(rows), tuple(program(outcomes[row]) for row in rows)) for rows in trajectories
    ]
