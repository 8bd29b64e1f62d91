"""From the rewards and test results of a batch's programs to advantages. Pure.

What the infrastructure failed is neutral, as in ``cobalt.training.neutral``, by trajectories instead of responses: one
with a failed program gets advantage 0 in all turns, and a group with fewer than half of its trajectories valid too.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from cobalt.rewards.online import discounted_sum, grpo_mt_advantages, verpo_mt_advantages
from cobalt.training.neutral import MIN_VALID_SHARE, neutralise_groups
from cobalt.training.online.settings import Method


@dataclass(frozen=True)
class Program:
    """A turn's program as it was judged."""

    reward: float
    """Its training reward."""
    passed_K: tuple[bool, ...]
    """Its result on each of the problem's tests."""


@dataclass(frozen=True)
class Played:
    """A trajectory: its problem's group, the rows of its turns in order, and their programs (None: no verdict)."""

    group: Hashable
    rows: tuple[int, ...]
    programs: tuple[Program | None, ...]

    @property
    def judged(self) -> list[Program] | None:
        """All programs; None if any has no verdict."""
        judged = [program for program in self.programs if program is not None]
        return judged if len(judged) == len(self.programs) else None


def advantages_by_row(trajectories: Sequence[Played], method: Method) -> dict[int, float]:
    """The advantage of every row of ``trajectories``."""
    give = _grpo if method.method == "grpo" else _verpo
    groups: dict[Hashable, list[Played]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.group].append(trajectory)
    advantages: dict[int, float] = {}
    for group in groups.values():
        for trajectory, values in zip(group, give(group, method), strict=True):
            advantages.update(zip(trajectory.rows, map(float, values), strict=False))  # values of turns not played
    return advantages


def _grpo(group: Sequence[Played], method: Method) -> np.ndarray:
    """(N, T)"""
    scores_N = [None if played.judged is None else _score(played.judged, method) for played in group]
    advantages_N = grpo_mt_advantages(np.array(neutralise_groups(scores_N, [0] * len(group))))
    return np.repeat(advantages_N[:, None], method.turns, axis=1)


def _score(programs: Sequence[Program], method: Method) -> float:
    if method.trajectory_score == "final":
        return programs[-1].reward
    return discounted_sum(np.array([program.reward for program in programs]), method.gamma)


def _verpo(group: Sequence[Played], method: Method) -> np.ndarray:
    """(N, T)"""
    judged_N = [played.judged for played in group]
    valid = [programs for programs in judged_N if programs is not None]
    if len(valid) < MIN_VALID_SHARE * len(group):
        return np.zeros((len(group), method.turns))
    passed_NTK = np.zeros((len(group), method.turns, len(valid[0][0].passed_K)), bool)
    mask_NT = np.zeros((len(group), method.turns), bool)
    for index, programs in enumerate(judged_N):
        for turn, program in enumerate(programs or []):
            passed_NTK[index, turn], mask_NT[index, turn] = program.passed_K, True
    return verpo_mt_advantages(passed_NTK, mask_NT, method.gamma, method.smoothing, method.outcome_weight)
