"""veRL's engine with shared prompts: its gradients are veRL's own, with and without an adapter."""

import json
import runpy
import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import plain_attention
import pytest
import torch
from online_parts import MODEL, jagged
from peft import LoraConfig, get_peft_model
from tensordict import TensorDict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.utils import torch_functional
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.fsdp_utils import apply_fsdp2, collect_lora_params, get_fsdp_wrap_policy
from verl.utils.metric import reduce_metrics
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig, PolicyLossConfig
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding, response_from_nested

from cobalt.records import write_jsonl
from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, training_manifest
from cobalt.training import engine as engine_module
from cobalt.training.engine import CobaltEngine, SharedPromptEngine
from cobalt.training.merge import ADAPTER_FOLDER, MergeConfig, add_adapter, merge
from cobalt.training.preflight import NAMES, REGISTERED, ROW_LOSSES
from cobalt.training.shared_attention import extend_attention
from cobalt.training.shared_prompts import prepare

LOSS_MODE = "actor_rollout_ref.actor.policy_loss.loss_mode"
PLAIN = transformer_impl.FSDPEngineWithLMHead


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    """In a single process."""
    plain_attention.install(monkeypatch)
    monkeypatch.setattr(ALL_ATTENTION_FUNCTIONS, "_local_mapping", {})
    for module in (transformer_impl, engine_module):
        monkeypatch.setattr(module, "get_device_id", lambda: "cpu")
        monkeypatch.setattr(module, "get_device_name", lambda: "cpu")
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_args, **_kwargs: None)


@pytest.mark.parametrize("is_reference", [False, True])
@pytest.mark.parametrize("is_offloaded", [False, True])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_reference_stays_on_its_gpu_unless_it_is_to_be_offloaded(monkeypatch, is_reference, is_offloaded, device):
    """veRL offloads what only goes forward. In the host's memory nothing is to be."""

    def build(self, module):
        seen.append(self.engine_config.forward_only)
        if module is None:
            raise ValueError

    seen, made = [], object.__new__(CobaltEngine)
    monkeypatch.setattr(PLAIN, "_build_fsdp_module", build)
    monkeypatch.setattr(engine_module, "get_device_name", lambda: device)
    made.engine_config = FSDPEngineConfig(forward_only=is_reference, param_offload=is_offloaded)
    made._build_fsdp_module("a model")
    with pytest.raises(ValueError):
        made._build_fsdp_module(None)
    assert (
        seen == [is_reference and is_offloaded and device == "cuda"] * 2
        and made.engine_config.forward_only == is_reference
    )


def engine_of(kind, kernels=True):
    """An engine around MiniCoder in fp32, without what needs a GPU. ``kernels``: with a GPU's attention."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    made = object.__new__(kind)
    made.module, made._head, made._autocast_dtype = model, model.get_output_embeddings(), torch.float32
    made.engine_config = SimpleNamespace(
        use_torch_compile=False, entropy_checkpointing=False, entropy_from_logits_with_chunking=False
    )
    made.use_ulysses_sp = made.pad_to_length = False
    made.compute_entropy_from_logits = torch_functional.entropy_from_logits
    made.scaler, made._gradient_sync_context = None, lambda **_: nullcontext()
    made.get_data_parallel_group, made.get_data_parallel_size = (lambda: None), (lambda: 1)
    if kind is SharedPromptEngine and kernels:
        extend_attention(model.config)
    return made


def batch_of(prompts, responses, **settings):
    """A batch of rows without padding, as veRL's engine takes it."""
    ids = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    ones = jagged([torch.ones(len(row), dtype=torch.long) for row in responses])
    made = TensorDict(
        {
            "input_ids": jagged(ids),
            "position_ids": jagged([torch.arange(len(row)) for row in ids]),
            "prompts": jagged(prompts),
            "responses": jagged(responses),
            "response_mask": ones,
            "loss_mask": ones.clone(),
        },
        batch_size=len(ids),
    )
    tu.assign_non_tensor(made, temperature=0.8, use_remove_padding=False, dp_size=1, micro_batch_size_per_gpu=2)
    tu.assign_non_tensor(made, **settings)
    return made


def mini_batch():
    """Four rows of two prompts, interleaved, with all that the loss reads."""
    random = torch.Generator().manual_seed(0)
    first, second = (torch.randint(5, 200, (length,), generator=random) for length in (7, 11))
    prompts = [first, second, first.clone(), second.clone()]
    responses = [torch.randint(5, 200, (length,), generator=random) for length in (3, 6, 1, 4)]
    made = batch_of(prompts, responses, calculate_entropy=False, global_batch_size=4)
    made["old_log_probs"] = jagged([-torch.rand(len(row), generator=random) for row in responses])
    made["ref_log_prob"] = jagged([-torch.rand(len(row), generator=random) for row in responses])
    made["advantages"] = jagged([torch.randn(1, generator=random).expand(len(row)).clone() for row in responses])
    made["rollout_is_weights"] = jagged([2 * torch.rand(len(row), generator=random) for row in responses])
    return made


def gradients(engine):
    return {name: weight.grad for name, weight in engine.module.named_parameters()}


def assert_close(found, expected, **bounds):
    assert max(float(values.abs().max()) for values in expected.values()) > 1e-3
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, **bounds)


@pytest.mark.parametrize(("weights", "kernels"), [("release", True), ("tokens", True), ("tokens", False)])
def test_a_step_on_trees_of_contexts_is_that_of_each_row_by_itself(weights, kernels, monkeypatch):
    """Two problems, whose contexts of three turns have responses: forward and backward in small micro-batches."""
    random = torch.Generator().manual_seed(0)
    turns = [torch.randint(5, 200, (60,), generator=random) for _ in range(2)]
    prompts = [turn[:length] for length in (20, 60, 40, 20, 60) for turn in turns]
    responses = [torch.randint(5, 200, (1 + number % 5,), generator=random) for number in range(len(prompts))]
    data = batch_of(prompts, responses, calculate_entropy=True, max_token_len_per_gpu=90)
    data["advantages"] = jagged([torch.randn(len(row), generator=random) for row in responses])

    def loss(model_output, data, dp_group):
        values = {name: no_padding_2_padding(of, data) for name, of in model_output.items()}
        weights = tu.get_non_tensor_data(data, "batch_num_tokens", None)
        advantages = data["advantages"].to_padded_tensor(0.0)
        mask = data["response_mask"].to_padded_tensor(0)
        return ((values["log_probs"] * advantages + values["entropy"]) * mask).sum() / weights, {}

    plain, shared = engine_of(PLAIN), engine_of(SharedPromptEngine, kernels)
    monkeypatch.setenv("COBALT_LOSS_WEIGHTS", weights)
    seen = []
    shared.module.model.embed_tokens.register_forward_hook(lambda _module, args, _output: seen.append(args[0].numel()))
    found = shared.forward_backward_batch(data.clone(), None, forward_only=True)["model_output"]
    assert len(seen) == 2 and max(seen) <= 90
    assert sum(seen) == 2 * 60 + sum(map(len, responses))
    shared.forward_backward_batch(data.clone(), loss)
    tokens = int(data["loss_mask"].values().sum())
    tu.assign_non_tensor(data, batch_num_tokens=tokens)
    row_weights = shared._release_weights(data["loss_mask"], data)
    for row in range(len(prompts)):
        alone = tu.index_select_tensor_dict(data, [row])
        if weights == "release":
            tu.assign_non_tensor(alone, batch_num_tokens=tokens / float(row_weights[row]))
        total, output = plain.forward_step(alone, loss, False)
        total.backward()
        for name in ("log_probs", "entropy"):
            expected, of_row = (
                no_padding_2_padding(jagged([values]), alone)
                for values in (output["model_output"][name].unbind()[0], found[name].unbind()[row])
            )
            torch.testing.assert_close(of_row, expected, atol=1e-4, rtol=1e-4)
    assert_close(gradients(shared), gradients(plain), atol=2e-4, rtol=1e-3)


def test_losses_are_scaled_where_training_is_in_fp16(monkeypatch):
    """veRL's optimizer step unscales the gradients, and ends in an assertion where nothing was scaled."""
    monkeypatch.setenv("COBALT_LOSS_WEIGHTS", "tokens")
    grads = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=8.0)):
        engine = engine_of(SharedPromptEngine)
        engine.scaler, data = scaler, mini_batch()
        tu.assign_non_tensor(data, max_token_len_per_gpu=90)
        loss = lambda model_output, data, dp_group: (model_output["log_probs"].values().sum(), {})  # noqa: E731
        engine.forward_backward_batch(data, loss)
        if scaler is not None:
            optimizer = torch.optim.SGD(engine.module.parameters(), lr=0.0)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
        grads.append(gradients(engine))
    assert_close(grads[1], grads[0], atol=1e-5, rtol=1e-4)


def loss_of(mode="vanilla", **settings):
    config = FSDPActorConfig(
        strategy="fsdp", ppo_mini_batch_size=4, ppo_micro_batch_size_per_gpu=2, rollout_n=1,
        use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="mse", clip_ratio_low=0.2, clip_ratio_high=0.4,
        policy_loss=PolicyLossConfig(loss_mode=mode, dro_beta=1.0), **settings,
    )  # fmt: skip
    return partial(ppo_loss, config=config)


@pytest.mark.parametrize("aggregation", NAMES["actor_rollout_ref.actor.loss_agg_mode"])
@pytest.mark.parametrize("mode", sorted({*REGISTERED[LOSS_MODE]} - {"clip_cov", "kl_cov"}))
def test_a_tokens_weight_does_not_depend_on_micro_batches(mode, aggregation):
    loss, data, found = loss_of(mode, loss_agg_mode=aggregation, loss_scale_factor=9), mini_batch(), []
    tu.assign_non_tensor(data, batch_num_tokens=data["loss_mask"].sum().item())
    for parts in ([[0, 1, 2, 3]], [[0], [1, 2], [3]]):
        log_probs = [(-torch.ones(len(row)) / 2).requires_grad_() for row in data["input_ids"].unbind()]
        for rows in parts:
            output = {"log_probs": jagged([log_probs[row] for row in rows])}
            loss(model_output=output, data=tu.index_select_tensor_dict(data, rows))[0].backward()
        found.append(torch.cat([row.grad for row in log_probs]))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("mode", ROW_LOSSES)
def test_the_releases_token_weights_are_those_of_micro_batches_of_two_rows(mode):
    loss = loss_of(mode)
    plain, shared = engine_of(PLAIN), engine_of(SharedPromptEngine)
    for rows in ([0, 1], [2, 3]):
        chunk = tu.index_select_tensor_dict(mini_batch(), rows)
        tu.assign_non_tensor(chunk, batch_num_tokens=chunk["loss_mask"].sum().item())
        (plain.forward_step(chunk, loss, False)[0] / 2).backward()
    whole = mini_batch()
    tu.assign_non_tensor(whole, batch_num_tokens=whole["loss_mask"].sum().item())
    whole["row_weights"] = shared._release_weights(whole["loss_mask"], whole)
    padding, masks = torch.zeros(1, dtype=torch.long), whole["loss_mask"].unbind()
    padded = jagged([masks[0], padding, *masks[1:], padding])  # anywhere among the rows
    assert shared._release_weights(padded, whole)[[0, 2, 3, 4]].equal(whole["row_weights"])
    assert shared._release_weights(jagged([padding]), whole).tolist() == [0]
    shared.forward_step(whole, loss, False)[0].backward()
    assert_close(gradients(shared), gradients(plain), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("weights", ["release", "tokens"])
def test_old_log_probs_of_the_update_itself_are_those_of_a_pass_before_it(weights, monkeypatch):
    """And its mean entropy, which that pass would tell."""
    monkeypatch.setenv("COBALT_LOSS_WEIGHTS", weights)
    found = []
    for is_own in (False, True):
        engine, data = engine_of(SharedPromptEngine), mini_batch()
        tu.assign_non_tensor(data, max_token_len_per_gpu=20, calculate_entropy=True)
        del data["old_log_probs"]
        if not is_own:
            passed = engine.forward_backward_batch(data.clone(), None, forward_only=True)["model_output"]
            mask = data["response_mask"]
            data["old_log_probs"] = response_from_nested(passed["log_probs"], mask)
            entropies = response_from_nested(passed["entropy"], mask)
        tu.assign_non_tensor(data, own_old_log_probs=is_own)
        output = engine.forward_backward_batch(data, loss_of())
        found.append((gradients(engine), reduce_metrics(output["metrics"])))
    (expected, _), (grads, metrics) = found
    assert_close(grads, expected, atol=1e-6, rtol=1e-5)
    assert metrics["actor/ppo_kl"] == 0 and metrics["actor/pg_clipfrac"] == 0
    assert metrics["actor/entropy_loss"] == pytest.approx(float(entropies.values().mean()))


@pytest.fixture
def one_process():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def lora_engine(kind):
    """``engine_of`` with an adapter of veRL's own making whose effect is not zero."""
    made = engine_of(kind)
    made.module.train()
    if kind is SharedPromptEngine:  # which prepares the model before veRL adds the adapter
        made.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        prepare(made.module, False)
    settings = {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"}
    made.model_config = SimpleNamespace(**settings, target_parameters=None, exclude_modules=None)
    made.module = made._build_lora_module(made.module)
    random = torch.Generator().manual_seed(1)
    for name, weight in made.module.named_parameters():
        if weight.requires_grad:
            weight.data = torch.randn(weight.shape, generator=random) * (0.02 if "lora_A" in name else 0.2)
    return made


def test_shared_prompts_give_an_adapter_verls_own_gradients_and_the_reference_none(one_process):
    """Under FSDP 2, which gathers the output layer's weight for the forward pass only."""

    def loss(model_output, data, dp_group):
        values = no_padding_2_padding(model_output["log_probs"], data)
        return (values * torch.arange(values.numel()).view_as(values).sin()).sum(), {"log_probs": values}

    plain, shared, base = lora_engine(PLAIN), lora_engine(SharedPromptEngine), engine_of(PLAIN)
    apply_fsdp2(shared.module, {"mesh": init_device_mesh("cpu", (1,)), "reshard_after_forward": True}, {})
    found = []
    for engine in (plain, shared):
        total, output = engine.forward_step(mini_batch(), loss, False)
        total.backward()
        found.append(output["metrics"]["log_probs"])
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-4)
    trained = {name: grad for name, grad in gradients(plain).items() if grad is not None}
    assert trained.keys() == {name for name, grad in gradients(shared).items() if grad is not None}
    assert trained and all("lora_" in name for name in trained)
    sharded = {name: gradients(shared)[name].full_tensor() for name in trained}
    assert_close(sharded, trained, atol=2e-4, rtol=1e-3)
    with shared.disable_adapter():
        _, output = shared.forward_step(mini_batch(), loss, True)
    _, expected = base.forward_step(mini_batch(), loss, True)
    torch.testing.assert_close(output["metrics"], expected["metrics"], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(output["metrics"]["log_probs"], found[1], atol=1e-2)


def test_vllm_gets_an_adapter_from_fsdp2_only(one_process):
    """If this fails for the older FSDP, veRL is mended, and the refusal (``config.completed``) can go."""
    whole = lora_engine(PLAIN).module
    wrapping = get_fsdp_wrap_policy(whole, is_lora=True)
    older = FSDP(whole, auto_wrap_policy=wrapping, device_id=torch.device("cpu"))
    assert not collect_lora_params(older, layered_summon=False, base_sync_done=True)
    module = lora_engine(PLAIN).module
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    adapter = collect_lora_params(module, layered_summon=False, base_sync_done=True)
    assert len(adapter) == sum("lora_" in name for name, _ in module.named_parameters()) > 0


def test_an_adapter_is_merged_into_one_model(one_process, minicoder, tmp_path, monkeypatch):
    """The checkpoint is written by veRL, and read by veRL's merger, which gives the base model and the adapter.

    Its command runs in this process: in one of its own all would be imported again.
    """

    def run(command, **_options):
        _python, _safely, _m, module, *arguments = command
        monkeypatch.setattr(sys, "argv", [module, *arguments])
        runpy.run_module(module, run_name="__main__")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    module = lora_engine(PLAIN).module
    name = "model.layers.3.mlp.down_proj"
    layer = module.base_model.model.get_submodule(name)
    base, low, high = layer.base_layer.weight, layer.lora_A["default"].weight, layer.lora_B["default"].weight
    base, expected = base.clone(), (base + 2 * high @ low).detach().clone()
    fully_shard(module, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))
    contents = CheckpointConfig(save_contents=["model"], load_contents=["model"])
    manager = FSDPCheckpointManager(module, processing_class=minicoder, checkpoint_config=contents)
    manager.save_checkpoint(str(tmp_path / "global_step_3" / "actor"), None, 3)
    (tmp_path / TRACKER_NAME).write_text("3")
    model = {"path": str(MODEL), "lora_rank": 4, "lora_alpha": 8}
    manifest = {"config": {"actor_rollout_ref": {"model": model}}, "inputs": {}, "versions": {}, "git_commit": "c0ffee"}
    training_manifest(tmp_path).write_text(json.dumps(manifest))
    write_jsonl(tmp_path / METRICS_FILE, [{"step": 3, "reward/acc": 0.5}])
    merge(MergeConfig(checkpoint_dir=tmp_path, output_dir=tmp_path / "model"))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    weight = merged.get_submodule(name).weight.float()
    torch.testing.assert_close(weight, expected, atol=2e-3, rtol=1e-2)
    assert not torch.allclose(weight, base, atol=1e-2)
    assert not (tmp_path / "model" / "lora_adapter").exists()


def test_an_adapter_without_a_scale_of_its_own_has_the_runs(tmp_path):
    """As veRL 0.5.0 leaves one: with 0 in its settings."""
    base = AutoModelForCausalLM.from_pretrained(MODEL)
    base.save_pretrained(tmp_path)
    adapted = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["down_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder := tmp_path / ADAPTER_FOLDER)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "lora_alpha": 0}))
    add_adapter(tmp_path, 8)
    merged, expected = AutoModelForCausalLM.from_pretrained(tmp_path), adapted.merge_and_unload()
    torch.testing.assert_close(merged.state_dict(), expected.to(torch.bfloat16).state_dict(), atol=2e-3, rtol=1e-2)


SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
}
CONFIGS = [Qwen3Config(head_dim=16, rope_theta=1e6, **SIZES), LlamaConfig(**SIZES)]


@pytest.mark.parametrize("kind", [CobaltEngine, SharedPromptEngine])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_frequencies_are_those_before_the_cast_and_the_weights_stay_bf16(config, kind, monkeypatch):
    model = AutoModelForCausalLM.from_config(config)
    before = model.model.rotary_emb.inv_freq.clone()
    model.to(torch.bfloat16)
    assert not torch.equal(model.model.rotary_emb.inv_freq.float(), before)
    monkeypatch.setattr(PLAIN, "_build_module", lambda _self: model)
    assert object.__new__(kind)._build_module() is model
    assert torch.equal(model.model.rotary_emb.inv_freq, before)
    assert "model.rotary_emb.inv_freq" not in model.state_dict()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_attention_of_cudnn_is_not_used():
    """With torch 2.11 on H100 and H200 its gradients can be NaN."""
    assert not torch.backends.cuda.cudnn_sdp_enabled()
