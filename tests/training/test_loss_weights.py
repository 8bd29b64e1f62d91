"""A token's weight in the loss is the same in any micro-batches: gradients are those of veRL's own pairs of rows."""

from importlib import import_module
from pkgutil import resolve_name

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from test_shared_prompts import ACTOR_FORWARD, SETTINGS, fp32, make_model, make_update
from verl.workers.actor import dp_actor

from cobalt.training.online.rows import MINI_BATCHES
from cobalt.training.patches import loss_weights, shared_prompts
from cobalt.training.patches.table import RELEASE, TOKENS, WEIGHTS_VARIABLE, patches_of

__all__ = ["fp32"]
ACTOR = dp_actor.DataParallelPPOActor
UPDATE = ACTOR.update_policy
ROWS = [("d", 6), ("d", 1), ("i", 1), ("i", 5), ("d", 1), ("b", 0), ("b", 6), ("b", 2)]
"""Two mini-batches of two pairs, in each of which one response is several times as long as the other."""
PACKINGS = {"one micro-batch": (99, 1), "whole groups": (20, 1), "pairs parted": (14, 1), "single rows": (20, 4)}
"""Tokens of a micro-batch, and at least so many micro-batches of a mini-batch."""


@pytest.fixture(autouse=True)
def patched(monkeypatch):
    """veRL's actor is as it was when the test is over."""
    monkeypatch.setattr(dp_actor, "prepare_dynamic_batch", dp_actor.prepare_dynamic_batch)
    monkeypatch.setattr(ACTOR, "_forward_micro_batch", ACTOR_FORWARD)
    monkeypatch.setattr(ACTOR, "update_policy", UPDATE)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr("verl.utils.profiler.performance._get_current_mem_info", lambda: ("",) * 4)
    return monkeypatch


def updated(data, **settings):
    """Gradients of each optimizer step (not clipped), and metrics, of the actor as it is patched now."""
    model, gradients = make_model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(
        lambda *_: gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    )
    config = OmegaConf.create({**SETTINGS, "grad_clip": 1e9, **settings})
    metrics = ACTOR(config, model, optimizer).update_policy(data)
    assert config.loss_agg_mode == "token-mean"
    return torch.stack(gradients), metrics


def of_verl(rows, **settings):
    """Of veRL's own actor, in micro-batches of so many rows."""
    fixed = {"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": rows, "use_remove_padding": False}
    return updated(make_update(ROWS), **fixed, **settings)


def packed(patched, weights, packing, rows=2):
    """Of shared prompts in the micro-batches of a packing; without ``weights``, with those that veRL gives tokens."""
    max_tokens, at_least = packing
    patched.setattr(shared_prompts, "_most_of_all_ranks", lambda count: max(count, at_least))
    shared_prompts.patch_actor(dp_actor)
    if weights is not None:
        patched.setenv(WEIGHTS_VARIABLE, weights)
        loss_weights.patch_actor(dp_actor)
    dynamic = {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": max_tokens, "ppo_micro_batch_size_per_gpu": rows}
    return updated(make_update(ROWS), **dynamic, use_remove_padding=True)


def assert_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def are_close(one, other):
    return torch.allclose(one, other, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
def test_any_micro_batches_have_the_gradients_of_verls_own_of_so_many_rows(packing, rows, patched):
    own, _ = of_verl(rows)
    ours, _ = packed(patched, RELEASE, packing, rows)
    assert len(own) == 2
    assert_equal(ours, own)


@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
def test_tokens_are_the_mean_over_a_mini_batch_in_any_micro_batches(packing, patched):
    whole, pairs = of_verl(4)[0], of_verl(2)[0]
    ours, _ = packed(patched, TOKENS, packing)
    assert_equal(ours, whole)
    assert not are_close(ours, pairs)


def test_the_packings_differ_and_verl_would_weigh_tokens_by_them(patched):
    results = [packed(patched, None, packing) for packing in PACKINGS.values()]
    assert [len(metrics["actor/pg_loss"]) for _, metrics in results] == [2, 3, 5, 8]
    whole, *others = [gradients for gradients, _ in results]
    assert not any(are_close(other, whole) for other in others)


def test_every_term_of_the_loss_is_weighed(patched):
    """Coefficients under which the KL term and the entropy term are most of the gradient."""
    patched.setitem(SETTINGS, "kl_loss_coef", 10.0)
    patched.setitem(SETTINGS, "entropy_coeff", 10.0)
    own, own_metrics = of_verl(2)
    ours, metrics = packed(patched, RELEASE, PACKINGS["one micro-batch"])
    assert_equal(ours, own)
    for name in ("actor/pg_loss", "actor/kl_loss", "actor/ppo_kl"):
        assert len(metrics[name]) == 2 and len(own_metrics[name]) == 4
        assert np.mean(metrics[name]) == pytest.approx(np.mean(own_metrics[name]), rel=1e-3)


def test_without_dynamic_micro_batches_release_is_verls_own_to_the_bit(patched):
    own, own_metrics = of_verl(2)
    patched.setenv(WEIGHTS_VARIABLE, RELEASE)
    loss_weights.patch_actor(dp_actor)
    ours, metrics = of_verl(2)
    assert ours.equal(own) and metrics == own_metrics


def test_tokens_have_their_mean_in_micro_batches_of_a_fixed_size_too(patched):
    whole, _ = of_verl(4)
    patched.setenv(WEIGHTS_VARIABLE, TOKENS)
    loss_weights.patch_actor(dp_actor)
    assert_equal(of_verl(2)[0], whole)


def test_the_data_keep_their_mask(patched):
    data = make_update(ROWS)
    before = data.batch["response_mask"].clone()
    patched.setenv(WEIGHTS_VARIABLE, TOKENS)
    loss_weights.patch_actor(dp_actor)
    updated(data, use_dynamic_bsz=False, ppo_micro_batch_size_per_gpu=2, use_remove_padding=False)
    assert data.batch["response_mask"].equal(before)


def test_in_the_tables_order_online_training_says_what_a_mini_batch_is(patched):
    whole, _ = of_verl(4)
    patched.setenv(WEIGHTS_VARIABLE, TOKENS)
    for patch in patches_of("verl", share_prompts=False, online=True):
        if patch.module == dp_actor.__name__:
            resolve_name(patch.apply)(import_module(patch.module))
    data = make_update(ROWS)
    data.meta_info[MINI_BATCHES] = 2
    fixed = {"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": 2, "use_remove_padding": False}
    assert_equal(updated(data, **fixed, ppo_mini_batch_size=8)[0], whole)


def test_rows_without_tokens_count_for_nothing():
    mask = torch.tensor([[1, 1], [0, 0], [0, 0], [0, 0], [1, 0]])
    assert loss_weights.token_weights(mask, 2).tolist() == [[1, 1], [0, 0], [0, 0], [0, 0], [2, 0]]
