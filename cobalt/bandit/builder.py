"""From one evaluated problem to its bandit prompts: sampling, selection and cutting put together.

``plan_problem`` decides everything that needs no tokenizer; the caller counts the tokens of the planned contexts,
applies ``cut_overlong`` and writes records. Perturbed trajectories (wrong feedback, clean rates) skip dynamic sampling
and the stop rules, and add no turn-0 prompt: that one shows no feedback and is already there.
"""

from dataclasses import dataclass

from cobalt.bandit.contexts import Context, StopRule, first_turn_context, partial_contexts
from cobalt.bandit.evaluated import EvaluatedProblem
from cobalt.bandit.selection import Selection, select_for_training, select_for_validation, solved_at_once


@dataclass(frozen=True)
class BanditConfig:
    """What shapes the set. Defaults are the paper's."""

    num_turns: int = 3
    """Contexts per trajectory."""
    max_trajectories: int = 4
    """m: trajectories per problem after down-sampling."""
    selection: Selection = Selection.MAX_VARIANCE
    """Which m."""
    seed: int = 42
    """Of ``Selection.RANDOM``; each problem draws for itself."""
    max_prompt_tokens: int = 10_000
    """Longest rendered prompt of a context with at least one program."""
    stop_rule: StopRule = StopRule.RELEASED
    """Which solved pair of attempts ends a trajectory's contexts."""
    is_test: bool = False
    """Validation set: only the trajectory with the smallest improvement."""
    hide_expected: bool = False
    """Feedback in the contexts does not show the expected output."""


@dataclass(frozen=True)
class ProblemPlan:
    """What one problem will contribute; ``dropped`` says why it contributes nothing (None: it is kept)."""

    first: Context | None
    contexts_NC: tuple[tuple[Context, ...], ...]
    dropped: str | None = None


def plan_problem(problem: EvaluatedProblem, settings: BanditConfig, perturbed: bool = False) -> ProblemPlan:
    """The turn-0 prompt and, per selected trajectory, its partial contexts before the length check."""
    if not problem.trajectories:
        return ProblemPlan(None, (), dropped="every trajectory has an infra error")
    if not perturbed and solved_at_once(problem):
        return ProblemPlan(None, (), dropped="solved by every first program")
    if settings.is_test:
        selected = select_for_validation(problem.trajectories)
    else:
        selected = select_for_training(
            problem.trajectories, settings.max_trajectories, settings.selection, f"{settings.seed}-{problem.id}"
        )
    stop_rule = StopRule.NONE if perturbed else settings.stop_rule
    cut_NC = [
        tuple(partial_contexts(problem, t, settings.num_turns, stop_rule, settings.hide_expected)) for t in selected
    ]
    contexts_NC = tuple(contexts_C for contexts_C in cut_NC if contexts_C)
    return ProblemPlan(None if perturbed else first_turn_context(problem), contexts_NC)
