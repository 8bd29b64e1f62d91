"""Advantages of the online baselines on groups worked out by hand, and what must not change them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.rewards.online import (
    against_all,
    against_others,
    density_weights,
    normalised,
    verpo_mt_advantages,
    weights_of_tests,
)

ROOT_HALF = 0.5**0.5
THIRD_VERSION = {"gamma": 0.0, "compare": against_all, "weigh": density_weights, "over_all_turns": True}


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, -1], [ROOT_HALF, -ROOT_HALF]),
        ([0, 0.5, 1], [-1, 0, 1]),
        ([1, 1, 1, 0], [0.5, 0.5, 0.5, -1.5]),  # mean .75, sample standard deviation .5
        ([0.1, 0.1, 0.1], [0, 0, 0]),
        ([0.7], [0]),
    ],
)
def test_a_trajectorys_score_is_normalised_over_its_group(scores, expected):
    assert normalised(np.array(scores)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ([[1, 0], [1, 0]], [1 / 4, 3 / 4]),  # 0 and 2 failures, and one more each
        ([[1, 1], [1, 1]], [1 / 2, 1 / 2]),
        ([[0, 0, 1]], [2 / 5, 2 / 5, 1 / 5]),
        (np.zeros((0, 2)), [1 / 2, 1 / 2]),  # no program, no difference
    ],
)
def test_the_fewer_pass_a_test_the_more_it_weighs(passed, expected):
    assert weights_of_tests(np.array(passed)) == pytest.approx(expected)


def test_two_trajectories_of_unequal_length_by_hand():
    """Trajectory 0 passes test 0, then both; trajectory 1 passes both at once. Two tests, three programs.

    Failures: test 0 none, test 1 one, so weights 1/3 and 2/3 and rewards 1/3, 1 | 1. Returns with gamma 1/2: turn 0
    1/3 + 1/2 = 5/6 and 1; turn 1: 1, alone in its turn. Both are solved in the end: their outcomes do not differ.
    """
    passed = np.array([[[1, 0], [1, 1]], [[1, 1], [0, 0]]])
    mask = np.array([[1, 1], [1, 0]])
    advantages = verpo_mt_advantages(passed, mask, gamma=0.5)
    assert advantages == pytest.approx(np.array([[-ROOT_HALF, 0], [ROOT_HALF, 0]]), abs=1e-4)


def test_many_easy_tests_weigh_no_more_together_than_one_that_fails_as_often_as_they_pass():
    passed = np.array([[1] * 9 + [0], [1] * 10])  # nine tests that all pass, and one that half do
    weights = density_weights(passed)
    assert weights[:9].sum() == pytest.approx(np.exp(-2), rel=1e-2) and weights[9] == pytest.approx(
        np.exp(-1), rel=1e-2
    )
    equal = density_weights(np.ones((3, 4)))
    assert equal == pytest.approx(np.full(4, np.exp(-2) / 4)), "no rate differs from the others"
    assert density_weights(np.zeros((0, 2))) == pytest.approx([1 / 2, 1 / 2]), "no program"


def test_the_papers_third_version_by_hand():
    """The trajectories of the test before. Pass rates are 1 and 2/3, half their deviation is 1/12.

    Weights: exp(-2) and exp(-4/3), over the density 1 + exp(-8). One mean for all three turns; outcomes 0.81 and 0.9.
    """
    passed = np.array([[[1, 0], [1, 1]], [[1, 1], [0, 0]]])
    easy, both = np.array([np.exp(-2), np.exp(-2) + np.exp(-4 / 3)]) / (1 + np.exp(-8))
    mean = (easy + 2 * both) / 3
    expected = [[easy - mean - 0.045, both - mean - 0.045], [both - mean + 0.045, 0]]
    found = verpo_mt_advantages(passed, np.array([[1, 1], [1, 0]]), outcome_decay=0.9, **THIRD_VERSION)
    assert found == pytest.approx(np.array(expected), abs=1e-9)


def test_a_program_that_fails_first_is_worth_less_where_all_turns_have_one_baseline():
    """Four of eight trajectories miss one of ten tests and then pass all; four pass all at once."""
    repaired, right = np.array([[1] * 9 + [0], [1] * 10]), np.array([[1] * 10, [0] * 10])
    passed, mask = np.array([repaired] * 4 + [right] * 4), np.array([[1, 1]] * 4 + [[1, 0]] * 4)
    ours = verpo_mt_advantages(passed, mask)
    assert ours[0, 0] > 0.9 and ours[4, 0] < -0.9
    theirs = verpo_mt_advantages(passed, mask, **THIRD_VERSION)
    assert theirs[0, 0] < 0 < theirs[0, 1] == theirs[4, 0]


def test_the_outcome_is_that_of_the_last_program_played():
    """Equal programs at turn 0, and then one is solved: only the outcome and turn 1 tell them apart."""
    passed = np.array([[[0], [1]], [[0], [0]]])
    advantages = verpo_mt_advantages(passed, np.ones((2, 2)), gamma=0)
    assert advantages == pytest.approx(np.array([[1, 2], [-1, -2]]) * ROOT_HALF, abs=1e-4)
    without = verpo_mt_advantages(passed, np.ones((2, 2)), gamma=0, outcome_weight=0)
    assert without == pytest.approx(np.array([[0, 1], [0, -1]]) * ROOT_HALF, abs=1e-4)


def test_a_group_without_variance_gives_zeros_and_a_trajectory_without_any_turn_is_left_out():
    for passes in (0, 1):
        assert (verpo_mt_advantages(np.full((2, 3, 4), passes), np.array([[1, 1, 0], [1, 1, 0]])) == 0).all()
    passed, mask = np.array([[[1, 0]], [[1, 1]], [[0, 0]]]), np.array([[1], [1], [0]])
    assert verpo_mt_advantages(passed, mask)[:2] == pytest.approx(verpo_mt_advantages(passed[:2], mask[:2]))
    assert verpo_mt_advantages(passed, mask)[2] == 0


@st.composite
def groups(draw):
    """Results of up to 4 trajectories of up to 3 turns on up to 4 tests, each trajectory with at least one turn."""
    samples, turns, tests = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = np.arange(turns) < random.integers(1, turns + 1, samples)[:, None]
    return random.random((samples, turns, tests)) < 0.6, mask, random


@given(groups(), st.sampled_from([{}, THIRD_VERSION]))
def test_masked_rows_change_nothing_and_get_nothing(group, version):
    passed, mask, random = group
    other = np.where(mask[:, :, None], passed, random.random(passed.shape) < 0.5)
    advantages = verpo_mt_advantages(passed, mask, **version)
    assert (advantages == verpo_mt_advantages(other, mask, **version)).all()
    assert (advantages[~mask] == 0).all()
    assert np.isfinite(advantages).all()


@given(groups(), st.sampled_from([{}, THIRD_VERSION]))
def test_the_order_of_trajectories_and_tests_changes_nothing(group, version):
    passed, mask, random = group
    rows, tests = random.permutation(len(passed)), random.permutation(passed.shape[2])
    permuted = verpo_mt_advantages(passed[rows][:, :, tests], mask[rows], **version)
    assert permuted == pytest.approx(verpo_mt_advantages(passed, mask, **version)[rows], abs=1e-6)


def expected_update(compare):
    """The gradient of a policy's five logits that advantages give on average, and the true one. By enumeration of all
    groups of three.

    At turn 0 the policy ends the conversation with a right or with a wrong program, or goes on to turn 1, where its
    program is right or wrong. The objective is the sum of rewards plus the outcome, without discount.
    """
    first, second = np.array([0.15, 0.45, 0.4]), np.array([0.7, 0.3])
    # probability, whether the programs pass, turns, gradients of the log-probability of each turn's choice
    played = []
    for choice, passes in ((0, [1, 0]), (1, [0, 0])):
        played.append((first[choice], passes, [1, 0], [np.r_[np.eye(3)[choice] - first, 0, 0], np.zeros(5)]))
    for choice, passes in ((0, [0, 1]), (1, [0, 0])):
        slopes = [np.r_[np.eye(3)[2] - first, 0, 0], np.r_[0, 0, 0, np.eye(2)[choice] - second]]
        played.append((first[2] * second[choice], passes, [1, 1], slopes))
    true = sum(p * (sum(passes[t:]) + max(passes)) * slopes[t] for p, passes, _, slopes in played for t in (0, 1))
    found = np.zeros(5)
    for group in product(played, repeat=3):
        chances, passed, mask, slopes = (np.array(part) for part in zip(*group, strict=True))
        advantages = verpo_mt_advantages(passed[:, :, None], mask, gamma=1.0, compare=compare)
        found += chances.prod() * np.einsum("nt,ntl->l", advantages, slopes) / 3
    return found, true


def test_against_the_others_turns_have_an_unbiased_baseline_and_normalised_ones_do_not():
    """Normalised, the later turn counts less, because fewer trajectories of a group reach it."""
    found, true = expected_update(against_others)
    assert found == pytest.approx(true, abs=1e-9)
    found, true = expected_update(normalised)
    first, *_, second = found / true
    assert second < 0.75 * first
