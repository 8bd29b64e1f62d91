"""Multi-turn play that can be enumerated: an action per turn, all actions so far as the context."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

Context = tuple[int, ...]
Policy = Mapping[Context, np.ndarray]
"""Probabilities of the actions in each context."""

ACTIONS = 3


def contexts(turn: int) -> Iterator[Context]:
    return product(range(ACTIONS), repeat=turn)


def all_contexts(turns: int) -> list[Context]:
    return [context for turn in range(turns) for context in contexts(turn)]


@dataclass(frozen=True)
class Toy:
    """``rewards[context][action]`` in {0, 1}; policies π and μ, the reference."""

    turns: int
    rewards: Mapping[Context, np.ndarray]
    policy: Policy
    reference: Policy

    def visits(self, policy: Policy, turn: int) -> dict[Context, float]:
        """D_t of a policy."""
        found = {(): 1.0}
        for _ in range(turn):
            found = {
                (*context, action): weight * policy[context][action]
                for context, weight in found.items()
                for action in range(ACTIONS)
            }
        return found

    def objective(self, visitor: Policy, actor: Policy) -> np.ndarray:
        """Per turn, the mean reward of ``actor`` in the contexts of ``visitor``: J with equal policies, else J_step."""
        return np.array(
            [
                sum(w * actor[context] @ self.rewards[context] for context, w in self.visits(visitor, turn).items())
                for turn in range(self.turns)
            ]
        )

    def kl_T(self, visitor: Policy) -> np.ndarray:
        return self._mean_T(visitor, lambda p, q: p @ np.log(p / q))

    def tv_T(self, visitor: Policy) -> np.ndarray:
        return self._mean_T(visitor, lambda p, q: np.abs(p - q).sum() / 2)

    def _mean_T(self, visitor: Policy, distance) -> np.ndarray:
        return np.array(
            [
                sum(w * distance(self.policy[c], self.reference[c]) for c, w in self.visits(visitor, turn).items())
                for turn in range(self.turns)
            ]
        )

    def value(self, context: Context) -> float:
        """The reference's return from here on."""
        if len(context) == self.turns:
            return 0.0
        after = np.array([self.value((*context, action)) for action in range(ACTIONS)])
        return float(self.reference[context] @ (self.rewards[context] + after))

    def costs_T(self) -> list[float]:
        """C_k: the most that one action of turn k can change of the reference's later return."""
        return [
            max(np.ptp([self.value((*context, action)) for action in range(ACTIONS)]) for context in contexts(turn))
            for turn in range(self.turns - 1)
        ]


def random_toy(seed: int, turns: int = 3, difference: float = 1.0) -> Toy:
    """``difference``: how far the policy's logits are from the reference's."""
    rng = np.random.default_rng(seed)

    def softmax(logits: np.ndarray) -> np.ndarray:
        weights = np.exp(logits)
        return weights / weights.sum()

    rewards, policy, reference = {}, {}, {}
    for context in all_contexts(turns):
        logits = rng.normal(size=ACTIONS)
        rewards[context] = rng.integers(0, 2, ACTIONS).astype(float)
        reference[context] = softmax(logits)
        policy[context] = softmax(logits + difference * rng.normal(size=ACTIONS))
    return Toy(turns, rewards, policy, reference)
