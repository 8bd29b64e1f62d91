"""The reward manager of online training, known to veRL as ``cobalt_online``.

Each program gets the reward that the bandit gives it in the same context: the best pass rate so far is that of its own
trajectory. From all programs of a group come the advantages, which the trainer takes as they are
(``rows.with_given_advantages``). Validation is the bandit's.

What the infrastructure failed is neutral, as in ``cobalt.training.unscored``, by trajectories instead of responses: one
with a failed program gets advantage 0 in all turns, and a group with fewer than half of its trajectories valid too.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from verl import DataProto

from cobalt.errors import InfraError
from cobalt.extraction import extract_code
from cobalt.rewards.online import discounted_sum, normalised, verpo_mt_advantages
from cobalt.sandbox import TestCases
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

        async def judge(rows: list[int], batch: Batch) -> list[Program]:
            if data.non_tensor_batch[ROLLOUT_FAILED][rows[0]]:
                raise InfraError("a program could not be run during the rollout")
            best: float = items[rows[0]]["extra_info"].get("prev_best_pass_rate") or 0.0
            programs = []
            for item in (items[row] for row in rows):
                item["extra_info"]["prev_best_pass_rate"] = best
                score = await self.score(item, batch)
                best = max(best, score.get("pass_rate", 0.0))
                programs.append(Program(score, await results_on_tests(item, batch) if method.method == "verpo" else ()))
            return programs

        judged_N, work = self.judged(judge, rows_N, validate=False)
        outcomes: dict[int, Score | Exception] = {}
        groups: dict[Any, list[int]] = defaultdict(list)  # indices of trajectories
        for index, (rows, judged) in enumerate(zip(rows_N, judged_N, strict=True)):
            groups[data.non_tensor_batch["uid"][rows[0]]].append(index)
            outcomes.update(
                (row, judged if isinstance(judged, Exception) else judged[t].score) for t, row in enumerate(rows)
            )
        advantages_B = [0.0] * len(data)
        for group in groups.values():
            programs_NT = [None if isinstance(judged := judged_N[index], Exception) else judged for index in group]
            for index, values_T in zip(group, group_advantages(programs_NT, method), strict=True):
                for row, value in zip(rows_N[index], values_T, strict=False):  # not those of turns that were not played
                    advantages_B[row] = float(value)
        return self.rewards(data, outcomes, work, return_dict, **{ADVANTAGE: advantages_B})


async def results_on_tests(item: dict[str, Any], batch: Batch) -> tuple[bool, ...]:
    """Whether a response's program passes each test. Free if the reward function ran it: its result is kept."""
    code = extract_code(item["solution_str"]) if item["extra_info"]["finished"] else None
    if code is None:
        return (False,) * len(TestCases.parse(item["ground_truth"]))
    return (await batch.execute(code, item["ground_truth"])).passing


def group_advantages(programs_NT: Sequence[Sequence[Program] | None], method: Method) -> np.ndarray:
    """(N, T) of the trajectories of one problem; None: the infrastructure failed one of its programs."""
    shape = len(programs_NT), method.turns
    if method.method == "grpo":
        scores_N: list[float | None] = []
        for programs in programs_NT:
            rewards_T = [program.score["score"] for program in programs or ()]
            is_sum = method.trajectory_score == "sum"
            score = discounted_sum(np.array(rewards_T), method.gamma) if is_sum else (rewards_T or [0.0])[-1]
            scores_N.append(None if programs is None else score)
        values_N = normalised(np.array(neutralise_groups(scores_N, [0] * len(scores_N))))
        return np.broadcast_to(values_N[:, None], shape)
    valid = [programs for programs in programs_NT if programs is not None]
    if len(valid) < MIN_VALID_SHARE * len(programs_NT):
        return np.zeros(shape)
    passed_NTK, mask_NT = np.zeros((*shape, len(valid[0][0].passed_K)), bool), np.zeros(shape, bool)
    for index, programs in enumerate(programs_NT):
        for turn, program in enumerate(programs or ()):
            passed_NTK[index, turn], mask_NT[index, turn] = program.passed_K, True
    return verpo_mt_advantages(passed_NTK, mask_NT, method.gamma, method.smoothing, method.outcome_weight)
