"""Steps whose samples were not all scored: what they teach (by veRL's own advantages), report, and when they end it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from cobalt.errors import SetupError
from cobalt.training.reward_metrics import reward_metrics
from cobalt.training.unscored import WINDOW_STEPS, InfraGuard, fill_with_mean, neutralise_groups


def advantages(rewards_B, groups_B):
    """One token per response."""
    rewards = torch.tensor(rewards_B)[:, None]
    values, _ = compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), groups_B)
    return values[:, 0].tolist()


def test_a_failed_sample_has_no_advantage_and_leaves_the_others_their_sign():
    groups = ["a"] * 4 + ["b"] * 4
    values = advantages(neutralise_groups([1.0, None, 0.2, 0.0, 1.0, 0.0, 0.0, 0.0], groups), groups)
    assert values[1] == pytest.approx(0, abs=1e-6)
    assert values[0] > 0 > values[2] > values[3]
    assert values[4] > 0 > values[5]


def test_a_mostly_failed_group_is_neutralised_whole():
    groups = ["a"] * 4
    rewards = neutralise_groups([1.0, None, None, None], groups)
    assert rewards == [0, 0, 0, 0]
    assert advantages(rewards, groups) == pytest.approx([0] * 4, abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "groups", "rewards"),
    [
        ([1.0, 0.0, None, None], "aaaa", [1, 0, 0.5, 0.5]),  # half of a group is enough
        ([1.0, 0.5, None, None, 0.0], "ababa", [1, 0.5, 0.5, 0.5, 0]),  # neither adjacent nor complete
        ([0.1, 0.2], "ab", [0.1, 0.2]),  # without failures nothing changes
    ],
)
def test_a_failed_sample_gets_the_mean_of_its_group(scores, groups, rewards):
    assert neutralise_groups(scores, groups) == rewards


def test_validation_means_are_those_of_the_valid_samples():
    assert fill_with_mean([1.0, None, 0.0]) == [1, 0.5, 0]
    assert all(math.isnan(value) for value in fill_with_mean([None, None]))


def make_batch(infra_B, **scores):
    columns = {"infra": np.array(infra_B, dtype=float), **{name: np.array(values) for name, values in scores.items()}}
    return SimpleNamespace(non_tensor_batch=columns)


def test_failed_samples_do_not_count_in_the_means():
    batch = make_batch([0, 0, 1], acc=[1.0, 0.0, 0.5], reward_correct=[1.0, 0.0, 0.5])
    assert reward_metrics(batch.non_tensor_batch) == {
        "reward/infra": pytest.approx(1 / 3),
        "reward/acc": 0.5,
        "reward/correct": 0.5,
    }


def test_a_batch_that_nobody_could_score_reports_only_that():
    assert reward_metrics(make_batch([1, 1], acc=[np.nan, np.nan]).non_tensor_batch) == {"reward/infra": 1}


def test_batches_of_other_managers_report_nothing():
    assert reward_metrics({"acc": np.array([1.0])}) == {}


def test_a_users_part_is_logged_and_columns_that_are_no_scores_are_not():
    batch = make_batch([0, 0], reward_comment=[0.01, 0.0], other=[1.0, 1.0])
    batch.non_tensor_batch["reward_model"] = np.array([{"ground_truth": "{}"}] * 2, dtype=object)
    assert reward_metrics(batch.non_tensor_batch) == {"reward/infra": 0, "reward/comment": 0.005}


def test_training_survives_a_single_lost_step_and_stops_at_the_second_within_the_window():
    """A batch without ``infra`` is one whose scoring failed as a whole."""
    guard, lost = InfraGuard(0.25), SimpleNamespace(non_tensor_batch={})
    for batch in (make_batch([1, 1]), *[make_batch([0, 0])] * WINDOW_STEPS, lost):
        guard(batch)
    with pytest.raises(SetupError, match="50% of the samples"):
        guard(make_batch([1, 1]))
    InfraGuard(1.0)(make_batch([1, 1]))
    with pytest.raises(SetupError, match=r"max_infra_rate=0\.0"):
        InfraGuard(0.0)(make_batch([0, 0, 0, 1]))
