"""The reward manager of online training, known to veRL as ``cobalt_online``.

Each program gets the reward that the bandit gives it in the same context: the best pass rate so far is that of its own
trajectory. From all programs of a group come the advantages, which the trainer takes as they are
(``rows.with_given_advantages``). Validation is the bandit's.

What the infrastructure failed is neutral, as in ``cobalt.training.unscored``, by trajectories instead of responses: one
with a failed program gets advantage 0 in all turns, and a group with fewer than half of its trajectories valid too.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from verl import DataProto

from cobalt.errors import InfraError
from cobalt.extraction import extract_code
from cobalt.records import TestCases
from cobalt.rewards.online import discounted_sum, normalised, verpo_mt_advantages
from cobalt.training.execution import SERVICE_ERRORS
from cobalt.training.manager import CobaltRewardManager, response_lengths
from cobalt.training.online.rows import ADVANTAGE, ROLLOUT_FAILED, TRAJECTORY
from cobalt.training.online.settings import Method, OnlineSettings
from cobalt.training.scoring import Batch, Score
from cobalt.training.unscored import MIN_VALID_SHARE, neutralise_groups


@dataclass(frozen=True)
class Program:
    """A turn's program as it was judged."""

    score: Score
    passed_K: tuple[bool, ...]
    """Its result on each of the problem's tests; VeRPO's only."""


@dataclass(frozen=True)
class Played:
    """A trajectory: its problem's group, the rows of its turns in order, and their programs (None: one was lost)."""

    group: Hashable
    rows: Sequence[int]
    programs: Sequence[Program] | None


class OnlineRewardManager(CobaltRewardManager):
    """See the module. Takes the settings of ``CobaltRewardManager``; the method's come with the job."""

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """As the bandit's; with ``advantage`` among the named scores."""
        if data.meta_info.get("validate", False):
            return super().__call__(data, return_dict)
        method, items, ends_B = OnlineSettings.from_environment().method, self.items(data), response_lengths(data)
        rows_of_trajectory: dict[int, list[int]] = defaultdict(list)  # rows with a response, in the order of turns
        for row, number in enumerate(data.non_tensor_batch[TRAJECTORY]):
            if ends_B[row]:
                rows_of_trajectory[number].append(row)
        rows_N = [*rows_of_trajectory.values()]

        async def judge(rows: list[int], batch: Batch) -> list[Program] | Exception:
            if data.non_tensor_batch[ROLLOUT_FAILED][rows[0]]:
                return InfraError("a program could not be run during the rollout")
            best: float = items[rows[0]]["extra_info"].get("prev_best_pass_rate") or 0.0
            programs = []
            for item in (items[row] for row in rows):
                item["extra_info"]["prev_best_pass_rate"] = best
                score = await self.score(item, batch)
                if isinstance(score, Exception):
                    return score
                best = max(best, score.get("pass_rate", 0.0))
                passed_K = await test_results(item, batch) if method.method == "verpo" else ()
                if isinstance(passed_K, Exception):
                    return passed_K
                programs.append(Program(score, passed_K))
            return programs

        judged_N, work = self.judged(judge, rows_N, validate=False)
        groups_B = data.non_tensor_batch["uid"]
        outcomes: dict[int, Score | Exception] = {}
        trajectories = []
        for rows, judged in zip(rows_N, judged_N, strict=True):
            failed = isinstance(judged, Exception)
            outcomes |= (
                dict.fromkeys(rows, judged) if failed else {r: p.score for r, p in zip(rows, judged, strict=True)}
            )
            trajectories.append(Played(groups_B[rows[0]], rows, None if failed else judged))
        advantages = advantages_by_row(trajectories, method)
        columns = {ADVANTAGE: [advantages.get(row, 0.0) for row in range(len(data))]}
        return self.rewards(data, outcomes, work, return_dict, **columns)


async def test_results(item: dict[str, Any], batch: Batch) -> tuple[bool, ...] | Exception:
    """Whether a response's program passes each test. Free if the reward function ran it: its result is kept."""
    code = extract_code(item["solution_str"]) if item["extra_info"]["finished"] else None
    if code is None:
        return (False,) * len(TestCases.parse(item["ground_truth"]))
    try:
        return (await batch.execute(code, item["ground_truth"])).passing
    except SERVICE_ERRORS as error:
        return error


def advantages_by_row(trajectories: Sequence[Played], method: Method) -> dict[int, float]:
    """The advantage of every row of ``trajectories``."""
    groups: dict[Hashable, list[Played]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.group].append(trajectory)
    advantages: dict[int, float] = {}
    for group in groups.values():
        values_NT = verpo(group, method) if method.method == "verpo" else grpo(group, method)
        for trajectory, values_T in zip(group, values_NT, strict=True):
            advantages.update(zip(trajectory.rows, map(float, values_T), strict=False))  # not those of turns not played
    return advantages


def grpo(group: Sequence[Played], method: Method) -> np.ndarray:
    """(N, T): the trajectory's score, normalised over the group, in every turn."""
    scores_N: list[float | None] = []
    for played in group:
        rewards_T = [program.score["score"] for program in played.programs or ()]
        if not rewards_T:
            scores_N.append(None)
        elif method.trajectory_score == "final":
            scores_N.append(rewards_T[-1])
        else:
            scores_N.append(discounted_sum(np.array(rewards_T), method.gamma))
    advantages_N = normalised(np.array(neutralise_groups(scores_N, [0] * len(group))))
    return np.repeat(advantages_N[:, None], method.turns, axis=1)


def verpo(group: Sequence[Played], method: Method) -> np.ndarray:
    """(N, T): from the results of all programs on all tests."""
    valid = [played.programs for played in group if played.programs]
    if len(valid) < MIN_VALID_SHARE * len(group):
        return np.zeros((len(group), method.turns))
    passed_NTK = np.zeros((len(group), method.turns, len(valid[0][0].passed_K)), bool)
    mask_NT = np.zeros((len(group), method.turns), bool)
    for index, played in enumerate(group):
        for turn, program in enumerate(played.programs or ()):
            passed_NTK[index, turn], mask_NT[index, turn] = program.passed_K, True
    return verpo_mt_advantages(passed_NTK, mask_NT, method.gamma, method.smoothing, method.outcome_weight)
