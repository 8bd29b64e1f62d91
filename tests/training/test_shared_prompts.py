"""Shared prompts give what veRL's own forward pass gives: log-probabilities, entropies, gradients, updates."""

from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from verl import DataProto
from verl.workers.actor import dp_actor

from cobalt.training.patches import shared_attention, shared_prompts

PROMPTS, RESPONSES, VOCAB = 9, 6, 50
ACTOR_FORWARD = dp_actor.DataParallelPPOActor._forward_micro_batch
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}


def make_model(model=Qwen3ForCausalLM, config=Qwen3Config, tied=True):
    torch.manual_seed(0)
    made = config(**SHAPE, tie_word_embeddings=tied)
    made._attn_implementation = "sdpa"
    return model(made)


def make_batch(rows, seed=0):
    """A batch of ``rows``: name of the prompt (whose length is its ordinal among the letters), response tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCAB, (len(rows), PROMPTS + RESPONSES), generator=generator)
    prompts = {name: torch.randint(1, VOCAB, (PROMPTS,), generator=generator) for name in "abcdefghi"}
    mask = torch.zeros_like(ids)
    for row, (name, tokens) in enumerate(rows):
        ids[row, :PROMPTS] = prompts[name]
        mask[row, PROMPTS - 1 - "abcdefghi".index(name) : PROMPTS + tokens] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "responses": ids[:, PROMPTS:]}


BATCHES = {
    "two prompts, rows out of order": [("d", 6), ("i", 1), ("d", 3), ("d", 6), ("i", 5)],
    "groups of one row": [("a", 6), ("d", 2), ("i", 4)],
    "a response without tokens": [("d", 3), ("d", 0), ("d", 2), ("f", 1)],
    "a group without tokens": [("d", 0), ("f", 2), ("d", 0), ("f", 3)],
    "a prompt of one token, responses of one": [("a", 1), ("a", 1), ("a", 1)],
}


def make_actor(model, **config):
    actor = SimpleNamespace(actor_module=model, device_name="cpu", use_remove_padding=True)
    actor.use_fused_kernels = actor.use_ulysses_sp = False
    actor.config = {"use_torch_compile": False, **config}
    return actor


def padded(model, batch, temperature, with_entropy):
    """veRL's own forward pass, on padded rows."""
    actor = make_actor(model)
    actor.use_remove_padding, actor.config = False, SimpleNamespace(entropy_checkpointing=False)
    return ACTOR_FORWARD(actor, batch, temperature, with_entropy)


def shared(model, batch, temperature, with_entropy):
    return shared_prompts._forward(make_actor(model), batch, temperature, with_entropy)


def scores_and_gradients(forward, model, batch):
    mask = batch["attention_mask"][:, PROMPTS:]
    entropy, log_probs = forward(model, batch, 0.7, True)
    ((log_probs + 0.1 * entropy) * mask).sum().backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return entropy * mask, log_probs * mask, gradients


@pytest.fixture(autouse=True)
def fp32(monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    monkeypatch.setattr(torch, "autocast", lambda *_args, **_kwargs: torch.enable_grad())
    monkeypatch.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", {})


@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
def test_scores_and_gradients_equal_verls(rows):
    results = [scores_and_gradients(forward, make_model(), make_batch(rows)) for forward in (padded, shared)]
    for own, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", [(Qwen3ForCausalLM, Qwen3Config), (LlamaForCausalLM, LlamaConfig)])
def test_they_equal_for_each_model_with_and_without_recomputation(kind, tied, checkpointing):
    batch = make_batch(BATCHES["two prompts, rows out of order"])
    own = scores_and_gradients(padded, make_model(*kind, tied), batch)
    model = make_model(*kind, tied)
    if checkpointing:
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for expected, found in zip(own, scores_and_gradients(shared, model, batch), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_attention_is_computed_once_where_layers_are_computed_again(checkpointing, monkeypatch):
    computed, forward = [], shared_attention.PLAIN.forward
    counting = shared_attention.PLAIN._replace(forward=lambda *args: computed.append(args) or forward(*args))
    monkeypatch.setattr(shared_attention, "PLAIN", counting)
    model = make_model().train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    norms = []
    model.model.layers[0].input_layernorm.register_forward_hook(lambda *_: norms.append(1))
    shared(model, make_batch(BATCHES["two prompts, rows out of order"]), 1.0, False)[1].sum().backward()
    assert len(norms) == 1 + checkpointing
    assert len(computed) == 2 * len(model.model.layers)  # alone and across, for each layer


def test_recomputation_sees_the_plan_of_its_own_micro_batch():
    """Two forward passes before the first backward pass: state kept anywhere but in the graph would be the second's."""
    batches = [make_batch(BATCHES[name], seed) for seed, name in enumerate(list(BATCHES)[:2])]
    gradients = []
    for together in (False, True):
        model = make_model().train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        sums = [shared(model, batch, 1.0, False)[1].sum() for batch in batches] if together else []
        for batch in [] if together else batches:
            shared(model, batch, 1.0, False)[1].sum().backward()
        for value in sums:
            value.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*gradients)


def test_outside_of_the_responses_everything_is_zero():
    batch = make_batch(BATCHES["a response without tokens"])
    _, log_probs = shared(make_model(), batch, 1.0, False)
    assert (log_probs == 0).equal(batch["attention_mask"][:, PROMPTS:] == 0)


def test_a_micro_batch_without_any_response_token_has_zero_scores_and_gradients():
    model = make_model()
    _, log_probs = shared(model, make_batch([("d", 0), ("d", 0)]), 1.0, False)
    log_probs.sum().backward()
    assert not log_probs.any()
    assert not any(parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


def test_each_prompt_goes_through_the_model_once_and_no_prompt_is_scored(monkeypatch):
    model, seen = make_model(), []
    model.model.embed_tokens.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape))
    batch = make_batch(BATCHES["two prompts, rows out of order"])
    layout = shared_prompts.lay_out(batch)
    shared(model, batch, 1.0, False)
    assert seen == [(1, 4 + 9 + 6 + 3 + 6 + 1 + 5)]
    assert len(layout.predictors_R) == 6 + 3 + 6 + 1 + 5


def test_models_it_does_not_know_are_refused():
    model = make_model()
    model.config.model_type = "gemma2"
    with pytest.raises(NotImplementedError, match="gemma2"):
        shared(model, make_batch([("d", 1)]), 1.0, False)


def test_eager_attention_is_refused():
    model = make_model()
    model.config._attn_implementation = "eager"
    with pytest.raises(NotImplementedError, match="eager"):
        shared(model, make_batch([("d", 1)]), 1.0, False)


def test_forward_passes_without_shared_prompts_are_as_before():
    model, batch = make_model(), make_batch([("d", 6), ("i", 1)])
    before = padded(model, batch, 1.0, False)[1]
    shared(model, batch, 1.0, False)
    assert padded(model, batch, 1.0, False)[1].equal(before)


def make_data(rows, **extra):
    return DataProto(batch=TensorDict({**make_batch(rows), **extra}, batch_size=len(rows)))


def test_micro_batches_hold_whole_groups_and_results_return_to_their_rows():
    rows = [("d", 6), ("i", 1), ("d", 3), ("i", 5), ("d", 6), ("b", 2)]
    data = make_data(rows)
    micro_batches, places = shared_prompts.prepare_dynamic_batch(data, 19)
    assert sorted(map(sorted, places)) == [[0, 2, 4], [1, 3, 5]]
    results = torch.cat([batch.batch["input_ids"] for batch in micro_batches])
    assert dp_actor.restore_dynamic_batch(results, places).equal(data.batch["input_ids"])


SETTINGS = {
    "ulysses_sequence_parallel_size": 1,
    "entropy_from_logits_with_chunking": False,
    "entropy_checkpointing": False,
    "use_torch_compile": False,
    "ppo_epochs": 1,
    "clip_ratio": 0.2,
    "clip_ratio_low": 0.2,
    "clip_ratio_high": 0.4,
    "entropy_coeff": 0.01,
    "loss_agg_mode": "token-mean",
    "policy_loss": {"loss_mode": "vanilla"},
    "use_kl_loss": True,
    "kl_loss_type": "mse",
    "kl_loss_coef": 0.1,
    "grad_clip": 1.0,
    "ppo_mini_batch_size": 4,
}
ROWS = [("d", 6), ("d", 1), ("i", 3), ("i", 5), ("d", 2), ("d", 4), ("b", 6), ("b", 6)]


def make_update(rows):
    """A batch as veRL's trainer hands it to ``update_policy``."""
    generator = torch.Generator().manual_seed(1)
    noise = [torch.randn(len(rows), RESPONSES, generator=generator) for _ in range(3)]
    data = make_data(
        rows,
        response_mask=make_batch(rows)["attention_mask"][:, PROMPTS:],
        old_log_probs=noise[0] * 0.1 - 4,
        ref_log_prob=noise[1] * 0.1 - 4,
        advantages=noise[2],
    )
    data.meta_info["temperature"] = 1.0
    return data


def update(is_shared, monkeypatch, **settings):
    """Metrics of veRL's ``update_policy`` and the parameters after it, with its own forward pass or the shared one."""
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr("verl.utils.profiler.performance._get_current_mem_info", lambda: ("",) * 4)
    model, settings = make_model(), {**SETTINGS, **settings, "use_remove_padding": is_shared}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    actor = dp_actor.DataParallelPPOActor(OmegaConf.create(settings), model, optimizer)
    metrics = actor.update_policy(make_update(ROWS))
    return metrics, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture
def patched(monkeypatch):
    """veRL's actor with the patches, for this test."""
    monkeypatch.setattr(dp_actor, "prepare_dynamic_batch", dp_actor.prepare_dynamic_batch)
    monkeypatch.setattr(dp_actor.DataParallelPPOActor, "_forward_micro_batch", ACTOR_FORWARD)
    shared_prompts.patch_actor(dp_actor)


@pytest.mark.parametrize("max_tokens", [17, 99], ids=["several micro-batches", "one"])
def test_the_update_is_verls_dynamic_one_on_the_same_micro_batches(max_tokens, patched, monkeypatch):
    settings = {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": max_tokens}
    _, own = update(False, monkeypatch, **settings)
    _, ours = update(True, monkeypatch, **settings)
    torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_update_is_verls_fixed_one_on_micro_batches_of_a_fixed_size(size, patched, monkeypatch):
    settings = {"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": size}
    own_metrics, own = update(False, monkeypatch, **settings)
    metrics, ours = update(True, monkeypatch, **settings)
    torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)
    assert metrics["actor/grad_norm"] == pytest.approx(own_metrics["actor/grad_norm"], rel=1e-3)
    assert metrics["actor/kl_loss"] == pytest.approx(own_metrics["actor/kl_loss"], rel=1e-3)


def test_a_group_cut_over_two_micro_batches_has_the_same_scores():
    batch = make_batch([("d", 6), ("d", 1), ("d", 3)])
    _, whole = shared(make_model(), batch, 1.0, False)
    parts = [shared(make_model(), {k: v[rows] for k, v in batch.items()}, 1.0, False)[1] for rows in ([0, 1], [2])]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)


def balanced(rows, ranks):
    """Prompts and response tokens of each rank's rows."""
    data, names = make_data(rows), list(range(len(rows)))
    data.batch["number"] = torch.tensor(names)
    trainer = SimpleNamespace(actor_rollout_wg=SimpleNamespace(world_size=ranks))
    metrics = {}
    shared_prompts.balance_batch(trainer, data, metrics)
    order = data.batch["number"].tolist()
    assert sorted(order) == names
    size = len(rows) // ranks
    return [[rows[i] for i in order[start : start + size]] for start in range(0, len(rows), size)], metrics


def test_ranks_get_whole_groups_balanced_by_shared_tokens():
    rows = [("a", 6), ("a", 6), ("b", 1), ("b", 1), ("c", 6), ("c", 5), ("d", 1), ("d", 2)]
    by_rank, metrics = balanced(rows, 2)
    assert sorted(sorted({name for name, _ in rank}) for rank in by_rank) == [["a", "d"], ["b", "c"]]
    assert metrics["global_seqlen/balanced_max"] == 20


def test_groups_are_cut_in_equal_parts_where_ranks_outnumber_them():
    rows = [("a", 6)] * 4 + [("b", 1)] * 4
    by_rank, _ = balanced(rows, 4)
    assert all(len({name for name, _ in rank}) == 1 for rank in by_rank)
