"""Failed samples teach nothing: checked with veRL's own advantage function."""

import math

import pytest
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from cobalt.training.unscored import fill_with_mean, neutralise_groups


def advantages(rewards_B, groups_B):
    """One token per response."""
    rewards = torch.tensor(rewards_B)[:, None]
    values, _ = compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), groups_B)
    return values[:, 0].tolist()


def test_a_failed_sample_has_no_advantage_and_leaves_the_others_their_sign():
    groups = ["a"] * 4 + ["b"] * 4
    rewards = neutralise_groups([1.0, None, 0.2, 0.0, 1.0, 0.0, 0.0, 0.0], groups)
    values = advantages(rewards, groups)
    assert values[1] == pytest.approx(0, abs=1e-6)
    assert values[0] > 0 > values[2] > values[3]
    assert values[4] > 0 > values[5]


def test_a_mostly_failed_group_is_neutralised_whole():
    groups = ["a"] * 4
    rewards = neutralise_groups([1.0, None, None, None], groups)
    assert rewards == [0, 0, 0, 0]
    assert advantages(rewards, groups) == pytest.approx([0] * 4, abs=1e-6)


def test_half_of_a_group_is_enough():
    assert neutralise_groups([1.0, 0.0, None, None], ["a"] * 4) == [1, 0, 0.5, 0.5]


def test_groups_need_not_be_adjacent_nor_complete():
    assert neutralise_groups([1.0, 0.5, None, None, 0.0], ["a", "b", "a", "b", "a"]) == [1, 0.5, 0.5, 0.5, 0]


def test_without_failures_nothing_changes():
    assert neutralise_groups([0.1, 0.2], [0, 1]) == [0.1, 0.2]


def test_validation_means_are_those_of_the_valid_samples():
    assert fill_with_mean([1.0, None, 0.0]) == [1, 0.5, 0]
    assert all(math.isnan(value) for value in fill_with_mean([None, None]))
