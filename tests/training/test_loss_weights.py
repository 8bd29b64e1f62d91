"""A token's weight in the loss is the same in any micro-batches: gradients are those of veRL's own pairs of rows."""

from functools import cache

import numpy as np
import pytest
import torch
from actors import make_update, updated, verls_actor, worker_settings
from verl.workers.actor import dp_actor

from cobalt.training import patches, shared_prompts
from cobalt.training.online import MINI_BATCHES
from cobalt.training.settings import RELEASE, TOKENS
from cobalt.training.shared_prompts import micro_batches
from cobalt.training.workers import CobaltActor, token_weights

__all__ = ["verls_actor"]
ROWS = [("d", 6), ("d", 1), ("i", 1), ("i", 5), ("d", 1), ("b", 0), ("b", 6), ("b", 2)]
"""Two mini-batches of two pairs, in each of which one response is several times as long as the other."""
PACKINGS = {"one micro-batch": (99, 1), "whole groups": (20, 1), "pairs parted": (14, 1), "single rows": (20, 4)}
"""Tokens of a micro-batch, and at least so many micro-batches of a mini-batch."""
UNCLIPPED = {"grad_clip": 1e9}


@pytest.fixture(autouse=True)
def fp32(verls_actor):
    return verls_actor


def fixed(rows, actor=dp_actor.DataParallelPPOActor, settings=None, data=None, **config):
    """Gradients of each step, and metrics, in micro-batches of so many rows: veRL's own actor, or ours."""
    config = {"ppo_micro_batch_size_per_gpu": rows, **UNCLIPPED, **config}
    return updated(actor, data or make_update(ROWS), settings, **config)[:2]


verls_own = cache(fixed)
"""The same, computed once for each number of rows."""


def packed(fp32, packing, weights, rows=2, actor=CobaltActor, **config):
    """Of shared prompts in the micro-batches of a packing."""
    max_tokens, at_least = packing

    def batches_of(rows, max_tokens, at_least=at_least):
        return micro_batches(rows, max_tokens, at_least)

    fp32.setattr(shared_prompts, "micro_batches", batches_of)
    patches.share_prompts_in_micro_batches()
    dynamic = {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": max_tokens, "ppo_micro_batch_size_per_gpu": rows}
    settings = worker_settings(share_prompts=True, loss_weights=weights)
    return updated(actor, make_update(ROWS), settings, **dynamic, **UNCLIPPED, **config)[:2]


def assert_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def are_close(one, other):
    return torch.allclose(one, other, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    ("weights", "rows", "own_rows"), [*((RELEASE, rows, rows) for rows in (1, 2, 4)), (TOKENS, 2, 4)]
)
@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
def test_any_micro_batches_have_the_gradients_of_verls_own_of_so_many_rows(packing, weights, rows, own_rows, fp32):
    """``tokens``: of all four rows of a mini-batch."""
    own, _ = verls_own(own_rows)
    ours, _ = packed(fp32, packing, weights, rows)
    assert len(own) == 2
    assert_equal(ours, own)
    assert rows == own_rows or not are_close(ours, verls_own(rows)[0])


def test_the_packings_differ_and_verl_would_weigh_tokens_by_them(fp32):
    own = dp_actor.DataParallelPPOActor
    results = [packed(fp32, packing, RELEASE, actor=own) for packing in PACKINGS.values()]
    assert [len(metrics["actor/pg_loss"]) for _, metrics in results] == [2, 3, 5, 8]
    whole, *others = [gradients for gradients, _ in results]
    assert not any(are_close(other, whole) for other in others)


def test_every_term_of_the_loss_is_weighed(fp32):
    """Coefficients under which the KL term and the entropy term are most of the gradient."""
    coefficients = {"kl_loss_coef": 10.0, "entropy_coeff": 10.0}
    own, own_metrics = fixed(2, **coefficients)
    ours, metrics = packed(fp32, PACKINGS["one micro-batch"], RELEASE, **coefficients)
    assert_equal(ours, own)
    for name in ("actor/pg_loss", "actor/kl_loss", "actor/ppo_kl"):
        assert len(metrics[name]) == 2 and len(own_metrics[name]) == 4
        assert np.mean(metrics[name]) == pytest.approx(np.mean(own_metrics[name]), rel=1e-3)


def test_without_dynamic_micro_batches_release_is_verls_own_to_the_bit():
    own, own_metrics = verls_own(2)
    ours, metrics = fixed(2, CobaltActor, worker_settings(loss_weights=RELEASE))
    assert ours.equal(own) and metrics == own_metrics


def test_tokens_have_their_mean_in_micro_batches_of_a_fixed_size_too_and_the_data_keep_their_mask():
    """Online training says what a mini-batch is."""
    for config, meta in (({}, {}), ({"ppo_mini_batch_size": 8}, {MINI_BATCHES: 2})):
        data = make_update(ROWS)
        data.meta_info |= meta
        before = data.batch["response_mask"].clone()
        ours, _ = fixed(2, CobaltActor, worker_settings(loss_weights=TOKENS), data, **config)
        assert_equal(ours, verls_own(4)[0])
        assert data.batch["response_mask"].equal(before)


def test_rows_without_tokens_count_for_nothing():
    mask = torch.tensor([[1, 1], [0, 0], [0, 0], [0, 0], [1, 0]])
    assert token_weights(mask, 2).tolist() == [[1, 1], [0, 0], [0, 0], [0, 0], [2, 0]]
