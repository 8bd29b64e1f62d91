"""Online multi-turn training (GRPO-MT, VeRPO-MT): how programs are scored in their trajectories, and become advantages.

``agent_loops`` plays the trajectories.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from cobalt.errors import InfraError
from cobalt.extraction import extract_code
from cobalt.rewards.online import (
    against_all,
    against_others,
    density_weights,
    discounted_sum,
    normalised,
    verpo_mt_advantages,
    weights_of_tests,
)
from cobalt.sandbox import TestCases
from cobalt.training.batch_scores import MIN_VALID_SHARE, neutralise_groups
from cobalt.training.responses import ResponseScorer, follows
from cobalt.training.scoring import Batch, Score
from cobalt.training.settings import Method

ROLLOUT_FAILED = "rollout_failed"
"""Column: whether the infrastructure ended the row's trajectory."""
OVERLONG = "rollout_overlong"
"""Column, and a cost: whether the row's trajectory ended because its next prompt would have been too long."""


def shares_of_updates(trajectories: Sequence[Sequence[int]], updates: int) -> list[list[int]]:
    """The rows of each optimizer update: neighbouring trajectories, whole, and about equally many rows.

    Every update gets a trajectory. With fewer trajectories than ``updates`` there are fewer updates.

    >>> shares_of_updates([[0, 1, 2], [3], [4, 5], [6], [7, 8, 9]], 2)
    [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    """
    ends_N, updates = np.cumsum([len(rows) for rows in trajectories]), min(updates, len(trajectories))
    cuts = [0]
    for number in range(1, updates):
        allowed_N = np.arange(cuts[-1] + 1, len(trajectories) - (updates - number) + 1)
        distances_N = np.abs(ends_N[allowed_N - 1] - ends_N[-1] * number / updates)
        cuts.append(int(allowed_N[distances_N.argmin()]))
    parts = [trajectories[start:end] for start, end in pairwise([*cuts, len(trajectories)])]
    return [[row for rows in part for row in rows] for part in parts]


@dataclass(frozen=True)
class Program:
    """A turn's program as it was judged."""

    score: Score
    passed_K: tuple[bool, ...]
    """Its result on each of the problem's tests; VeRPO's only."""


class TrajectoryScorer(ResponseScorer):
    """``ResponseScorer`` for online training.

    Each program gets the reward that the bandit gives it in the same context: the best pass rate so far is that of its
    own trajectory. From all programs of a group come the advantages, which the trainer takes as they are.

    What the infrastructure failed is neutral, by trajectories: one with a failed program gets advantage 0 in all turns,
    and a group with fewer than half of its trajectories valid too.
    """

    def __init__(self, method: Method, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.method = method

    async def programs(self, items: Sequence[dict[str, Any]], rollout_failed: bool, batch: Batch) -> list[Program]:
        """The programs of a trajectory, judged. ``items``: of its turns. Raises one of ``service_errors``."""
        if rollout_failed:
            raise InfraError("a program could not be run during the rollout")
        best: float = items[0]["extra_info"].get("prev_best_pass_rate") or 0.0
        programs: list[Program] = []
        earlier: str | None = None
        for turn, item in enumerate(items):
            info = item["extra_info"]
            info["prev_best_pass_rate"] = best
            program = extract_code(item["solution_str"], info["extraction"])
            score = await self.score(item, batch) | follows(item, program, turn, earlier)
            earlier = program
            best = max(best, score.get("pass_rate", 0.0))
            passed_K: tuple[bool, ...] = ()
            if self.method.method == "verpo":
                code = program if info["finished"] else None
                passed_K = (False,) * len(TestCases.parse(item["ground_truth"]))
                if code is not None:  # free if the reward function ran it: its result is kept
                    passed_K = (await batch.execute(code, item["ground_truth"])).passing
            programs.append(Program(score, passed_K))
        return programs


def turn_advantages(
    rows_N: Sequence[Sequence[int]],
    problems_N: Sequence[Any],
    programs_N: Sequence[Sequence[Program] | None],
    method: Method,
) -> dict[int, float]:
    """The advantage of each row. ``rows_N``: of a trajectory, turn by turn; ``programs_N``: None if not judged."""
    groups: dict[Any, list[int]] = defaultdict(list)  # indices of trajectories
    for index, problem in enumerate(problems_N):
        groups[problem].append(index)
    advantages: dict[int, float] = {}
    for group in groups.values():
        values_NT = group_advantages([programs_N[index] for index in group], method)
        for index, values_T in zip(group, values_NT, strict=True):  # values, also of turns that were not played
            advantages |= {row: float(value) for row, value in zip(rows_N[index], values_T, strict=False)}
    return advantages


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
    baselines = {"normalised": normalised, "others": against_others, "all_turns": against_all}
    weights = {"failures": partial(weights_of_tests, smoothing=method.smoothing), "density": density_weights}
    return verpo_mt_advantages(
        passed_NTK,
        mask_NT,
        method.gamma,
        method.outcome_weight,
        baselines[method.turn_baseline],
        weights[method.test_weights],
        method.turn_baseline == "all_turns",
        method.outcome_decay,
    )
