"""Metrics of a step, and the stop after too many failures."""

from types import SimpleNamespace

import numpy as np
import pytest

from cobalt.errors import SetupError
from cobalt.training.reward_metrics import reward_metrics
from cobalt.training.unscored import WINDOW_STEPS, InfraGuard


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


def test_a_single_bad_step_is_survived():
    guard = InfraGuard(0.25)
    guard(make_batch([1, 1]))
    for _ in range(WINDOW_STEPS):
        guard(make_batch([0, 0]))


def test_training_stops_when_failures_go_on():
    guard = InfraGuard(0.25)
    guard(make_batch([1, 1]))
    with pytest.raises(SetupError, match="50% of the samples"):
        guard(make_batch([1, 1]))


def test_batches_whose_scoring_failed_as_a_whole_count_as_failures():
    guard = InfraGuard(0.25)
    guard(SimpleNamespace(non_tensor_batch={}))
    with pytest.raises(SetupError, match="50% of the samples"):
        guard(SimpleNamespace(non_tensor_batch={}))


def test_the_share_is_configurable():
    with pytest.raises(SetupError):
        InfraGuard(0.0)(make_batch([0, 0, 0, 1]))
    InfraGuard(1.0)(make_batch([1, 1]))
