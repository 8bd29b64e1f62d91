"""Repair, compared on common contexts: how often a policy repairs what the reference had failed to solve. Pure.

In conversations of its own each policy has other failures to repair: the better one meets fewer, and harder ones. Here
policy and reference answer the same contexts: those of the reference's trajectories in which no program had passed
yet. The reference's answer is what it wrote there itself.
"""

from dataclasses import dataclass

import numpy as np

from cobalt.statistics import Estimate, mean_estimate
from studies.theory.measures import Measures


@dataclass(frozen=True)
class Repair:
    """At ``turn``, over the problems that have such a context; estimates are rewards, None: no problem."""

    turn: int
    problems: int
    contexts: int
    reference: Estimate | None
    policy: Estimate | None
    difference: Estimate | None
    """The second minus the first, paired by problem."""


def repairs(measures: Measures) -> list[Repair]:
    """One row for each turn but the first."""
    return [_repair(measures, turn) for turn in range(1, measures.turns)]


def _repair(measures: Measures, turn: int) -> Repair:
    """Contexts in which the policy's program could not be run are left out; problems count alike."""
    of_problems = [
        [
            (float(written_T[turn]), reward)
            for written_T, answered_T in zip(written, answered, strict=True)
            if not any(written_T[:turn]) and (reward := answered_T[turn]) is not None
        ]
        for written, answered in zip(measures.reference_solved, measures.step_rewards, strict=True)
    ]
    found = [pairs for pairs in of_problems if pairs]
    if not found:
        return Repair(turn, 0, 0, None, None, None)
    reference_P, policy_P = np.array([np.mean(pairs, axis=0) for pairs in found]).T
    columns = (reference_P, policy_P, policy_P - reference_P)
    reference, policy, difference = (mean_estimate(values_P.tolist()) for values_P in columns)
    return Repair(turn, len(found), sum(map(len, found)), reference, policy, difference)
