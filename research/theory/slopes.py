"""How the gap grows with the distance to the reference and with the turns (research/theory/README.md). Pure.

Trainings of one kind, which differ in their seed, each measured after the same numbers of steps. Shapes: P problems,
T turns, S seeds, K numbers of steps, M resamples.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cobalt.records import id_key
from cobalt.statistics import Estimate, interval_of_resamples, resample
from research.theory.bound import SIDES, Measures

POLICY = re.compile(r"(?P<arm>.+)-(?P<seed>\d+)-step-(?P<step>\d+)")
"""The name of a policy along a training."""
EXPONENTS = np.linspace(0, 4, 401)
"""That are tried."""
SMALLEST = 1e-12
"""Of distances: a policy may be the reference."""


@dataclass(frozen=True)
class Trainings:
    """On the problems that all their policies and the reference have in common."""

    arm: str
    steps: tuple[int, ...]
    """Those after which every training was measured."""
    own_PSKT: np.ndarray
    """Rewards in the policy's own conversations, as in ``Measures``."""
    step_PSKT: np.ndarray
    """In the reference's contexts; at turn 0 these are the same, so the term is that of ``own``."""
    chance_PT: np.ndarray
    """own - step of the reference itself. Its mean is 0, and policies draw with the same random numbers."""
    kl_PSK: np.ndarray
    """With two axes more, side and turn."""
    failing_PSK: np.ndarray
    """Mean reward in the reference's contexts of failed programs alone; NaN: the problem has none."""

    @property
    def gap_PSKT(self) -> np.ndarray:
        """own - step, freed from what chance gives the reference."""
        return self.own_PSKT - self.step_PSKT - self.chance_PT[:, None, None]


def trainings_of(policies: Sequence[Measures], reference: Measures) -> list[Trainings]:
    """Of the policies whose names tell a seed and a step."""
    found: dict[str, dict[int, dict[int, Measures]]] = {}
    for policy in policies:
        if match := POLICY.fullmatch(policy.name):
            found.setdefault(match["arm"], {}).setdefault(int(match["step"]), {})[int(match["seed"])] = policy
    trainings = []
    for arm, by_step in found.items():
        seeds = sorted({seed for by_seed in by_step.values() for seed in by_seed})
        steps = tuple(step for step in sorted(by_step) if len(by_step[step]) == len(seeds))
        if not steps:
            continue
        policies_SK = [[by_step[step][seed] for step in steps] for seed in seeds]
        ids = [_ids(policy) for policy in (reference, *(policy for policies_K in policies_SK for policy in policies_K))]
        shared = [id_ for id_ in ids[0] if all(id_ in others for others in ids)]
        parts_SK = [[_parts(policy, shared) for policy in policies_K] for policies_K in policies_SK]
        own_PSKT, step_PSKT, kl_PSK, failing_PSK = (
            np.moveaxis(np.array([[parts[number] for parts in parts_K] for parts_K in parts_SK]), 2, 0)
            for number in range(4)
        )
        own_PT, step_PT, *_ = _parts(reference, shared)
        trainings.append(Trainings(arm, steps, own_PSKT, step_PSKT, own_PT - step_PT, kl_PSK, failing_PSK))
    return trainings


def _ids(policy: Measures) -> dict[str, int]:
    """Of the problems, with their places."""
    return {id_key(row["id"]): place for place, row in enumerate(policy.counts)}


def _parts(policy: Measures, ids: Sequence[str]) -> list[np.ndarray]:
    """Of these problems: ``own``, ``step``, ``kl`` and ``failing`` of ``Trainings``, [P, ...]."""
    places = _ids(policy)
    chosen = [places[id_] for id_ in ids]
    step_PT = np.hstack([policy.own_PT[:, :1], policy.step_PT[:, 1:]])
    kl_P = np.stack([policy.kl_PT[side] for side in SIDES], axis=1)
    return [values[chosen] for values in (policy.own_PT, step_PT, kl_P, failing_P(policy))]


def failing_P(policy: Measures) -> np.ndarray:
    """Mean reward in all contexts, of any turn, that the reference has written and that hold failed programs alone."""
    means = []
    for written_NT, answered_NT in zip(policy.reference_solved, policy.step_rewards, strict=True):
        rewards = [
            reward
            for written_T, answered_T in zip(written_NT, answered_NT, strict=True)
            for turn, reward in enumerate(answered_T)
            if turn > 0 and not any(written_T[:turn]) and reward is not None
        ]
        means.append(np.mean(rewards) if rewards else np.nan)
    return np.array(means)


def power_law(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exponent b and factor a of the curve a x^b that fits y best by weighted least squares, along the last axis.

    y may be negative, as noise makes small values: its logarithm is never taken.
    """
    powers_B = np.exp(EXPONENTS[:, None] * np.log(np.maximum(x, SMALLEST))[..., None, :])
    along_B = (powers_B * (weights * y)[..., None, :]).sum(-1)
    size_B = (powers_B**2 * weights[..., None, :]).sum(-1)
    best = np.argmax(along_B**2 / size_B, axis=-1)  # a is along / size, which takes this much off the squares
    return EXPONENTS[best], np.take_along_axis(along_B / size_B, best[..., None], -1)[..., 0]


@dataclass(frozen=True)
class Slope:
    """The exponent of the gap in the distance η or in T - 1, and the factor before it: the gap per turn at η = 1, or
    that of conversations of two turns."""

    exponent: Estimate
    factor: Estimate

    def reading(self, candidates: Sequence[float]) -> str:
        """Which of the candidates the interval holds; none where even the gap's sign is open."""
        low, high = self.exponent.low, self.exponent.high
        if low is None or high is None or self.factor.low is None or self.factor.high is None:
            return "no interval"
        if self.factor.low <= 0 <= self.factor.high:
            return "no exponent: the sign of the gap is open"
        held = [f"{candidate:g}" for candidate in candidates if low <= candidate <= high]
        return " or ".join(held) if held else "none of " + ", ".join(f"{candidate:g}" for candidate in candidates)


@dataclass(frozen=True)
class Slopes:
    """Intervals are over problems and seeds."""

    eta_K: Sequence[Estimate]
    """The mean over seeds."""
    in_eta: Slope | None
    """Over all numbers of steps; None if there is one."""
    in_eta_without_last: Slope | None
    """Without the last number of steps; None if there are fewer than three."""
    in_turns_K: Sequence[Slope | None]
    """None with fewer than three turns."""


def slopes_of(trainings: Trainings) -> Slopes:
    """A resample draws problems for all policies at once, and seeds beside them."""
    problems, seeds, steps, turns = trainings.own_PSKT.shape
    gap, kl = trainings.gap_PSKT.reshape(problems, -1), trainings.kl_PSK.reshape(problems, -1)

    def statistic(problems_MP: np.ndarray, seeds_MS: np.ndarray | None = None, axis: int = -1) -> np.ndarray:
        """A row for each number of ``Slopes``."""
        times_MP = np.array([np.bincount(drawn, minlength=problems) for drawn in problems_MP]) / problems
        gap_MSKT = (times_MP @ gap).reshape(-1, seeds, steps, turns)
        eta_MSK = (times_MP @ kl).reshape(-1, seeds, steps, len(SIDES) * turns).max(-1)
        if seeds_MS is not None:
            gap_MSKT = np.take_along_axis(gap_MSKT, seeds_MS[:, :, None, None], 1)
            eta_MSK = np.take_along_axis(eta_MSK, seeds_MS[:, :, None], 1)
        rows = [*eta_MSK.mean(1).T]
        for shown in ([steps] if steps > 1 else []) + ([steps - 1] if steps > 2 else []):
            x, y = (value_MSK[:, :, :shown].reshape(len(times_MP), -1) for value_MSK in (eta_MSK, gap_MSKT.mean(-1)))
            # What differs by chance is as much as differs at all, which grows as the root of eta.
            rows += power_law(x, y, np.maximum(x, SMALLEST) ** -0.5)
        if turns > 2:
            later = np.arange(1.0, turns)
            for so_far_MT in np.cumsum(gap_MSKT.mean(1), axis=-1)[:, :, 1:].swapaxes(0, 1):
                rows += power_law(later, so_far_MT, 1 / later)
        return np.array(rows)

    indices = [np.arange(problems), *([np.arange(seeds)] if seeds > 1 else [])]
    values = statistic(np.arange(problems)[None], np.arange(seeds)[None])[:, 0].tolist()
    rows_M = resample(indices, statistic, seed=0) if problems > 1 else [None] * len(values)
    found = iter(
        Estimate(value, *((None, None) if row_M is None else interval_of_resamples(row_M)))
        for value, row_M in zip(values, rows_M, strict=True)
    )
    return Slopes(
        eta_K=[next(found) for _ in range(steps)],
        in_eta=Slope(next(found), next(found)) if steps > 1 else None,
        in_eta_without_last=Slope(next(found), next(found)) if steps > 2 else None,
        in_turns_K=[Slope(next(found), next(found)) if turns > 2 else None for _ in range(steps)],
    )
