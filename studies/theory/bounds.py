"""The gap between the two objectives and what bounds it, as derived in docs/theory.md. Pure.

Everything is divided by T: rewards per turn in [0, 1]. Shapes: P problems, T turns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cobalt.statistics import Estimate, mean_estimate
from studies.theory.contexts import OWN, REFERENCE, SIDES
from studies.theory.failure_cost import continuations
from studies.theory.measures import Measures


@dataclass(frozen=True)
class Bounds:
    """One policy. All but ``radius``, ``constant`` and ``costs_T`` are rewards per turn."""

    multi_turn: Estimate
    """J/T."""
    stepwise: Estimate
    """J_step/T; the term of turn 0 is J's, for the contexts are the same."""
    gap: Estimate
    """(J − J_step)/T, paired by problem."""
    radius: float
    """η: the largest mean KL of a turn, over turns and sides."""
    scale: float
    """√η, which is T√η divided by T."""
    constant: Estimate | None
    """(J − J_step)/(T√η): what the constant of the bound would have to be; None at η = 0."""
    shift: Estimate
    """The bound that adds up total variations of earlier turns; it needs no bound on what a failure costs."""
    linear: Estimate
    """The bound that is linear in T where costs are bounded, with the measured costs of a failed program."""
    paper: float
    """(2 + C)·√(η/2), the form O(T√η), with the largest of these costs for C."""
    costs_T: Sequence[float]
    """C_k for k < T − 1: rewards that the reference loses in later turns by failing at turn k."""


def bounds_of(measures: Measures) -> Bounds:
    """See ``Bounds``."""
    turns = measures.turns
    step_PT = np.hstack([measures.own_PT[:, :1], measures.step_PT[:, 1:]])
    gap = _mean((measures.own_PT - step_PT).mean(axis=1))
    eta = radius([measures.kl_PT[side].mean(axis=0) for side in SIDES])
    costs_T = _costs(measures)
    return Bounds(
        multi_turn=_mean(measures.own_PT.mean(axis=1)),
        stepwise=_mean(step_PT.mean(axis=1)),
        gap=gap,
        radius=eta,
        scale=math.sqrt(eta),
        constant=_scaled(gap, 1 / math.sqrt(eta)) if eta > 0 else None,
        shift=_mean(measures.tv_PT[REFERENCE] @ shift_weights(turns) / turns),
        linear=_mean(linear_terms(measures.tv_PT[REFERENCE], measures.tv_PT[OWN], costs_T) / turns),
        paper=(2 + max(costs_T, default=0.0)) * math.sqrt(eta / 2),
        costs_T=costs_T,
    )


def radius(kl_by_side_T: Sequence[np.ndarray]) -> float:
    """η of the mean KL per turn, by side."""
    return max(0.0, *(float(kl_T.max()) for kl_T in kl_by_side_T))


def shift_weights(turns: int) -> np.ndarray:
    """How many later turns the total variation of each turn reaches: T − 1 − k."""
    return np.arange(turns - 1, -1, -1, dtype=float)


def linear_terms(reference_tv_PT: np.ndarray, own_tv_PT: np.ndarray, costs_T: Sequence[float]) -> np.ndarray:
    """Per problem: what may be lost at once at turns 1, 2, …, and C_k·TV later on."""
    at_once_P = (reference_tv_PT + own_tv_PT)[:, 1:].sum(axis=1)
    return at_once_P + own_tv_PT[:, : len(costs_T)] @ np.array(costs_T)


def _costs(measures: Measures) -> list[float]:
    """C_k in the reference's trajectories; 0 where failing costs nothing, or no problem shows it."""
    rows = continuations(measures.reference_solved)
    return [0.0 if row.cost is None else max(0.0, row.cost.value * row.turns_left) for row in rows]


def _mean(values_P: np.ndarray) -> Estimate:
    return mean_estimate(values_P.tolist())


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    low, high = (None if bound is None else factor * bound for bound in (estimate.low, estimate.high))
    return Estimate(factor * estimate.value, low, high)
