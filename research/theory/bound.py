"""The records of ``theory measure`` and what follows from them (research/theory/README.md). Pure but for reading.

In this order: the measures of a policy; the gap between the two objectives and its bounds; what a failed program costs
later; repair on common contexts. A reward is 1 if a program passes all hidden tests, else 0. Shapes: P problems, N
trajectories of a problem, T turns. A *side* says whose conversation a context is from: the reference's or the policy's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from cobalt.errors import InputError
from cobalt.records import read_jsonl
from cobalt.records.jsonl import Record
from cobalt.statistics import Estimate, mean_estimate

REFERENCE, OWN = "reference", "own"
SIDES = (REFERENCE, OWN)
RATES = ("own_pass_rates", "reference_pass_rates", "step_pass_rates")
"""Fields that hold pass rates, ``[trajectory][turn]``."""
DISTANCES = ("kl", "log_ratio", "tv")
"""Fields that hold such a table for each side. ``theory measure`` writes no ``tv``: it follows from the log-ratio."""

Table = Sequence[Sequence[float | None]]
"""``[trajectory][turn]``; None: an infrastructure failure."""
Solved = list[list[bool]]


def total_variation(log_ratio: float) -> float:
    """What one response of π adds to the mean that is TV(π, π_ref): max(0, 1 − π_ref/π), in [0, 1].

    >>> total_variation(-3.0), round(total_variation(math.log(2)), 3)
    (0.0, 0.5)
    """
    return -math.expm1(-log_ratio) if log_ratio > 0 else 0.0


@dataclass(frozen=True)
class Measures:
    """One policy against its reference; arrays [P, T] are means over samples within each problem."""

    name: str
    counts: Sequence[Record]
    """By problem, all that the rest follows from; a file of these rows gives the same measures."""
    own_PT: np.ndarray
    """Rewards at each turn of the policy's own play."""
    step_PT: np.ndarray
    """Rewards of single completions on the reference's contexts."""
    kl_PT: Mapping[str, np.ndarray]
    """By side, as ``log_ratio_PT`` and ``tv_PT``."""
    log_ratio_PT: Mapping[str, np.ndarray]
    tv_PT: Mapping[str, np.ndarray]
    own_solved: Sequence[Solved]
    """By problem, whether each program passes all hidden tests."""
    reference_solved: Sequence[Solved]
    step_rewards: Sequence[Table]
    """Of single completions on the contexts of ``reference_solved``."""

    @property
    def turns(self) -> int:
        return self.own_PT.shape[1]

    @property
    def problems(self) -> int:
        return self.own_PT.shape[0]


def counted(row: Record) -> Record:
    """What the report takes from a record: which programs pass all hidden tests, and each turn's mean distances.

    Means have four digits. What this returns it returns again.
    """
    tv = row.get("tv") or {
        side: [[total_variation(value) for value in values] for values in row["log_ratio"][side]] for side in SIDES
    }
    kept: Record = {"id": row["id"]}
    for name in RATES:
        kept[name] = [[None if rate is None else int(rate == 1) for rate in rates_T] for rates_T in row[name]]
    for name, tables in zip(DISTANCES, (row["kl"], row["log_ratio"], tv), strict=True):
        means = {side: [fmean(of_N) for of_N in zip(*tables[side], strict=True)] for side in SIDES}
        kept[name] = {side: [[float(f"{value:.4g}") for value in means_T]] for side, means_T in means.items()}
    return kept


def read_measures(path: Path) -> Measures:
    """Of records of ``theory measure``, or of a report's counts. Raises ``InputError``.

    A problem with a turn at which no program could be run is left out.
    """

    def checked(row: Record) -> Record:
        try:
            turns = len(row["own_pass_rates"][0])
            tables = {name: row[name] for name in RATES}
            tables |= {f"{name}.{side}": row[name][side] for name in DISTANCES if name in row for side in SIDES}
            wrong = [name for name, table in tables.items() if not table or any(len(of) != turns for of in table)]
        except (IndexError, KeyError, TypeError):
            raise ValueError("is no record of 'python -m research theory measure'") from None
        if wrong:
            raise ValueError(f"field '{wrong[0]}' needs rows of {turns} turns")
        return row

    rows = [
        counted(row)
        for row in read_jsonl(path, ("id", *RATES, "kl", "log_ratio"), parse=checked)
        if all(any(rate is not None for rate in rates_N) for rates_N in zip(*row["step_pass_rates"], strict=True))
    ]
    if not rows:
        raise InputError.at(path, None, "no problem has a reward at every turn")

    def means(tables: Sequence[Table]) -> np.ndarray:
        """[P, T] over the samples that have a value."""
        columns = [[[v for v in of_N if v is not None] for of_N in zip(*table, strict=True)] for table in tables]
        return np.array([[sum(known) / len(known) for known in of_problem] for of_problem in columns])

    own_solved, reference_solved, step_rewards = ([row[field] for row in rows] for field in RATES)
    kl_PT, log_ratio_PT, tv_PT = (
        {side: means([row[field][side] for row in rows]) for side in SIDES} for field in DISTANCES
    )
    return Measures(
        name=path.name.partition(".jsonl")[0],
        counts=rows,
        own_PT=means(own_solved),
        step_PT=means(step_rewards),
        kl_PT=kl_PT,
        log_ratio_PT=log_ratio_PT,
        tv_PT=tv_PT,
        own_solved=own_solved,
        reference_solved=reference_solved,
        step_rewards=step_rewards,
    )


def over_problems(values_P: np.ndarray) -> Estimate:
    """Mean with its interval."""
    return mean_estimate(values_P.tolist())


@dataclass(frozen=True)
class Compared:
    """Two means over problems and their difference, paired by problem; None: no problem."""

    first: Estimate | None = None
    second: Estimate | None = None
    difference: Estimate | None = None


def compared(pairs_P: Sequence[Any]) -> Compared:
    """Of a pair of values for each problem."""
    if not pairs_P:
        return Compared()
    first_P, second_P = np.array(pairs_P).T
    return Compared(*map(over_problems, (first_P, second_P, first_P - second_P)))


@dataclass(frozen=True)
class Bounds:
    """The gap of one policy and what bounds it. Divided by T: rewards per turn, but for the next three fields."""

    radius: float
    """η: the largest mean KL of a turn, over turns and sides, in nats."""
    constant: Estimate | None
    """(J − J_step)/(T√η): what the constant of the bound would have to be; None at η = 0."""
    costs_T: Sequence[float]
    """C_k for k < T − 1: rewards that the reference loses in later turns by failing at turn k."""
    multi_turn: Estimate
    """J/T."""
    stepwise: Estimate
    """J_step/T; the term of turn 0 is J's, for the contexts are the same."""
    gap: Estimate
    """(J − J_step)/T, paired by problem."""
    shift: Estimate
    """The bound that adds up total variations of earlier turns; it needs no bound on what a failure costs."""
    linear: Estimate
    """The bound that is linear in T where costs are bounded, with the measured costs of a failed program."""
    paper: float
    """(2 + C)·√(η/2), the form O(T√η), with the largest of these costs for C."""


def bounds_of(measures: Measures) -> Bounds:
    turns = measures.turns
    step_PT = np.hstack([measures.own_PT[:, :1], measures.step_PT[:, 1:]])
    gap = over_problems((measures.own_PT - step_PT).mean(axis=1))
    eta = radius([measures.kl_PT[side].mean(axis=0) for side in SIDES])
    constant = None
    if eta > 0:
        factor = 1 / math.sqrt(eta)
        low, high = (None if end is None else factor * end for end in (gap.low, gap.high))
        constant = Estimate(factor * gap.value, low, high)
    # In the reference's trajectories; 0 if failing costs nothing, or if no problem shows it.
    costs = [(row.mean.difference, row.turns_left) for row in continuations(measures.reference_solved)]
    costs_T = [0.0 if cost is None else max(0.0, cost.value * left) for cost, left in costs]
    return Bounds(
        radius=eta,
        constant=constant,
        costs_T=costs_T,
        multi_turn=over_problems(measures.own_PT.mean(axis=1)),
        stepwise=over_problems(step_PT.mean(axis=1)),
        gap=gap,
        shift=over_problems(measures.tv_PT[REFERENCE] @ shift_weights(turns) / turns),
        linear=over_problems(linear_terms(measures.tv_PT[REFERENCE], measures.tv_PT[OWN], costs_T) / turns),
        paper=(2 + max(costs_T, default=0.0)) * math.sqrt(eta / 2),
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


@dataclass(frozen=True)
class Continuation:
    """After turn k = ``turn``, with ``turns_left`` turns to go: rewards per turn after a pass and after a failure.

    ``best``: of the best of m trajectories, m the size of the smaller group, so that none is the better for being
    larger. One-step recoverability, which is about the optimal policy, is another thing (research/theory/README.md).
    """

    turn: int
    turns_left: int
    problems: int
    mean: Compared
    best: Compared


def continuations(solved: Sequence[Solved]) -> list[Continuation]:
    """What a failed program costs in later turns: a row for each turn but the last.

    Of a problem's trajectories in which nothing has passed before turn k, those whose program of turn k passed are
    compared with those whose program failed, by their mean reward over the turns after k. Problems that have both
    count. At turn 0 both kinds come from one context; later their histories differ, though all of them hold k failures.
    """
    rows = []
    turns = len(solved[0][0])
    for turn in range(turns - 1):
        means, bests = [], []
        for solved_NT in solved:
            after: dict[bool, list[float]] = {True: [], False: []}
            for solved_T in solved_NT:
                if not any(solved_T[:turn]):
                    after[solved_T[turn]].append(float(np.mean(solved_T[turn + 1 :])))
            if size := min(map(len, after.values())):
                means.append([np.mean(values) for values in after.values()])
                bests.append([expected_best(values, size) for values in after.values()])
        rows.append(Continuation(turn, turns - 1 - turn, len(means), compared(means), compared(bests)))
    return rows


def expected_best(values: Sequence[float], size: int) -> float:
    """Mean of the largest of ``size`` values that are drawn without replacement.

    >>> expected_best([0.0, 0.0, 1.0], 2)  # two of the three pairs hold the 1
    0.6666666666666666
    """
    weighted = (value * comb(smaller, size - 1) for smaller, value in enumerate(sorted(values)))  # comb is 0 below
    return sum(weighted) / comb(len(values), size)


@dataclass(frozen=True)
class Repair:
    """At ``turn``, over the problems that have such a context: rewards of the policy and of the reference."""

    turn: int
    problems: int
    contexts: int
    rewards: Compared


def repairs(measures: Measures) -> list[Repair]:
    """How often a policy repairs what the reference had failed to solve: a row for each turn but the first.

    In conversations of its own the better policy meets fewer failures, and harder ones. Here both answer the same
    contexts: those of the reference's trajectories in which no program had passed yet. The reference's answer is what
    it wrote there itself. Contexts in which the policy's program could not be run are left out; problems count alike.
    """
    rows = []
    for turn in range(1, measures.turns):
        of_problems = [
            [
                (reward, float(written_T[turn]))
                for written_T, answered_T in zip(written, answered, strict=True)
                if not any(written_T[:turn]) and (reward := answered_T[turn]) is not None
            ]
            for written, answered in zip(measures.reference_solved, measures.step_rewards, strict=True)
        ]
        found = [pairs for pairs in of_problems if pairs]
        means = compared([np.mean(pairs, axis=0) for pairs in found])
        rows.append(Repair(turn, len(found), sum(map(len, found)), means))
    return rows
