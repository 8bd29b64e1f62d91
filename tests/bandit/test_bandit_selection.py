"""Dynamic sampling and down-sampling."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.bandit import (
    BanditConfig,
    EvaluatedProblem,
    Selection,
    Trajectory,
    max_variance_subset,
    min_variance_subset,
    plan_problem,
    select_for_training,
    select_for_validation,
    solved_at_once,
)

spreads = st.lists(st.integers(1, 20).map(lambda passed: passed / 20), min_size=1, max_size=12)
sizes = st.integers(1, 6)


def trajectories(*rates_NT: tuple[float, ...]) -> tuple[Trajectory, ...]:
    return tuple(Trajectory(i, (), rates_T) for i, rates_T in enumerate(rates_NT))


def problem(*rates_NT: tuple[float, ...]) -> EvaluatedProblem:
    return EvaluatedProblem("p", "EASY", "", None, trajectories(*rates_NT), infra_dropped=0)


def low_high_subsets(values: list[float], size: int) -> list[tuple[int, ...]]:
    """By brute force: every subset that is lowest (m−k) + highest k for some k < m, ranks broken by position."""
    rank = sorted(range(len(values)), key=lambda i: (values[i], i))
    shapes = [{*rank[: size - k], *rank[len(rank) - k :]} for k in range(size)]
    return [c for c in itertools.combinations(range(len(values)), size) if set(c) in shapes]


@given(spreads, sizes)
def test_agrees_with_brute_force_over_all_low_and_high_subsets(values: list[float], size: int) -> None:
    chosen = max_variance_subset(values, size)
    if len(values) <= size:
        assert chosen == list(range(len(values)))
        return
    subsets = low_high_subsets(values, size)
    assert tuple(sorted(chosen)) in subsets
    best = max(np.var([values[i] for i in subset]) for subset in subsets)
    assert np.var([values[i] for i in chosen]) == pytest.approx(best, abs=1e-12)


@given(spreads, sizes)
def test_no_subset_varies_less_than_the_chosen_one(values: list[float], size: int) -> None:
    chosen = min_variance_subset(values, size)
    assert len(set(chosen)) == min(size, len(values))
    least = min(np.var(subset) for subset in itertools.combinations(values, len(chosen)))
    assert np.var([values[i] for i in chosen]) == pytest.approx(least, abs=1e-12)


@given(spreads, sizes)
def test_never_more_than_asked_and_never_twice(values: list[float], size: int) -> None:
    chosen = max_variance_subset(values, size)
    assert len(chosen) == len(set(chosen)) == min(size, len(values))


@given(spreads, sizes, st.randoms())
def test_a_permutation_keeps_the_chosen_spreads(values: list[float], size: int, random) -> None:
    shuffled = random.sample(values, len(values))
    before = sorted(values[i] for i in max_variance_subset(values, size))
    after = sorted(shuffled[i] for i in max_variance_subset(shuffled, size))
    assert before == after


def test_equal_variances_take_the_smallest_k() -> None:
    assert max_variance_subset([0.1, 0.1, 0.5, 0.9, 0.9], size=4) == [0, 1, 3, 4]
    assert max_variance_subset([0.2, 0.5, 0.8], size=1) == [0]
    assert max_variance_subset([0.5] * 6, size=3) == [0, 1, 2]


def test_equal_spreads_keep_file_order() -> None:
    assert max_variance_subset([0.9, 0.1, 0.9, 0.1, 0.9], size=2) == [1, 4]


def test_twenty_trajectories_give_four() -> None:
    rates = [(i / 20, 1.0) for i in range(20)]
    assert len(select_for_training(trajectories(*rates), max_trajectories=4)) == 4


def test_random_selection_depends_on_seed_and_problem_alone() -> None:
    conversation = [{"role": "user", "content": ""}] * 8
    kept = tuple(Trajectory(i, conversation, (i / 20, 0.5, 1.0)) for i in range(12))

    def chosen(seed: int, id_: str) -> list[int | None]:
        plan = plan_problem(
            EvaluatedProblem(id_, "EASY", "{}", None, kept, infra_dropped=0),
            BanditConfig(selection=Selection.RANDOM, seed=seed),
        )
        return [contexts_C[0].trajectory for contexts_C in plan.contexts_NC]

    assert chosen(0, "a") == chosen(0, "a") == sorted(set(chosen(0, "a")), key=int)
    assert len(chosen(0, "a")) == 4
    assert len({tuple(chosen(seed, id_)) for seed in range(3) for id_ in "ab"}) > 1
    times = np.bincount([i for seed in range(300) for i in chosen(seed, "a")], minlength=12)
    assert min(times) > 60  # of 100 expected: no spread is preferred


def test_training_needs_a_solution_and_an_improvement() -> None:
    kept = select_for_training(trajectories((0.0, 0.9), (1.0, 1.0), (0.5, 1.0), (1.0, 0.2)), max_trajectories=4)
    assert [trajectory.index for trajectory in kept] == [2, 3]


def test_validation_takes_the_smallest_change_even_without_a_solution() -> None:
    kept = select_for_validation(trajectories((0.5, 0.5), (0.0, 1.0), (0.25, 0.5), (0.5, 0.75)))
    assert [trajectory.index for trajectory in kept] == [2]


def test_validation_may_have_no_trajectory() -> None:
    assert select_for_validation(trajectories((0.5, 0.5), (1.0, 1.0))) == []


def test_only_problems_solved_by_every_first_program_are_dropped() -> None:
    assert solved_at_once(problem((1.0, 0.0), (1.0, 1.0)))
    assert not solved_at_once(problem((1.0, 1.0), (0.95, 1.0)))
