"""Dynamic sampling, down-sampling, partial contexts and the order of the output."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.bandit import builder
from cobalt.bandit.builder import (
    BanditConfig,
    output_order,
    partial_contexts,
    plan_problem,
    variance_subset,
    with_share_solved,
)
from cobalt.bandit.evaluated import EvaluatedProblem, Trajectory
from cobalt.errors import InputError
from cobalt.prompts import ALL_PASSED, feedback_message, first_messages

RELEASED_FEEDBACK = "Some other wording.\nHere is the execution feedback:\nThe code has passed all public test cases."
SHOWN_SENTENCE = "Input:\n1\nProgram's Output:\nThe code has passed all public test cases\nExpected Output:\n2"
PAPER = BanditConfig()
spreads = st.lists(st.integers(1, 20).map(lambda passed: passed / 20), min_size=1, max_size=12)
sizes = st.integers(1, 6)


def trajectory(rates_T: list[float], passed_T: list[bool] | None = None, index: int = 0) -> Trajectory:
    """A trajectory whose feedback says passed where ``passed_T`` does (default: never)."""
    messages = first_messages("problem")
    for turn, passed in enumerate(passed_T or [False] * len(rates_T)):
        messages.append({"role": "assistant", "content": f"program {turn}"})
        messages.append(feedback_message(ALL_PASSED if passed else "Input:\n1"))
    return Trajectory(index, messages, tuple(rates_T))


def problem(*rates_NT: list[float], id_: str = "p") -> EvaluatedProblem:
    trajectories = tuple(trajectory(rates_T, index=i) for i, rates_T in enumerate(rates_NT))
    return EvaluatedProblem(id_, "EASY", "{}", None, trajectories, infra_dropped=0)


def turns(rates_T: list[float], rule: str, num_turns: int = 3, passed_T: list[bool] | None = None) -> list[int]:
    config = BanditConfig(stop_rule=rule, num_turns=num_turns)  # type: ignore[arg-type]
    return [context.num_programs for context in partial_contexts(problem(), trajectory(rates_T, passed_T), config)]


def selected(config: BanditConfig, *rates_NT: list[float]) -> list[int]:
    return [t.index for t in builder.selected_trajectories(problem(*rates_NT), config)]


def low_high_subsets(values: list[float], size: int) -> list[tuple[int, ...]]:
    """By brute force: every subset that is lowest (m−k) + highest k for some k < m, ranks broken by position."""
    rank = sorted(range(len(values)), key=lambda i: (values[i], i))
    shapes = [{*rank[: size - k], *rank[len(rank) - k :]} for k in range(size)]
    return [c for c in itertools.combinations(range(len(values)), size) if set(c) in shapes]


@given(spreads, sizes)
def test_agrees_with_brute_force_over_all_low_and_high_subsets(values: list[float], size: int) -> None:
    chosen = variance_subset(values, size)
    assert len(chosen) == len(set(chosen)) == min(size, len(values))
    if len(values) <= size:
        assert chosen == list(range(len(values)))
        return
    subsets = low_high_subsets(values, size)
    assert tuple(sorted(chosen)) in subsets
    best = max(np.var([values[i] for i in subset]) for subset in subsets)
    assert np.var([values[i] for i in chosen]) == pytest.approx(best, abs=1e-12)


@given(spreads, sizes)
def test_no_subset_varies_less_than_the_chosen_one(values: list[float], size: int) -> None:
    chosen = builder.variance_subset(values, size, smallest=True)
    assert len(set(chosen)) == min(size, len(values))
    least = min(np.var(subset) for subset in itertools.combinations(values, len(chosen)))
    assert np.var([values[i] for i in chosen]) == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize(
    ("values", "size", "chosen"),
    [
        ([0.1, 0.1, 0.5, 0.9, 0.9], 4, [0, 1, 3, 4]),  # equal variances: the smallest k
        ([0.2, 0.5, 0.8], 1, [0]),
        ([0.5] * 6, 3, [0, 1, 2]),
        ([0.9, 0.1, 0.9, 0.1, 0.9], 2, [1, 4]),  # equal spreads: the order of the file
    ],
)
def test_ties_are_broken_by_k_and_position(values: list[float], size: int, chosen: list[int]) -> None:
    assert variance_subset(values, size) == chosen


def test_random_selection_depends_on_seed_and_problem_alone() -> None:
    rates = [[i / 20, 0.5, 1.0] for i in range(12)]

    def chosen(seed: int, id_: str) -> list[int]:
        config = BanditConfig(selection="random", seed=seed)
        return [t.index for t in builder.selected_trajectories(problem(*rates, id_=id_), config)]

    assert chosen(0, "a") == chosen(0, "a") == sorted(set(chosen(0, "a"))) and len(chosen(0, "a")) == 4
    assert len({tuple(chosen(seed, id_)) for seed in range(3) for id_ in "ab"}) > 1
    times = np.bincount([i for seed in range(300) for i in chosen(seed, "a")], minlength=12)
    assert min(times) > 60  # of 100 expected: no spread is preferred


def test_a_share_of_contexts_holds_a_solved_program() -> None:
    is_solved = [i % 2 for i in range(40)]
    for keep, count in ((0.0, 20), (0.2, 25), (0.5, 40), (1.0, 20)):
        chosen = with_share_solved(is_solved, keep, seed=0)
        assert (len(chosen), sum(is_solved[i] for i in chosen)) == (count, count * keep)
        assert chosen == sorted(set(chosen)) == with_share_solved(is_solved, keep, seed=0)
    assert with_share_solved(is_solved, None, seed=0) == list(range(40))
    assert with_share_solved(is_solved, 0.2, seed=0) != with_share_solved(is_solved, 0.2, seed=1)
    with pytest.raises(InputError, match=r"no context holds a solved program: --keep 0\.5 cannot be met"):
        with_share_solved([0, 0], 0.5, seed=0)


def test_training_needs_a_solution_and_an_improvement() -> None:
    spreads = [0.0, 1.0], [0.25, 1.0], [0.5, 1.0], [0.75, 1.0]
    assert selected(BanditConfig(max_trajectories=2), *spreads) == [3, 0]
    assert selected(BanditConfig(max_trajectories=2, selection="min_variance"), *spreads) == [3, 2]
    assert selected(PAPER, [0.0, 0.9], [1.0, 1.0], [0.5, 1.0], [1.0, 0.2]) == [2, 3]
    assert len(selected(PAPER, *([i / 20, 1.0] for i in range(20)))) == 4


def test_validation_takes_the_smallest_change_if_there_is_one_even_without_a_solution() -> None:
    validation = BanditConfig(is_test=True)
    assert selected(validation, [0.5, 0.5], [0.0, 1.0], [0.25, 0.5], [0.5, 0.75]) == [2]
    assert selected(validation, [0.5, 0.5], [1.0, 1.0]) == []
    assert selected(validation, [0.0, 0.05], [0.25, 0.3], [0.95, 1.0]) == [0], "equal in twentieths"


def test_only_problems_solved_by_every_first_program_are_dropped() -> None:
    assert builder.solved_at_once(problem([1.0, 0.0], [1.0, 1.0]))
    assert not builder.solved_at_once(problem([1.0, 1.0], [0.95, 1.0]))


def test_each_context_ends_with_feedback_and_knows_the_best_rate_so_far() -> None:
    contexts = partial_contexts(problem(), trajectory([0.5, 0.25, 1.0]), PAPER)
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
        ([0.5, 1.0], [1, 2], [1, 2]),  # fewer turns than contexts asked for
        ([0.5, 1.0, 0.5, 1.0], [1, 2, 3], [1, 2, 3]),
    ],
)
def test_where_contexts_end_at_three_turns(rates: list[float], released: list[int], solved: list[int]) -> None:
    assert turns(rates, "released") == released
    assert turns(rates, "solved") == solved
    assert turns(rates, "none", passed_T=[True] * len(rates)) == [1, 2, 3][: len(rates)]


def test_contexts_end_with_the_number_of_turns_or_two_feedbacks_that_say_passed() -> None:
    assert turns([0.5, 1.0, 0.5, 1.0], "released", num_turns=4) == [1]
    assert turns([0.5, 0.6, 0.7], "released", passed_T=[True, True, False]) == [1]
    assert turns([0.5, 0.6, 0.7], "released", passed_T=[True, False, True]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("message", "kept"),
    [({"role": "user", "content": RELEASED_FEEDBACK}, 1), (feedback_message(SHOWN_SENTENCE), 3)],
    ids=["released wording", "a program that prints the sentence"],
)
def test_only_feedback_says_that_a_program_passed(message: dict[str, str], kept: int) -> None:
    t = trajectory([0.5, 0.6, 0.7])
    t.conversation[3] = t.conversation[5] = message  # type: ignore[index]
    assert len(partial_contexts(problem(), t, PAPER)) == kept


def test_a_context_over_the_limit_ends_the_trajectory() -> None:
    contexts = partial_contexts(problem(), trajectory([0.0, 0.5, 1.0]), PAPER)
    assert builder.cut_overlong(contexts, [10, 10_000, 10_001], 10_000) == contexts[:2]
    assert builder.cut_overlong(contexts, [10, 10_001, 10_000], 10_000) == contexts[:1]


def test_a_kept_problem_has_one_turn_0_prompt_even_without_a_trajectory() -> None:
    plan = plan_problem(problem([0.5, 0.5, 0.5]), PAPER)
    ((first,),) = plan.contexts_NC
    assert plan.dropped is None and (first.num_programs, first.prev_best, len(first.conversation)) == (0, 0, 2)


def test_perturbed_contexts_know_no_stop_rule_and_no_dynamic_sampling() -> None:
    solved = problem([1.0, 0.9, 1.0])
    solved = replace(solved, trajectories=(trajectory([1.0, 0.9, 1.0], passed_T=[True, True, True]),))
    assert plan_problem(solved, PAPER).dropped is not None
    plan = plan_problem(replace(solved, perturbed=True), PAPER)
    assert plan.dropped is None
    assert [[context.num_programs for context in contexts_C] for contexts_C in plan.contexts_NC] == [[1, 2, 3]]


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0, 1), st.integers(0, 9))
def test_the_share_of_perturbed_records_is_met(clean: int, perturbed: int, ratio: float, seed: int) -> None:
    num_clean, num_perturbed = builder.mixed_counts(clean, perturbed, ratio)
    assert num_clean <= clean and num_perturbed <= perturbed
    assert abs(num_perturbed - ratio * (num_clean + num_perturbed)) <= 1
    order = output_order(clean, perturbed, ratio, seed)
    assert len(set(order)) == len(order) == num_clean + num_perturbed
    assert order == output_order(clean, perturbed, ratio, seed)
