"""Partial contexts: how many, with which best pass rate, and where they stop."""

import pytest

from cobalt.bandit import (
    BanditConfig,
    EvaluatedProblem,
    StopRule,
    Trajectory,
    cut_overlong,
    partial_contexts,
    plan_problem,
)
from cobalt.prompts import ALL_PASSED, feedback_message, first_messages

RELEASED_FEEDBACK = "Some other wording.\nHere is the execution feedback:\nThe code has passed all public test cases."


def trajectory(rates_T: list[float], passed_T: list[bool] | None = None) -> Trajectory:
    """A trajectory whose feedback says passed where ``passed_T`` does (default: never)."""
    messages = first_messages("problem")
    for turn, passed in enumerate(passed_T or [False] * len(rates_T)):
        messages.append({"role": "assistant", "content": f"program {turn}"})
        messages.append(feedback_message(ALL_PASSED if passed else "Input:\n1"))
    return Trajectory(0, messages, tuple(rates_T))


def problem(*trajectories: Trajectory) -> EvaluatedProblem:
    return EvaluatedProblem("p", "EASY", "{}", None, trajectories, infra_dropped=0)


def turns(rates_T: list[float], rule: StopRule, num_turns: int = 3, passed_T: list[bool] | None = None) -> list[int]:
    t = trajectory(rates_T, passed_T)
    return [context.num_programs for context in partial_contexts(problem(t), t, num_turns, rule)]


def test_each_context_ends_with_feedback_and_knows_the_best_rate_so_far() -> None:
    t = trajectory([0.5, 0.25, 1.0])
    contexts = partial_contexts(problem(t), t, 3, StopRule.RELEASED)
    assert [len(context.conversation) for context in contexts] == [4, 6, 8]
    assert [context.prev_best for context in contexts] == [0.5, 0.5, 1.0]
    assert all(context.conversation[-1]["role"] == "user" for context in contexts)


@pytest.mark.parametrize(
    ("rates", "released", "solved"),
    [
        ([0.5, 0.5, 1.0], [1, 2, 3], [1, 2, 3]),
        ([1.0, 0.5, 1.0], [], [1, 2, 3]),
        ([1.0, 1.0, 0.5], [1, 2, 3], []),
        ([0.5, 1.0, 1.0], [1, 2, 3], [1]),
        ([1.0, 1.0, 1.0], [], []),
    ],
)
def test_stop_rules_at_three_turns(rates: list[float], released: list[int], solved: list[int]) -> None:
    assert turns(rates, StopRule.RELEASED) == released
    assert turns(rates, StopRule.SOLVED) == solved


def test_without_a_stop_rule_every_context_is_kept() -> None:
    assert turns([1.0, 1.0, 1.0], StopRule.NONE, passed_T=[True, True, True]) == [1, 2, 3]


def test_the_released_rule_moves_with_the_number_of_turns() -> None:
    assert turns([0.5, 1.0, 0.5, 1.0], StopRule.RELEASED, num_turns=4) == [1]
    assert turns([0.5, 1.0, 0.5, 1.0], StopRule.RELEASED, num_turns=3) == [1, 2, 3]


def test_two_feedbacks_that_say_passed_end_the_contexts() -> None:
    assert turns([0.5, 0.6, 0.7], StopRule.RELEASED, passed_T=[True, True, False]) == [1]
    assert turns([0.5, 0.6, 0.7], StopRule.RELEASED, passed_T=[True, False, True]) == [1, 2, 3]


def test_released_wording_of_feedback_is_understood() -> None:
    t = trajectory([0.5, 0.6, 0.7])
    for index in (3, 5):
        t.conversation[index]["content"] = RELEASED_FEEDBACK  # type: ignore[index]
    assert len(partial_contexts(problem(t), t, 3, StopRule.RELEASED)) == 1


def test_a_program_that_prints_the_sentence_does_not_count_as_passed() -> None:
    t = trajectory([0.5, 0.6, 0.7])
    shown = "Input:\n1\nProgram's Output:\nThe code has passed all public test cases\nExpected Output:\n2"
    for index in (3, 5):
        t.conversation[index] = feedback_message(shown)  # type: ignore[index]
    assert len(partial_contexts(problem(t), t, 3, StopRule.RELEASED)) == 3


def test_fewer_turns_than_contexts_asked_for() -> None:
    assert turns([0.5, 1.0], StopRule.RELEASED, num_turns=5) == [1, 2]


def test_a_context_over_the_limit_ends_the_trajectory() -> None:
    t = trajectory([0.0, 0.5, 1.0])
    contexts = partial_contexts(problem(t), t, 3, StopRule.RELEASED)
    assert cut_overlong(contexts, [10, 10_000, 10_001], 10_000) == contexts[:2]
    assert cut_overlong(contexts, [10, 10_001, 10_000], 10_000) == contexts[:1]


def test_a_kept_problem_has_one_turn_0_prompt_even_without_a_trajectory() -> None:
    plan = plan_problem(problem(trajectory([0.5, 0.5, 0.5])), BanditConfig())
    assert plan.dropped is None and plan.contexts_NC == ()
    assert plan.first is not None and plan.first.num_programs == 0 and plan.first.prev_best == 0


def test_perturbed_contexts_know_no_stop_rule_and_no_dynamic_sampling() -> None:
    solved = trajectory([1.0, 0.9, 1.0], passed_T=[True, True, True])
    assert plan_problem(problem(solved), BanditConfig()).dropped is not None
    plan = plan_problem(problem(solved), BanditConfig(), perturbed=True)
    assert plan.dropped is None and plan.first is None
    assert [context.num_programs for context in plan.contexts_NC[0]] == [1, 2, 3]


def test_a_problem_with_infra_errors_only_is_dropped_and_says_so() -> None:
    plan = plan_problem(EvaluatedProblem("p", "EASY", "{}", None, (), infra_dropped=16), BanditConfig())
    assert plan.dropped == "every trajectory has an infra error"
