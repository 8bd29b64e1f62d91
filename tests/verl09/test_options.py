"""What users ask for beyond the recipes: each option composes, is checked, and reaches the real veRL 0.9.1."""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from test_plugin import (  # skips without veRL 0.9.1
    MINICODER,
    PLAIN,
    ROOT,
    FakeService,
    assert_close,
    compose,
    engine_of,
    gradients,
    jagged,
    made_manager,
    mini_batch,
    on_the_cpu,  # noqa: F401 - a fixture
    respond,
    response,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from transfer_queue import KVBatchMeta
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.trainer.config import CheckpointConfig
from verl.trainer.ppo.v1 import get_trainer_cls, replay_buffer, trainer_base
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.fsdp_utils import apply_fsdp2, collect_lora_params, get_fsdp_wrap_policy
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.utils.padding import no_padding_2_padding

from cobalt.errors import CobaltError, InputError, SetupError
from cobalt.records import write_jsonl
from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, training_manifest
from cobalt.training import cluster, launch, preflight, scoring
from cobalt.training.merge import MergeConfig, merge
from cobalt.training.shared_prompts import prepare
from cobalt.training.verl09 import runner
from cobalt.training.verl09 import trainer as our_trainer
from cobalt.training.verl09.config import VERLS_OWN, adapted
from cobalt.training.verl09.engine import SharedPromptEngine

LORA = ["actor_rollout_ref.model.lora_rank=32", "actor_rollout_ref.model.lora_alpha=32"]
LORA += ["actor_rollout_ref.rollout.load_format=safetensors", "actor_rollout_ref.actor.strategy=fsdp2"]
ASYNC = ["trainer.v1.trainer_mode=colocate_async", "algorithm.rollout_correction.rollout_is=token"]
FP8 = ["actor_rollout_ref.rollout.quantization=fp8"]
FP8_CACHE = ["+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype=fp8"]
FILTER = ["algorithm.filter_groups.enable=true"]
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
GSPO = [f"{LOSS}=gspo", "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"]
CISPO = [f"{LOSS}=cispo", "actor_rollout_ref.actor.clip_ratio_low=10"]
RELEASE = ["cobalt.loss_weights=release", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """``cobalt train --check`` on a machine with a GPU and vLLM. Gives the configuration that veRL gets."""
    monkeypatch.setattr(preflight, "find_spec", lambda _name: object())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    files = ["data.train_files=memory://train", "data.val_files=memory://test"]
    places = [*files, f"trainer.default_local_dir={tmp_path}", f"actor_rollout_ref.model.path={MINICODER}"]

    def checked(*overrides: str, **groups: str) -> Any:
        config = compose(*places, *overrides, **groups)
        launch.checked(config)
        return adapted(config)

    return checked


def rollout_of(config: Any) -> RolloutConfig:
    return omega_conf_to_dataclass(config.actor_rollout_ref.rollout)


def buffer_of(config: Any) -> Any:
    """The replay buffer of the trainer that veRL would make."""
    kind = get_trainer_cls(config.trainer.v1.trainer_mode)
    trainer = object.__new__(kind)
    trainer.config, trainer.trainer_mode = config, config.trainer.v1.trainer_mode
    return trainer._build_replay_buffer()


@pytest.mark.parametrize(
    ("overrides", "groups"), [(LORA, {}), (LORA, {"recipe": "grpo_online"}), ([], {"preset": "paper-qwen3-lora"})]
)
def test_lora_reaches_actor_and_vllm(check: Any, overrides: list[str], groups: dict[str, str]) -> None:
    config = check(*overrides, **groups)
    model: HFModelConfig = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    assert (model.lora_rank, model.lora_alpha, model.target_modules) == (32, 32, "all-linear")
    assert rollout_of(config).load_format == "safetensors"


def test_fp8_reaches_vllm(check: Any, tmp_path: Path) -> None:
    shape = json.loads((MINICODER / "config.json").read_text())
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((MINICODER / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**shape, "num_attention_heads": 4, "num_key_value_heads": 2}))
    config = check(*FP8, f"actor_rollout_ref.model.path={tmp_path}")
    assert rollout_of(config).quantization == "fp8"
    with pytest.raises(InputError, match="multiples of 128, and num_attention_heads x head_dim is 192"):
        check(*FP8)
    assert rollout_of(check(*FP8_CACHE)).engine_kwargs["vllm"]["kv_cache_dtype"] == "fp8"


EXECUTOR = "distributed_executor_backend"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {EXECUTOR: "uni"}),
        ([f"+actor_rollout_ref.rollout.engine_kwargs.vllm.{EXECUTOR}=mp"], {EXECUTOR: "mp"}),
        (["actor_rollout_ref.rollout.tensor_model_parallel_size=2"], {}),
    ],
)
def test_an_engine_on_one_gpu_is_one_process(overrides: list[str], expected: dict[str, str]) -> None:
    assert adapted(compose(*overrides)).actor_rollout_ref.rollout.engine_kwargs.vllm == expected


def test_rollouts_that_go_on_over_updates_have_the_buffer_for_it(check: Any) -> None:
    config = check(*ASYNC)
    buffer = buffer_of(config)
    assert isinstance(buffer, ReplayBufferAsync) and buffer.trainer_mode == "colocate_async"
    assert buffer.trainer_config.num_warmup_batches == 1
    assert config.algorithm.rollout_correction.rollout_is_threshold == 2.0
    assert rollout_of(config).calculate_log_probs


@pytest.mark.parametrize("overrides", [[], ASYNC])
def test_the_end_of_rollouts_is_seen_at_once(overrides: list[str], check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """veRL sleeps 2 s between two looks."""
    slept: list[float] = []
    monkeypatch.setattr(replay_buffer, "time", SimpleNamespace(sleep=slept.append, time=lambda: 0.0))
    buffer_of(check(*overrides))._wait_for_next_poll("train", 0.0)
    assert slept == [0.2]


def test_tokens_of_older_policies_are_weighed_by_truncated_ratios(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From veRL's queue and back: two rows of a group, whose policy has moved since vLLM wrote them."""
    lengths, moved = (3, 2), torch.tensor([0.0, 0.5, 3.0, -1.0, 0.1])
    rows = {
        "rm_scores": [torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.0])],
        "response_mask": [torch.ones(length, dtype=torch.long) for length in lengths],
        "rollout_log_probs": list((-1 - moved).split(lengths)),
        "old_log_probs": [-torch.ones(length) for length in lengths],
    }
    columns: dict[str, Any] = {name: jagged(values) for name, values in rows.items()}
    columns |= {"uid": NonTensorStack("a", "a"), "extra_fields": NonTensorStack({}, {})}

    def put(fields: Any, **_where: Any) -> Any:
        columns.update(fields.items())
        return batch

    def get(select_fields: list[str], **_where: Any) -> TensorDict:
        return TensorDict({name: columns[name] for name in select_fields if name in columns}, batch_size=2)

    config = check(*ASYNC)
    made = object.__new__(get_trainer_cls(config.trainer.v1.trainer_mode))
    config.data.train_batch_size, config.actor_rollout_ref.rollout.n = 1, 2
    made.config, made._method, made.parameter_sync_step = config, None, 1
    batch = KVBatchMeta(keys=["a_0_0", "a_1_0"], tags=[{}, {}], partition_id="train")
    for module in (our_trainer, trainer_base):
        monkeypatch.setattr(module, "tq", SimpleNamespace(kv_batch_get=get, kv_batch_put=put))
    metrics: dict[str, Any] = {}
    made._compute_advantage(batch, metrics)
    torch.testing.assert_close(columns["rollout_is_weights"].values(), moved.exp().clamp(max=2.0))
    assert columns["advantages"].values().sign().tolist() == [1, 1, 1, -1, -1]
    assert any(name.startswith("rollout_corr/") for name in metrics)


def test_the_group_filter_asks_for_the_reward(check: Any) -> None:
    plain, filtering = buffer_of(check()), buffer_of(check(*FILTER))
    assert isinstance(plain, ReplayBuffer) and type(plain) is type(filtering) is not ReplayBufferAsync
    assert (plain.filter_groups_metric, filtering.filter_groups_metric) == (None, "reward")


async def test_a_group_that_could_not_be_scored_is_not_filtered_so_a_dead_service_ends_the_run(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "open_execution_service", FakeService().opener())
    manager, tokenizer = made_manager()
    lost = await manager.run_single(response(tokenizer, respond("fail")))
    assert lost["reward_extra_info"]["infra"] == 1.0
    scores = {"lost_0_0": lost["reward_score"], "lost_1_0": lost["reward_score"], "equal_0_0": 0.5, "equal_1_0": 0.5}
    scores |= {"unlike_0_0": 0.0, "unlike_1_0": 1.0}

    def get(keys: list[str], **_where: Any) -> dict[str, Any]:
        return {"rm_scores": [torch.tensor([0.0, scores[key]]) for key in keys]}

    monkeypatch.setattr(replay_buffer, "tq", SimpleNamespace(kv_batch_get=get))
    buffer = buffer_of(check(*FILTER))
    buffer.partitions["train"] = dict.fromkeys(scores)
    buffer.finished_keys["train"] = {"lost", "equal", "unlike"}
    assert buffer._dapo_filtered_keys("train")[0] == {"equal"}


def test_responses_that_the_filter_throws_away_are_paid_for(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = check(*FILTER)
    made = object.__new__(get_trainer_cls(config.trainer.v1.trainer_mode))
    made.config, made.trainer_mode = config, config.trainer.v1.trainer_mode
    monkeypatch.setattr(replay_buffer, "tq", SimpleNamespace(kv_clear=lambda **_where: None))
    monkeypatch.setattr(trainer_base.PPOTrainer, "_compute_metrics", lambda *_args, **_kwargs: None)
    buffer, size = made._build_replay_buffer(), {"prompt_len": 5, "response_len": 2}
    buffer.partitions["train"] = dict.fromkeys(("equal_0_0", "equal_1_0", "kept_0_0", "kept_1_0"), size)
    buffer._clear_groups("train", {"equal"})
    for responses in (4, 2):  # the next step pays for its own
        metrics: dict[str, Any] = {}
        made._compute_metrics(SimpleNamespace(tags=[size, size, {"is_padding": True}]), metrics, {})
        paid = [metrics[f"cost/{name}"] for name in ("responses", "prompt_tokens", "response_tokens")]
        assert paid == [responses, 5 * responses, 2 * responses]


@pytest.mark.parametrize(("logged", "last"), [(2, 3), (1, 4)])
def test_a_resumed_run_asks_its_budget_before_the_first_step(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: int, last: int
) -> None:
    """A step costs 10. Steps that are missing at the end are a failure."""
    rows = [{"step": step, "timing_s/step": 1, "cost/responses": 10} for step in range(1, logged + 1)]
    write_jsonl(tmp_path / METRICS_FILE, rows)
    manifest = {"config": {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 1, "nnodes": 1}}}
    training_manifest(tmp_path).write_text(json.dumps(manifest))
    config = check("cobalt.budget={responses: 30}")
    made = object.__new__(get_trainer_cls(config.trainer.v1.trainer_mode))
    made.config, made.trainer_mode, made.global_steps, made.total_training_steps = config, "sync", logged, 4
    made._build_replay_buffer()

    def fit(trainer: Any, _manager: Any) -> None:
        trainer.global_steps = 4

    monkeypatch.setattr(trainer_base.PPOTrainer, "fit", fit)
    with nullcontext() if last < 4 else pytest.raises(CobaltError, match="training ended after step 3 of 4"):
        made.fit(None)
    assert made.total_training_steps == last


@pytest.mark.parametrize("loss", [GSPO, CISPO, [*CISPO, *RELEASE], [f"{LOSS}=gspo", *RELEASE], [f"{LOSS}=clip_cov"]])
def test_losses_that_go_with_the_weights_of_tokens(check: Any, loss: list[str]) -> None:
    check(*loss)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([*GSPO, *RELEASE], "loss_weights=release needs .*vanilla or gspo or cispo, not seq-mean-token-mean"),
        ([f"{LOSS}=clip_cov", *RELEASE], "loss_mode=vanilla or gspo or cispo, not token-mean and clip_cov"),
        (["cobalt.share_prompts=false", *RELEASE], "loss_weights=release needs cobalt.share_prompts=true"),
        (["actor_rollout_ref.actor.use_dynamic_bsz=false"], "share_prompts needs .*use_dynamic_bsz=True"),
        ([*LORA, "actor_rollout_ref.model.target_modules=[q_proj,lm_head]"], "share_prompts excludes lm_head"),
        (["trainer.v1.trainer_mode=separate_async"], "separate_async: choose sync or colocate_async"),
        (["cobalt.backend=cpu"], "hf is for cobalt.backend=cpu"),
    ],
)
def test_what_would_train_otherwise_than_asked_is_refused(check: Any, overrides: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        check(*overrides)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("reward.custom_reward_function.path=my.py", "{} is not read: give custom_reward_function$"),
        ("reward.reward_manager.name=dapo", "{} is not read: give reward_model.reward_manager$"),
        ("+reward.reward_kwargs.improve_scale=0.2", r"reward_kwargs=.* is not read: give reward_model.reward_kwargs$"),
        ("reward.num_workers=4", "{} is 1 with Cobalt: leave it out$"),
        ("reward.num_workers=8", "{} is 1 with Cobalt"),  # veRL's default, on the command line
        (
            "+actor_rollout_ref.model.override_config.attn_implementation=eager",
            "attn.*=eager is sdpa with Cobalt: leave it out",
        ),
        ("trainer.use_v1=false", "use_v1=False is True with Cobalt"),
        ("transfer_queue.backend.SimpleStorage.num_data_storage_units=4", "{} is 1 with Cobalt"),
        ("reward_model.launch_reward_fn_async=false", "{}: veRL 0.9.1 scores while it generates"),
    ],
)
def test_verls_own_settings_are_not_overwritten_without_a_word(override: str, told: str) -> None:
    name = override.lstrip("+").partition("=")[0]
    with pytest.raises(InputError, match=told.format(re.escape(override))) as refused:
        adapted(compose(override), {name})
    assert "\n" not in str(refused.value)


def test_verls_defaults_are_those_that_are_known_to_be_overwritten() -> None:
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer")
    assert {name: OmegaConf.select(config, name) for name in VERLS_OWN} == VERLS_OWN


def test_what_need_not_be_overwritten_is_honoured() -> None:
    config = adapted(compose("actor_rollout_ref.rollout.calculate_log_probs=false", preset="paper-qwen3"))
    assert not rollout_of(config).calculate_log_probs
    assert adapted(compose("reward_model.reward_manager=dapo")).reward.reward_manager.name == "dapo"


def test_a_model_whose_prompts_cannot_be_shared_is_refused_with_the_way_out(check: Any, tmp_path: Path) -> None:
    for file in MINICODER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    shape = json.loads((MINICODER / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**shape, "model_type": "qwen3_5"}))
    model = f"actor_rollout_ref.model.path={tmp_path}"
    with pytest.raises(InputError, match=r"of the type qwen3_5, .* take cobalt\.share_prompts=false$"):
        check(model)
    check(model, "cobalt.share_prompts=false", "actor_rollout_ref.model.use_remove_padding=false")


def test_a_mini_batch_that_the_gpus_cannot_share_is_refused(check: Any) -> None:
    sizes = [
        "trainer.n_gpus_per_node=2",
        "actor_rollout_ref.rollout.n=1",
        "actor_rollout_ref.actor.ppo_mini_batch_size=3",
    ]
    with pytest.raises(InputError, match=r"ppo_mini_batch_size=3 times .*rollout\.n=1 cannot be shared by 2 GPUs"):
        check(*sizes)


def test_the_filter_is_for_the_bandit(check: Any) -> None:
    with pytest.raises(InputError, match=r"excludes cobalt\.online"):
        check(*FILTER, recipe="grpo_online")


@pytest.fixture
def one_process() -> Any:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def lora_engine(kind: type[Any]) -> Any:
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


def test_shared_prompts_give_an_adapter_verls_own_gradients_and_the_reference_none(one_process: None) -> None:
    """Under FSDP 2, which gathers the output layer's weight for the forward pass only."""

    def loss(model_output: Any, data: Any, dp_group: Any) -> Any:
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


def test_vllm_gets_an_adapter_from_fsdp2_only(one_process: None, check: Any) -> None:
    """If this fails for the older FSDP, veRL is mended, and the refusal can go."""
    whole = lora_engine(PLAIN).module
    wrapping = get_fsdp_wrap_policy(whole, is_lora=True)
    older = FSDP(whole, auto_wrap_policy=wrapping, device_id=torch.device("cpu"))
    assert not collect_lora_params(older, layered_summon=False, base_sync_done=True)
    module = lora_engine(PLAIN).module
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    adapter = collect_lora_params(module, layered_summon=False, base_sync_done=True)
    assert len(adapter) == sum("lora_" in name for name, _ in module.named_parameters()) > 0
    with pytest.raises(InputError, match="strategy=fsdp2"):
        check(*LORA, "actor_rollout_ref.actor.strategy=fsdp")


def test_an_adapter_is_merged_into_one_model(one_process: None, tmp_path: Path) -> None:
    """The checkpoint is written by veRL, and read by veRL's merger, which gives the base model and the adapter."""
    module = lora_engine(PLAIN).module
    name = "model.layers.3.mlp.down_proj"
    layer = module.base_model.model.get_submodule(name)
    base, low, high = layer.base_layer.weight, layer.lora_A["default"].weight, layer.lora_B["default"].weight
    base, expected = base.clone(), (base + 2 * high @ low).detach().clone()
    fully_shard(module, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))
    contents = CheckpointConfig(save_contents=["model"], load_contents=["model"])
    manager = FSDPCheckpointManager(
        module, processing_class=AutoTokenizer.from_pretrained(MINICODER), checkpoint_config=contents
    )
    manager.save_checkpoint(str(tmp_path / "global_step_3" / "actor"), None, 3)
    (tmp_path / TRACKER_NAME).write_text("3")
    model = {"path": str(MINICODER), "lora_rank": 4, "lora_alpha": 8}
    manifest = {"config": {"actor_rollout_ref": {"model": model}}, "inputs": {}, "versions": {}, "git_commit": "c0ffee"}
    training_manifest(tmp_path).write_text(json.dumps(manifest))
    write_jsonl(tmp_path / METRICS_FILE, [{"step": 3, "reward/acc": 0.5}])
    merge(MergeConfig(checkpoint_dir=tmp_path, output_dir=tmp_path / "model"))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    weight = merged.get_submodule(name).weight.float()
    torch.testing.assert_close(weight, expected, atol=2e-3, rtol=1e-2)
    assert not torch.allclose(weight, base, atol=1e-2)
    assert not (tmp_path / "model" / "lora_adapter").exists() and "| 4 |" in (tmp_path / "model/README.md").read_text()


@pytest.fixture
def cluster_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for Ray, with these free resources by node. Gives the settings that it was started with."""
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(runner.ray, "init", lambda **settings: started.append(settings))
    monkeypatch.setattr(cluster, "cluster_address", lambda: "there:1")
    monkeypatch.setenv("RAY_ADDRESS", "there:1")

    def run(*nodes: dict[str, float]) -> list[dict[str, Any]]:
        totals = {"GPU": sum(node["GPU"] for node in nodes)}
        by_node = dict(enumerate(nodes))
        monkeypatch.setattr(runner.ray, "cluster_resources", lambda: totals)
        monkeypatch.setattr(runner.ray._private.state, "available_resources_per_node", lambda: by_node)
        return started

    return run


LOCAL = "reward_model.reward_kwargs.executor=local"


def test_training_starts_only_with_enough_gpus_and_where_programs_are_run(
    cluster_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = cluster_of({"GPU": 1.0, "CPU": 5.0})
    monkeypatch.setenv("WANDB_DIR", "/somewhere")
    monkeypatch.delenv("RAY_ADDRESS")
    config = compose(LOCAL, "ray_kwargs.ray_init.num_cpus=6")
    runner.connect_and_prepare(config)
    assert (started[0]["address"], started[0]["num_cpus"]) == ("local", 6)
    assert started[0]["runtime_env"]["env_vars"]["WANDB_DIR"] == "/somewhere"
    monkeypatch.setenv("RAY_ADDRESS", "there:1")
    config.trainer.n_gpus_per_node = 2
    with pytest.raises(SetupError, match=r"N_GPUS times N_NODES\): 2, in the Ray cluster: 1"):
        runner.connect_and_prepare(config)
    config.trainer.n_gpus_per_node = 1
    config.reward_model.reward_kwargs = {"executor": "local", "no_such_limit": 1}
    with pytest.raises(InputError, match=r"reward_model\.reward_kwargs\.no_such_limit: no such"):
        runner.connect_and_prepare(config)


def test_the_papers_token_counts_are_looked_up_before_training(
    cluster_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of({"GPU": 1.0, "CPU": 5.0})

    def offline(_name: str) -> None:
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=offline))
    with pytest.raises(SetupError, match=r"lengths=o200k_base .* cannot be downloaded"):
        runner.connect_and_prepare(compose(LOCAL, "reward_model.reward_kwargs.lengths=o200k_base"))


@pytest.mark.parametrize(
    ("cpus", "told"),
    [
        ([16, 11], "16 CPUs and 4 GPUs, 11 CPUs and 4 GPUs"),  # the second node cannot hold its GPUs' part
        ([12, 14], "12 CPUs and 4 GPUs, 14 CPUs and 4 GPUs"),  # and here nothing is left for the queue
        ([12, 15], None),
    ],
)
def test_cpus_that_verl_would_wait_for_are_missed_before_training(
    cluster_of: Any, cpus: list[float], told: str | None
) -> None:
    cluster_of(*[{"GPU": 4.0, "CPU": free} for free in cpus])
    config = SimpleNamespace(trainer=SimpleNamespace(n_gpus_per_node=4, nnodes=2))
    with (
        pytest.raises(SetupError, match=f"3 CPUs with each GPU, on its node, and for 3 more.*: {told}")
        if told
        else (nullcontext())
    ):
        cluster.join_or_start(config, {"env_vars": {}}, None)


def test_a_local_ray_has_the_logical_cpus_that_verl_asks_for(cluster_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started = cluster_of({"GPU": 4.0, "CPU": 64.0})
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1})
    cluster.join_or_start(SimpleNamespace(trainer=SimpleNamespace(n_gpus_per_node=4, nnodes=1)), {"env_vars": {}}, None)
    assert started[0]["num_cpus"] == 4 * 3 + 2


def test_a_slurm_job_without_cpus_for_programs_beside_verls_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text(f"PATH={Path(sys.executable).parent}:$PATH")
    job = {"SUBMIT_DIR": str(ROOT), "GPUS_ON_NODE": "4", "JOB_NUM_NODES": "2", "CPUS_PER_TASK": "14"}
    environment = {**os.environ, "VENV": str(tmp_path), **{f"SLURM_{name}": value for name, value in job.items()}}
    environment.pop("EVALUATOR_ARGS", None)
    script = ["bash", str(ROOT / "scripts/slurm/train_multi_turn.sbatch")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "14 CPUs on a node with 4 GPUs, and the job has 14: submit it with more" in done.stderr
