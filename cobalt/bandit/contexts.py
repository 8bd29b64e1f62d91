"""Cutting a trajectory into partial contexts: the problem and its first k programs with their feedback.

The rules that end a trajectory's contexts early are here, except for the prompt length, which needs a tokenizer
(``cut_overlong`` takes the counted tokens).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cobalt.bandit.evaluated import MESSAGES_PER_TURN, OPENING_MESSAGES, EvaluatedProblem, Trajectory
from cobalt.prompts import ALL_PASSED_START, feedback_of_message, without_expected


class StopRule(str, Enum):
    """Which pair of attempts, both passing every test, ends a trajectory at the context with k programs."""

    RELEASED = "released"
    """Attempts k−1 and k+1, as the released script does."""
    SOLVED = "solved"
    """Attempts k−1 and k: the last program shown and the one that followed it."""
    NONE = "none"
    """No rule ends a trajectory, two feedbacks that say passed neither."""

    @property
    def look_ahead(self) -> int:
        """The later attempt of the pair, relative to k."""
        return 1 if self is StopRule.RELEASED else 0


@dataclass(frozen=True)
class Context:
    """One bandit prompt: ``num_programs`` k previous programs, ``prev_best`` their best pass rate (0 if none)."""

    problem: EvaluatedProblem
    conversation: Sequence[Any]
    num_programs: int
    prev_best: float
    trajectory: int | None

    def to_record(self, perturbed: bool) -> dict[str, Any]:
        """The ``bandit prompt`` record of the data formats, with where it came from."""
        return {
            "example_id": self.problem.id,
            "conversation": list(self.conversation),
            "test_cases": self.problem.test_cases,
            "difficulty": self.problem.difficulty,
            "source": self.problem.source,
            "prev_best_pass_rate": self.prev_best,
            "turn": self.num_programs,
            "trajectory": self.trajectory,
            "perturbed": perturbed,
        }


def first_turn_context(problem: EvaluatedProblem) -> Context:
    """The problem alone: the prompt of turn 0."""
    opening = problem.trajectories[0].conversation[:OPENING_MESSAGES]
    return Context(problem, opening, num_programs=0, prev_best=0.0, trajectory=None)


def partial_contexts(
    problem: EvaluatedProblem,
    trajectory: Trajectory,
    num_turns: int,
    stop_rule: StopRule,
    hide_expected: bool = False,
) -> list[Context]:
    """Contexts with k = 1..``num_turns`` programs, up to the first at which a stop rule holds.

    ``hide_expected``: feedback does not show the expected output.
    """
    contexts = []
    conversation = trajectory.conversation
    if hide_expected:
        conversation = [without_expected(message) for message in conversation]
    for k in range(1, min(num_turns, len(trajectory.pass_rates_T)) + 1):
        if stop_rule is not StopRule.NONE and (
            _passed_twice(trajectory, k) or _stays_solved(trajectory, k, num_turns, stop_rule)
        ):
            break
        messages = conversation[: OPENING_MESSAGES + MESSAGES_PER_TURN * k]
        contexts.append(Context(problem, messages, k, max(trajectory.pass_rates_T[:k]), trajectory.index))
    return contexts


def cut_overlong(contexts: Sequence[Context], tokens_C: Sequence[int], max_prompt_tokens: int) -> list[Context]:
    """The contexts before the first whose rendered prompt exceeds ``max_prompt_tokens``."""
    kept = []
    for context, tokens in zip(contexts, tokens_C, strict=True):
        if tokens > max_prompt_tokens:
            break
        kept.append(context)
    return kept


def _passed_twice(trajectory: Trajectory, k: int) -> bool:
    """The last two feedbacks of the context with k programs both say that all public tests passed."""
    return k >= 2 and _says_passed(trajectory, k - 2) and _says_passed(trajectory, k - 1)


def _says_passed(trajectory: Trajectory, turn: int) -> bool:
    content = trajectory.conversation[OPENING_MESSAGES + MESSAGES_PER_TURN * turn + 1]["content"]
    feedback = feedback_of_message(content)
    return feedback is not None and feedback.startswith(ALL_PASSED_START)


def _stays_solved(trajectory: Trajectory, k: int, num_turns: int, rule: StopRule) -> bool:
    later = k + rule.look_ahead
    if later >= min(num_turns, len(trajectory.pass_rates_T)):
        return False
    return trajectory.pass_rates_T[k - 1] == 1 and trajectory.pass_rates_T[later] == 1
