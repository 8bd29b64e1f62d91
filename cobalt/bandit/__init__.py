"""The contextual-bandit set: evaluated multi-turn trajectories to prompts. Pure: no files, no tokenizer, no Ray."""

from cobalt.bandit.builder import BanditConfig, ProblemPlan, plan_problem
from cobalt.bandit.contexts import Context, StopRule, cut_overlong, first_turn_context, partial_contexts
from cobalt.bandit.evaluated import EVALUATED_FIELDS, EvaluatedProblem, Trajectory, combined_pass_rate, parse_problem
from cobalt.bandit.selection import (
    Selection,
    max_variance_subset,
    min_variance_subset,
    select_for_training,
    select_for_validation,
    solved_at_once,
)

__all__ = [
    "EVALUATED_FIELDS",
    "BanditConfig",
    "Context",
    "EvaluatedProblem",
    "ProblemPlan",
    "Selection",
    "StopRule",
    "Trajectory",
    "combined_pass_rate",
    "cut_overlong",
    "first_turn_context",
    "max_variance_subset",
    "min_variance_subset",
    "parse_problem",
    "partial_contexts",
    "plan_problem",
    "select_for_training",
    "select_for_validation",
    "solved_at_once",
]
