"""The plug-in against the real veRL 0.9.1, on a CPU: engine's arithmetic, reward manager, configuration, trainer."""

import asyncio
import json
import math
import re
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINICODER = ROOT / "assets" / "minicoder"
try:
    IS_HERE = version("verl") == "0.9.1"
except PackageNotFoundError:
    IS_HERE = False
if not IS_HERE:
    pytest.skip("needs veRL 0.9.1: bash scripts/setup.sh now", allow_module_level=True)

import hydra  # noqa: E402
import numpy as np  # noqa: E402
import plain_attention  # noqa: E402
import torch  # noqa: E402
from online_parts import FakeService, respond  # noqa: E402
from tensordict import NonTensorStack, TensorDict  # noqa: E402
from transfer_queue import KVBatchMeta  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo.reward import load_reward_manager  # noqa: E402
from verl.trainer.ppo.v1 import get_trainer_cls, replay_buffer, trainer_base  # noqa: E402
from verl.utils import tensordict_utils as tu  # noqa: E402
from verl.utils import torch_functional  # noqa: E402
from verl.workers.config import FSDPActorConfig, PolicyLossConfig  # noqa: E402
from verl.workers.engine.fsdp import transformer_impl  # noqa: E402
from verl.workers.utils.losses import ppo_loss  # noqa: E402
from verl.workers.utils.padding import no_padding_2_padding  # noqa: E402

from cobalt.errors import InputError, SetupError  # noqa: E402
from cobalt.training import scoring  # noqa: E402
from cobalt.training.batch_scores import InfraGuard  # noqa: E402
from cobalt.training.preflight import ROW_LOSSES  # noqa: E402
from cobalt.training.shared_attention import extend_attention  # noqa: E402
from cobalt.training.verl09 import engine as our_engine  # noqa: E402
from cobalt.training.verl09 import manager as our_manager  # noqa: E402
from cobalt.training.verl09 import runner, trainer  # noqa: E402
from cobalt.training.verl09.config import adapted  # noqa: E402
from cobalt.training.verl09.manager import VALIDATES  # noqa: E402

PLAIN = transformer_impl.FSDPEngineWithLMHead


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_attention.install(monkeypatch)
    for module in (transformer_impl, our_engine):
        monkeypatch.setattr(module, "get_device_id", lambda: "cpu")
        monkeypatch.setattr(module, "get_device_name", lambda: "cpu")


def engine_of(kind: type[Any]) -> Any:
    """An engine around MiniCoder in fp32, without what needs a GPU."""
    model = AutoModelForCausalLM.from_pretrained(MINICODER, dtype=torch.float32, attn_implementation="sdpa")
    made = object.__new__(kind)
    made.module, made._head, made._autocast_dtype = model, model.get_output_embeddings(), torch.float32
    made.engine_config = SimpleNamespace(
        use_torch_compile=False, entropy_checkpointing=False, entropy_from_logits_with_chunking=False
    )
    made.use_ulysses_sp = made.pad_to_length = False
    made.compute_entropy_from_logits = torch_functional.entropy_from_logits
    made.scaler = None
    made.get_data_parallel_group, made.get_data_parallel_size = (lambda: None), (lambda: 1)
    if kind is our_engine.SharedPromptEngine:
        extend_attention(model.config)
    return made


def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def batch_of(prompts: list[torch.Tensor], responses: list[torch.Tensor], **settings: Any) -> TensorDict:
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


def mini_batch() -> TensorDict:
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


def gradients(engine: Any) -> dict[str, torch.Tensor]:
    return {name: weight.grad for name, weight in engine.module.named_parameters()}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], **bounds: float) -> None:
    assert max(float(values.abs().max()) for values in expected.values()) > 1e-3
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, **bounds)


@pytest.mark.parametrize("weights", ["release", "tokens"])
def test_a_step_on_trees_of_contexts_is_that_of_each_row_by_itself(
    weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two problems, whose contexts of three turns have responses: forward and backward in small micro-batches."""
    random = torch.Generator().manual_seed(0)
    turns = [torch.randint(5, 200, (60,), generator=random) for _ in range(2)]
    prompts = [turn[:length] for length in (20, 60, 40, 20, 60) for turn in turns]
    responses = [torch.randint(5, 200, (1 + number % 5,), generator=random) for number in range(len(prompts))]
    data = batch_of(prompts, responses, calculate_entropy=True, max_token_len_per_gpu=90)
    data["advantages"] = jagged([torch.randn(len(row), generator=random) for row in responses])

    def loss(model_output: Any, data: Any, dp_group: Any) -> Any:
        values = {name: no_padding_2_padding(of, data) for name, of in model_output.items()}
        weights = tu.get_non_tensor_data(data, "batch_num_tokens", None)
        advantages = data["advantages"].to_padded_tensor(0.0)
        mask = data["response_mask"].to_padded_tensor(0)
        return ((values["log_probs"] * advantages + values["entropy"]) * mask).sum() / weights, {}

    plain, shared = engine_of(PLAIN), engine_of(our_engine.SharedPromptEngine)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_args, **_kwargs: None)  # a single process
    monkeypatch.setenv("COBALT_LOSS_WEIGHTS", weights)
    monkeypatch.setattr(shared, "_gradient_sync_context", lambda **_: nullcontext(), raising=False)
    seen: list[int] = []
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


def test_losses_are_scaled_where_training_is_in_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    """veRL's optimizer step unscales the gradients, and ends in an assertion where nothing was scaled."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_args, **_kwargs: None)  # a single process
    monkeypatch.setenv("COBALT_LOSS_WEIGHTS", "tokens")
    grads = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=8.0)):
        engine = engine_of(our_engine.SharedPromptEngine)
        monkeypatch.setattr(engine, "_gradient_sync_context", lambda **_: nullcontext(), raising=False)
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


def test_rows_of_a_problem_stay_together_on_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its contexts are prompts of their own. The queue holds their tokens, the tags the lengths of the responses."""
    problems = [torch.arange(start, start + 60) for start in (0, 100)]
    prompts = [problem[:length] for length in (20, 60, 40, 60) for problem in problems]
    rows = TensorDict({"prompts": jagged(prompts)}, batch_size=len(prompts))
    monkeypatch.setattr(
        trainer.tq, "kv_batch_get", lambda keys, partition_id, select_fields: rows.select(*select_fields)
    )
    monkeypatch.setattr(trainer.PPOTrainerSync, "_balance_batch", lambda _self, batch, _metrics: batch)
    made, orders, metrics = object.__new__(trainer.CobaltTrainerSync), [], {}
    made.config, made._method = SimpleNamespace(cobalt=SimpleNamespace(share_prompts=True)), None
    made.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0, 1]})
    batch = SimpleNamespace(
        keys=[f"row_{row}_0" for row in range(8)],
        partition_id="train",
        tags=[{"response_len": 5}] * 8,
        reorder=orders.append,
    )
    made._balance_batch(batch, metrics)
    assert sorted(map(sorted, (orders[0][:4], orders[0][4:]))) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert metrics["global_seqlen/balanced_max"] == 60 + 4 * 5


async def test_validation_without_a_score_is_no_wrong_program(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, tokenizer = made_manager()
    monkeypatch.setattr(scoring, "open_execution_service", FakeService().opener())
    lost = await manager.run_single(response(tokenizer, respond("fail"), validates=True))
    infos = {"reward": [1.0, 0.0, 1.0, lost["reward_score"]], "acc": [1.0, 0.0, 1.0, lost["reward_extra_info"]["acc"]]}
    infos["infra"] = [0.0, 0.0, 0.0, lost["reward_extra_info"]["infra"]]
    uids = list("abcd")
    made = object.__new__(trainer.CobaltTrainerSync)
    metrics = made._val_metrics_update(
        ["taco"] * 4, uids, infos, [], expected_acc_counts={("taco", u): 1 for u in uids}
    )
    assert metrics["val-core/taco/acc/mean@1"] == metrics["val-aux/taco/reward/mean@1"] == pytest.approx(2 / 3)
    assert metrics["val-aux/taco/infra/mean@1"] == 0.25


def test_what_validation_lost_is_no_wrong_program() -> None:
    made, uids = object.__new__(trainer.CobaltTrainerSync), list("abc")
    infos = {"reward": [1.0, 0.0, 1.0], "acc": [1.0, 0.0, 1.0], "infra": [0.0] * 3, "pred": ["x", "y", "z"]}
    expected = {("taco", uid): 1 for uid in "abcd"}
    metrics = made._val_metrics_update(["taco"] * 3, uids, infos, [], expected_acc_counts=expected)
    assert metrics["val-core/taco/acc/mean@1"] == metrics["val-aux/taco/reward/mean@1"] == pytest.approx(2 / 3)
    assert metrics["val-aux/taco/infra/mean@1"] == 0.25


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ({"a": [1.0]}, {"a": [0.0]}),
        ({"a": [1.0], "b": [1.0, 0.0, 0.0, 0.0]}, {"a": [0.0], "b": [1.5, -0.5, -0.5, -0.5]}),
        ({"a": [1.0, None, 0.0]}, {"a": [1.0, 0.0, -1.0]}),
        ({"a": [1.0, 0.0, None], "b": [0.5, 0.5, None]}, {"a": [1.0, -1.0, 0.0], "b": [0.0, 0.0, 0.0]}),
    ],
)
def test_who_is_left_of_a_group_of_four_wins_nothing_by_it(
    left: dict[str, list[float | None]], expected: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By veRL's own advantages. None: a response that could not be scored."""
    scores = {f"{uid}_{n}_0": score for uid, scores in left.items() for n, score in enumerate(scores)}
    columns: dict[str, Any] = {
        "uid": NonTensorStack(*(key[0] for key in scores)),
        "extra_fields": NonTensorStack(
            *({"reward_extra_info": {"infra": float(score is None), "acc": score}} for score in scores.values())
        ),
        "rm_scores": jagged([torch.tensor([0.0, math.nan if score is None else score]) for score in scores.values()]),
        "response_mask": jagged([torch.ones(2, dtype=torch.long) for _ in scores]),
    }

    def put(fields: Any, **_where: Any) -> Any:
        columns.update(fields.items())
        return batch

    def get(select_fields: list[str], **_where: Any) -> TensorDict:
        return TensorDict({name: columns[name] for name in select_fields if name in columns}, len(scores))

    for module in (trainer, trainer_base):
        monkeypatch.setattr(module, "tq", SimpleNamespace(kv_batch_get=get, kv_batch_put=put))
    made, metrics = object.__new__(trainer.CobaltTrainerSync), {}
    made.config = adapted(compose("actor_rollout_ref.rollout.n=4", f"data.train_batch_size={len(left)}"))
    made._method, made._guard, made.parameter_sync_step = None, InfraGuard(1), 1
    batch = KVBatchMeta(keys=[*scores], tags=[{}] * len(scores), partition_id="train")
    made._compute_advantage(batch, metrics)
    found = iter(columns["advantages"].unbind())
    for values in expected.values():
        given = torch.stack([next(found)[0] for _ in values])
        torch.testing.assert_close(given, torch.tensor(values), atol=1e-4, rtol=0)
    scored = sum(score is not None for score in scores.values())
    assert metrics["reward/infra"] == pytest.approx(1 - scored / (4 * len(left)))


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_failed_groups_come_to_the_trainer_and_nothing_but_failed_groups_ends_the_run(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """veRL would generate others in their place, in vain where the engine is dead."""
    config = adapted(compose(f"trainer.v1.trainer_mode={mode}"))
    made = object.__new__(get_trainer_cls(config.trainer.v1.trainer_mode))
    made.config, made.trainer_mode = config, config.trainer.v1.trainer_mode
    buffer = made._build_replay_buffer()
    buffer.refill_fn = lambda count: pytest.fail(f"{count} more groups")
    group, row = {"is_prompt": True, "global_steps": 1}, {"global_steps": 1}
    tags = {"a": {**group, "status": "failure"}, "b": {**group, "status": "finished"}, "b_0_0": row}
    tags |= {"c": {**group, "status": "failure"}, "c_2_0": row}
    queue = SimpleNamespace(kv_list=lambda: {"train": tags}, kv_clear=lambda **_where: None)
    monkeypatch.setattr(replay_buffer, "tq", queue)
    batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=3)
    assert sorted(batch.keys) == ["b_0_0", "c_2_0"]
    tags = {name: {**group, "status": "failure"} for name in "ab"}
    with pytest.raises(SetupError, match="stopped: all responses to 2 prompts were lost"):
        buffer.sample(global_steps=1, partition_id="train", batch_size=2)


@pytest.mark.parametrize("mode", ROW_LOSSES)
def test_the_releases_token_weights_are_those_of_micro_batches_of_two_rows(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FSDPActorConfig(
        strategy="fsdp", ppo_mini_batch_size=4, ppo_micro_batch_size_per_gpu=2, rollout_n=1,
        use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="mse", clip_ratio_low=0.2, clip_ratio_high=0.4,
        policy_loss=PolicyLossConfig(loss_mode=mode),
    )  # fmt: skip
    loss = partial(ppo_loss, config=config)
    plain, shared = engine_of(PLAIN), engine_of(our_engine.SharedPromptEngine)
    for rows in ([0, 1], [2, 3]):
        chunk = tu.index_select_tensor_dict(mini_batch(), rows)
        tu.assign_non_tensor(chunk, batch_num_tokens=chunk["loss_mask"].sum().item())
        (plain.forward_step(chunk, loss, False)[0] / 2).backward()
    whole = mini_batch()
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_args, **_kwargs: None)  # a single process
    tu.assign_non_tensor(whole, batch_num_tokens=whole["loss_mask"].sum().item())
    whole["row_weights"] = shared._release_weights(whole["loss_mask"], whole)
    padding = [torch.zeros(1, dtype=torch.long)] * 2
    padded = jagged([*whole["loss_mask"].unbind(), *padding])
    assert shared._release_weights(padded, whole)[:4].equal(whole["row_weights"])
    shared.forward_step(whole, loss, False)[0].backward()
    assert_close(gradients(shared), gradients(plain), atol=1e-5, rtol=1e-3)


def compose(*overrides: str, recipe: str = "multi_turn", preset: str = "one-gpu-vllm") -> Any:
    function = f"custom_reward_function.path={ROOT}/verl/code_reward_func_think.py"
    search = f"hydra.searchpath=[file://{ROOT}/verl/config]"
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", [search, f"+recipe={recipe}", f"+preset={preset}", function, *overrides])


def test_the_recipes_settings_reach_verl_under_its_new_names() -> None:
    config = adapted(compose("reward_model.reward_kwargs.executor=local"))
    assert "reward_model" not in config and "custom_reward_function" not in config
    assert config.reward.reward_kwargs.executor == "local"
    assert config.reward.custom_reward_function.name == "compute_score"
    assert get_trainer_cls(config.trainer.v1.trainer_mode) is trainer.CobaltTrainerSync
    assert runner.runtime_environment(config)["env_vars"]["VERL_ENGINE_VENDOR"] == "cobalt"


@pytest.mark.parametrize("override", ["json", "[json]"])
def test_what_a_user_has_workers_import_is_imported_beside_ours(override: str) -> None:
    model = adapted(compose(f"actor_rollout_ref.model.external_lib={override}")).actor_rollout_ref.model
    assert list(model.external_lib) == ["cobalt.training.verl09.worker", "json"]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("cobalt.backend=cpu", "hf is for cobalt.backend=cpu"),
        ("actor_rollout_ref.rollout.name=hf", "hf is for cobalt.backend=cpu"),
        ("reward_model.enable=true", "reward_model.enable does nothing in veRL 0.9.1"),
        ("reward_model.model.path=some/model", "reward_model.model.path does nothing in veRL 0.9.1"),
        ("sandbox_fusion.url=http://there", "sandbox_fusion.url does nothing in veRL 0.9.1"),
        ("actor_rollout_ref.model.external_lib=5", "actor_rollout_ref.model.external_lib=5: give a module"),
        ("~cobalt", "no recipe: +recipe=NAME is missing"),
    ],
)
def test_what_verl_no_longer_has_is_refused_in_one_line(override: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)) as refused:
        adapted(compose(override))
    assert "\n" not in str(refused.value)


def made_manager(*overrides: str) -> Any:
    """Our reward manager as veRL makes it, and the policy's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(MINICODER)
    config = adapted(compose("reward_model.reward_kwargs.executor=local", *overrides))
    return load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None), tokenizer


def response(tokenizer: Any, text: str, validates: bool = False) -> DataProto:
    """A response to the problem of squaring, as veRL hands it to the manager."""
    ids = torch.tensor([[*tokenizer(text).input_ids, tokenizer.eos_token_id]])
    columns = {
        "data_source": "code",
        "reward_model": {"ground_truth": json.dumps({"inputs": ["2", "3"], "outputs": ["4", "9"]})},
        "extra_info": {"split": "train" if validates else "test", "prev_best_pass_rate": 0.0},  # veRL knows better
        VALIDATES: validates,
    }
    mask = torch.ones(1, 3 + ids.shape[1], dtype=torch.long)
    return DataProto.from_dict(
        {"prompts": torch.tensor([[5, 6, 7]]), "responses": ids, "attention_mask": mask},
        non_tensors={name: np.array([value], dtype=object) for name, value in columns.items()},
    )


@pytest.mark.parametrize(
    ("text", "validates", "score", "passed"),
    [
        ("```python\nprint(int(input()) ** 2)\n```", False, None, 1.0),
        ("```python\nprint(int(input()) ** 2)\n```", True, 1.0, 1.0),
        ("```python\nprint(0)\n```", True, 0.0, 0.0),
        ("no program", False, -1.0, 0.0),
    ],
)
async def test_a_response_is_scored_as_it_comes(text: str, validates: bool, score: float | None, passed: float) -> None:
    manager, tokenizer = made_manager()
    found = await manager.run_single(response(tokenizer, text, validates))
    await manager.service.stack.aclose()
    assert found["reward_extra_info"]["acc"] == passed and found["reward_extra_info"]["infra"] == 0.0
    assert score is None or found["reward_score"] == score


async def test_an_error_of_the_manager_itself_is_for_the_trainer_too() -> None:
    manager, tokenizer = made_manager()
    asked = response(tokenizer, "no program")
    asked.non_tensor_batch["reward_model"][0] = {"style": "rule"}
    found = await manager.run_single(asked)
    assert found["reward_extra_info"]["error"] == "KeyError: 'ground_truth'" and math.isnan(found["reward_score"])


async def test_equal_programs_that_are_scored_together_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeService(delay_s=0.05)
    monkeypatch.setattr(scoring, "open_execution_service", fake.opener())
    manager, tokenizer = made_manager()
    for _ in range(2):
        found = await asyncio.gather(
            *[manager.run_single(response(tokenizer, respond(4, f"plan {i}"))) for i in range(4)]
        )
        assert {one["reward_score"] for one in found} == {1.0}
    assert fake.programs == ["print(4)"] * 2


async def test_a_response_is_cut_off_only_where_it_has_all_tokens_that_it_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine may end it by a token that is not the tokenizer's own."""
    monkeypatch.setattr(scoring, "open_execution_service", FakeService().opener())
    whole = response(AutoTokenizer.from_pretrained(MINICODER), respond(4)).batch["responses"].shape[1]
    for most, passed in ((whole, 1.0), (whole - 1, 0.0)):
        manager, tokenizer = made_manager(f"data.max_response_length={most}")
        data = response(tokenizer, respond(4))
        for name in ("responses", "attention_mask"):
            data.batch[name] = data.batch[name][:, :-1]  # without the tokenizer's end
        assert (await manager.run_single(data))["reward_extra_info"]["acc"] == passed


async def test_a_failed_attempt_is_shared_by_all_who_wait_for_it_and_those_soon_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []
    now = [100.0]

    @asynccontextmanager
    async def no_service(*_args: Any, **_limits: Any) -> Any:
        tried.append(now[0])
        await asyncio.sleep(0)
        raise SetupError("no execution service")
        yield

    monkeypatch.setattr(scoring, "open_execution_service", no_service)
    monkeypatch.setattr(our_manager, "time", SimpleNamespace(monotonic=lambda: now[0]))
    manager, tokenizer = made_manager()
    for _ in range(2):
        found = await asyncio.gather(*[manager.run_single(response(tokenizer, respond(4))) for _ in range(8)])
        assert [one["reward_extra_info"]["infra"] for one in found] == [1.0] * 8
    now[0] += our_manager.FAILURE_S
    await manager.run_single(response(tokenizer, respond(4)))
    assert tried == [100.0, now[0]]
