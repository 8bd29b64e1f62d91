"""From one evaluated problem to its bandit prompts: which problems, which trajectories, which contexts, in which order.

``plan_problem`` decides what needs no tokenizer. The caller counts tokens, applies ``cut_overlong`` and writes records.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from cobalt.bandit.evaluated import MESSAGES_PER_TURN, OPENING_MESSAGES, Conversation, EvaluatedProblem, Trajectory
from cobalt.errors import InputError
from cobalt.prompts import ALL_PASSED_START, feedback_of_message, without_expected

Selection = Literal["max_variance", "min_variance", "random"]
StopRule = Literal["released", "solved", "none"]


@dataclass(frozen=True, kw_only=True)
class BanditConfig:
    """What shapes the set. Defaults are the paper's."""

    is_test: bool = False
    """Build a validation set: per problem one trajectory, the one whose pass rates spread least."""
    num_turns: Annotated[int, Ge(1)] = 3
    """Contexts per trajectory."""
    max_trajectories: Annotated[int, Ge(1)] = 4
    """Trajectories per problem after down-sampling."""
    selection: Selection = "max_variance"
    """Which trajectories down-sampling keeps: those whose spreads (highest minus lowest pass rate) are most different
    or most alike, or random ones."""
    max_prompt_tokens: Annotated[int, Ge(1)] = 10_000
    """Contexts whose prompt is longer are cut off. The problem alone, without programs, is always kept."""
    keep: Annotated[float, Ge(0), Le(1)] | None = None
    """Draw contexts by seed so that this share of them holds a solved program. In the others all programs are wrong.
    Default: all contexts."""
    hide_expected: bool = False
    """Leave the expected output out of the feedback in the prompts."""
    stop_rule: StopRule = "released"
    """Where a trajectory's contexts end: before the one with k programs if attempts k−1 and k+1 (released), or k−1 and
    k (solved), are right, counted from 0. none: only the number of contexts and their length are limited."""
    seed: int = 42
    """Orders and samples the output, and draws trajectories for --selection random."""


@dataclass(frozen=True)
class Context:
    """One bandit prompt: ``num_programs`` k previous programs, ``prev_best`` their best pass rate (0 if none)."""

    problem: EvaluatedProblem
    conversation: Conversation
    num_programs: int = 0
    prev_best: float = 0.0
    trajectory: int | None = None

    def to_record(self) -> dict[str, Any]:
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
            "perturbed": self.problem.perturbed,
        }


@dataclass(frozen=True)
class ProblemPlan:
    """What one problem will contribute; ``dropped`` says why it contributes nothing (None: it is kept)."""

    contexts_NC: Sequence[Sequence[Context]] = ()
    """The turn-0 prompt alone, then per selected trajectory its contexts before the length check."""
    dropped: str | None = None


def plan_problem(problem: EvaluatedProblem, config: BanditConfig) -> ProblemPlan:
    """Dynamic sampling, down-sampling and cutting of one problem.

    Perturbed trajectories have wrong feedback, but pass rates on right tests. They skip dynamic sampling and the stop
    rules. They add no turn-0 prompt: it shows no feedback, so the clean trajectories gave the same one.
    """
    if not problem.trajectories:
        return ProblemPlan(dropped="every trajectory has an infra error")
    if not problem.perturbed and solved_at_once(problem):
        return ProblemPlan(dropped="solved by every first program")
    turn_0 = [] if problem.perturbed else [[Context(problem, problem.trajectories[0].conversation[:OPENING_MESSAGES])]]
    cut_NC = [partial_contexts(problem, trajectory, config) for trajectory in selected_trajectories(problem, config)]
    return ProblemPlan([*turn_0, *filter(None, cut_NC)])


def solved_at_once(problem: EvaluatedProblem) -> bool:
    """Offline dynamic sampling drops a problem iff every first-turn program passes all tests."""
    return all(trajectory.solved_at_once for trajectory in problem.trajectories)


def selected_trajectories(problem: EvaluatedProblem, config: BanditConfig) -> list[Trajectory]:
    """Training: trajectories that reach a solution and improved on the way, down-sampled to ``max_trajectories``.

    Validation: the one with the lowest spread above 0, if there is one; the first in the file among equals.
    """
    changed = [t for t in problem.trajectories if t.spread > 0]
    if config.is_test:
        return [min(changed, key=lambda t: round(t.spread, 9))] if changed else []  # 0.3 - 0.25 < 0.05 in floats
    improved = [t for t in changed if max(t.pass_rates_T) == 1]
    size = config.max_trajectories
    if config.selection == "random":
        rng = random.Random(f"{config.seed}-{problem.id}")  # each problem draws for itself
        chosen = sorted(rng.sample(range(len(improved)), min(size, len(improved))))
    else:
        chosen = variance_subset([t.spread for t in improved], size, smallest=config.selection == "min_variance")
    return [improved[i] for i in chosen]


def variance_subset(spreads_N: Sequence[float], size: int, smallest: bool = False) -> list[int]:
    """Indices of the m = ``size`` entries with the largest population variance, by the rule of PODS (arXiv 2504.13818).

    Candidates are the m−k lowest entries with the k highest, for k = 0..m−1. The sort is stable, so equal values keep
    their order. If variances are equal, the smallest k wins. With at most m entries all indices are returned, in order.

    ``smallest``: for comparison, m neighbours in the sorted order with the smallest variance; among equals the lowest.

    >>> variance_subset([0.5, 0.1, 0.9, 0.4], size=2), variance_subset([0.5, 0.1, 0.9, 0.4], size=2, smallest=True)
    ([1, 2], [3, 0])
    """
    count = len(spreads_N)
    if count <= size:
        return list(range(count))
    values, ranked = np.asarray(spreads_N, dtype=float), np.argsort(spreads_N, kind="stable")
    candidates = [np.concatenate([ranked[: size - k], ranked[count - k :]]) for k in range(size)]
    if smallest:
        candidates = [ranked[start : start + size] for start in range(count - size + 1)]
    variances = [np.var(values[candidate]) for candidate in candidates]
    return candidates[int(np.argmin(variances) if smallest else np.argmax(variances))].tolist()


def partial_contexts(problem: EvaluatedProblem, trajectory: Trajectory, config: BanditConfig) -> list[Context]:
    """Contexts with k = 1..``num_turns`` programs. They end before the first k at which a stop rule holds."""
    rates_T, messages = trajectory.pass_rates_T, trajectory.conversation
    feedback_T = [feedback_of_message(message["content"]) for message in messages[OPENING_MESSAGES + 1 :: 2]]
    says_passed_T = [(feedback or "").startswith(ALL_PASSED_START) for feedback in feedback_T]
    if config.hide_expected:
        messages = [without_expected(message) for message in messages]
    num_contexts = min(config.num_turns, len(rates_T))
    stop_rule = "none" if problem.perturbed else config.stop_rule
    ahead = 1 if stop_rule == "released" else 0
    contexts = []
    for k in range(1, num_contexts + 1):
        passed_twice = k >= 2 and all(says_passed_T[k - 2 : k])
        stays_solved = k + ahead < num_contexts and rates_T[k - 1] == rates_T[k + ahead] == 1
        if stop_rule != "none" and (passed_twice or stays_solved):
            break
        shown = messages[: OPENING_MESSAGES + MESSAGES_PER_TURN * k]
        contexts.append(Context(problem, shown, k, max(rates_T[:k]), trajectory.index))
    return contexts


def cut_overlong(contexts: Sequence[Context], tokens_C: Sequence[int], max_prompt_tokens: int) -> list[Context]:
    """The contexts before the first whose rendered prompt is too long; a turn-0 prompt always stays."""
    for i, (context, tokens) in enumerate(zip(contexts, tokens_C, strict=True)):
        if context.num_programs > 0 and tokens > max_prompt_tokens:
            return list(contexts[:i])
    return list(contexts)


def mixed_counts(num_clean: int, num_perturbed: int, ratio: float) -> tuple[int, int]:
    """How many clean and perturbed records make a set with a share ``ratio`` of perturbed ones.

    One kind is used whole, and as much of the other as ``ratio`` asks for, to within one record.

    >>> mixed_counts(num_clean=90, num_perturbed=50, ratio=0.1)
    (90, 10)
    >>> mixed_counts(num_clean=90, num_perturbed=5, ratio=0.5)
    (5, 5)
    """
    if ratio == 1:
        return 0, num_perturbed
    wanted = round(num_clean * ratio / (1 - ratio))
    if wanted <= num_perturbed:
        return num_clean, wanted
    return round(num_perturbed * (1 - ratio) / ratio), num_perturbed


def with_share_solved(is_solved_N: Sequence[int], keep: float | None, seed: int) -> list[int]:
    """Indices drawn by ``seed`` so that a share ``keep``, in [0, 1], of the contexts holds a solved program.

    ``keep`` None: all indices. Raises ``InputError`` if the share needs contexts of a kind that is missing.
    """
    if keep is None:
        return list(range(len(is_solved_N)))
    kinds = [[i for i, is_solved in enumerate(is_solved_N) if is_solved == kind] for kind in (False, True)]
    unsolved, solved = map(len, kinds)
    if is_solved_N and ((keep > 0 and solved == 0) or (keep < 1 and unsolved == 0)):
        missing = "holds a solved program" if solved == 0 else "lacks a solved program"
        raise InputError(f"no context {missing}: --keep {keep:g} cannot be met")
    rng, counts = random.Random(seed), mixed_counts(unsolved, solved, keep)
    return sorted(i for found, count in zip(kinds, counts, strict=True) for i in rng.sample(found, count))


def output_order(num_clean: int, num_perturbed: int, ratio: float, seed: int) -> list[int]:
    """Indices into clean records followed by perturbed ones: a sample that meets ``ratio``, shuffled by ``seed``.

    ``ratio`` lies in [0, 1]. Raises ``InputError`` where nothing would be written.
    """
    if ratio > 0 and num_perturbed == 0:
        raise InputError(f"the perturbed trajectories give no context: no share of {ratio} can be made of them")
    if ratio < 1 and num_clean == 0:
        raise InputError("the trajectories give no context: every problem is left out")
    rng = random.Random(seed)
    clean, perturbed = mixed_counts(num_clean, num_perturbed, ratio)
    chosen = sorted(rng.sample(range(num_clean), clean))
    chosen += sorted(rng.sample(range(num_clean, num_clean + num_perturbed), perturbed))
    rng.shuffle(chosen)
    return chosen
