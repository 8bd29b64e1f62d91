"""Online training with the real veRL 0.9.1, on a CPU: from the policy's tokens to the advantages of turns.

veRL's own agent-loop worker plays, asks our reward manager and writes rows. Our trainer reads them. In memory instead
of in other processes are the engine, the programs and the queue between the two.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import asynccontextmanager, nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
import torch
from online_parts import FakeService, make_tests, respond
from test_plugin import MINICODER, compose  # skips without veRL 0.9.1
from transfer_queue import KVBatchMeta
from transformers import AutoTokenizer
from verl.experimental.agent_loop import agent_loop as verls_loop
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1 import PPOTrainerSync, agent_loop_tq
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker

from cobalt.errors import InfraError, InputError, SetupError
from cobalt.prompts import first_messages, problem_instruction
from cobalt.serving.execution import ExecutionService
from cobalt.training import scoring
from cobalt.training.batch_scores import InfraGuard
from cobalt.training.online import Program, group_advantages
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import Method, TrainingConfig
from cobalt.training.verl09 import manager as our_manager
from cobalt.training.verl09 import trainer as our_trainer
from cobalt.training.verl09 import updates as updates_of_rows
from cobalt.training.verl09 import worker as our_worker
from cobalt.training.verl09.config import adapted
from cobalt.training.verl09.manager import VALIDATES
from cobalt.training.verl09.online import TurnLoop
from cobalt.training.verl09.rollouts import CobaltAgentLoopManager

Worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
PUBLIC = make_tests(2)
WRONG, HALF, RIGHT, LOST = respond(0), respond(1), respond(4), respond("fail")


class Queue:
    """Rows by key, as TransferQueue keeps them."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = defaultdict(dict)
        self.tags: dict[str, dict[str, Any]] = {}

    async def async_kv_batch_put(self, keys: list[str], fields: Any, tags: Any, partition_id: str) -> None:
        self.kv_batch_put(keys, partition_id, fields)
        self.tags |= dict(zip(keys, tags, strict=True))

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any, tags: Any = None) -> str:
        for name, column in fields.items():
            values = column.unbind() if isinstance(column, torch.Tensor) else [getattr(v, "data", v) for v in column]
            for key, value in zip(keys, values, strict=True):
                self.rows[key][name] = value
        return "put"

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> Any:
        if select_fields is None:
            return [self.rows[key] for key in keys]
        columns: dict[str, Any] = {name: [self.rows[key][name] for key in keys] for name in select_fields}
        for name in {"rm_scores", "prompts"} & columns.keys():
            columns[name] = torch.nested.as_nested_tensor(columns[name], layout=torch.jagged)
        return columns


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trajectories of one problem, whose responses are given: keys, queue, texts of prompts, configuration."""

    async def run(
        trajectories: list[list[str]],
        method: str = "grpo",
        validates: bool = False,
        score: Any = None,
        data: Mapping[str, Any] = MappingProxyType({}),
        **settings: Any,
    ) -> Any:
        fake = FakeService()
        monkeypatch.setattr(our_manager, "JobExecutorClient", lambda _reward: fake)  # and nobody opens one of their own
        monkeypatch.setattr(TurnLoop, "service", None)
        queue, tokenizer = Queue(), AutoTokenizer.from_pretrained(MINICODER)
        monkeypatch.setattr(agent_loop_tq, "tq", queue)
        monkeypatch.setattr(our_trainer, "tq", queue)
        overrides = [f"cobalt.online.{name}={value}" for name, value in settings.items()]
        composed = compose("reward_model.reward_kwargs.executor=local", *overrides, recipe=f"{method}_online")
        assert TrainingConfig.of(composed).online is not None
        composed.data = {**composed.data, **data}
        config = adapted(composed)
        config.actor_rollout_ref.rollout.prompt_length = config.data.max_prompt_length
        config.actor_rollout_ref.rollout.n, config.data.train_batch_size = len(trajectories), 1
        manager = load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
        if score is not None:
            manager._manager.compute_score, manager._manager.gives_batch = score, False
        worker = object.__new__(Worker)
        worker.tokenizer, worker.processor, worker.mm_processor_kwargs = tokenizer, None, {}
        remote = SimpleNamespace(remote=manager.run_single)
        worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=remote)]
        worker.distillation_enabled, prompts = False, []
        for number, texts in enumerate(trajectories):
            answers = iter(texts)

            async def generate(request_id: str, prompt_ids: list[int], sampling_params: Any, answers=answers) -> Any:
                prompts.append(tokenizer.decode(prompt_ids))
                if (text := next(answers)) is None:
                    raise ConnectionError("the engine is gone")
                ids = [*tokenizer.encode(text), tokenizer.eos_token_id]
                return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"min_global_steps": 1})

            columns = {
                "raw_prompt": first_messages(problem_instruction("Print the sum.")),
                "data_source": "code",
                "reward_model": {"ground_truth": make_tests(4)},
                "extra_info": {"split": "train" if validates else "test"},  # veRL knows better
                "tools_kwargs": {"public_test_cases": PUBLIC},
                "global_steps": 1,
                VALIDATES: validates,
            }
            wrap = verls_loop.DictConfigWrap
            loop = TurnLoop(
                wrap(config), SimpleNamespace(generate=generate), tokenizer, None, None, wrap(config.data), "qwen3"
            )
            try:
                outputs = await loop.run({}, **columns)
            except InfraError:
                continue  # veRL goes on without the trajectory
            place = {"uid": "problem", "session_id": number}
            await worker._agent_loop_postprocess(outputs, validates, **columns, **place)
        return queue, prompts, config, fake

    return run


def trained(queue: Queue, config: Any, monkeypatch: pytest.MonkeyPatch, max_infra_rate: float = 1.0) -> Any:
    """Metrics, and the advantage of each row, which stands at all of its tokens."""
    made = object.__new__(our_trainer.CobaltTrainerSync)
    made.config, made._method, made.parameter_sync_step = config, Method(**config.cobalt.online), 1
    made._guard = InfraGuard(max_infra_rate)
    monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda _self, batch, _metrics: batch)
    padding = "pad_0_0"
    queue.rows[padding] = {**next(iter(queue.rows.values())), "uid": "pad"}
    keys = [*queue.rows][::-1]  # any order
    tags = [{"is_padding": key == padding} for key in keys]
    metrics: dict[str, float] = {}
    made._compute_advantage(SimpleNamespace(keys=keys, tags=tags, partition_id="train"), metrics)
    found = {}
    for key in keys:
        values = queue.rows[key]["advantages"]
        assert values.shape == queue.rows[key]["responses"].shape and values.eq(values[0]).all()
        found[key] = float(values[0])
    assert found.pop(padding) == 0
    return metrics, found


async def test_a_trajectory_is_a_row_for_each_turn_with_feedback_and_without_earlier_thinking(play: Any) -> None:
    queue, prompts, *_ = await play([[respond(0, think="my plan"), HALF, RIGHT], [RIGHT]])
    assert [*queue.rows] == ["problem_0_0", "problem_0_1", "problem_0_2", "problem_1_0"]
    assert "Here is the execution feedback:" in prompts[1] and "print(0)" in prompts[1] and "my plan" not in prompts[1]
    row = queue.rows["problem_0_1"]
    assert row["input_ids"].tolist() == [*row["prompts"].tolist(), *row["responses"].tolist()]
    assert row["rollout_log_probs"].tolist() == [-0.5] * len(row["responses"])
    assert row["response_mask"].all() and queue.tags["problem_0_1"]["response_len"] == len(row["responses"])


async def test_all_processes_of_a_training_share_one_local_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's part, an actor that exists once for each job, is played by this process."""
    fake, opened = FakeService(), []

    @asynccontextmanager
    async def open_service(executor: str, **limits: Any) -> Any:
        opened.append((executor, limits["workers"]))
        yield ExecutionService(fake)

    monkeypatch.setattr(scoring, "open_execution_service", open_service)
    reward = RewardSettings.read({"executor": "local", "workers": 2})
    actor: Any = our_manager.JobExecutor.__ray_metadata__.modified_class(reward)
    handle = SimpleNamespace(run=SimpleNamespace(remote=actor.run))
    named = SimpleNamespace(options=lambda **_name: SimpleNamespace(remote=lambda _reward: handle))
    monkeypatch.setattr(our_manager, "JobExecutor", named)
    services = [await our_manager.service_of_online(reward).opened() for _ in range(9)]
    results = await asyncio.gather(*[service.run("print(1)", make_tests(2)) for service in services])
    assert opened == [("local", 2)] and [result.pass_rate for result in results] == [0.5] * 9


async def test_each_turns_prompt_is_made_with_the_arguments_of_the_chat_template(play: Any) -> None:
    template = "{% for message in messages %}{{ style }} {{ message.content }}\n{% endfor %}"
    made = {"apply_chat_template_kwargs": {"chat_template": template, "style": "brief"}}
    _, prompts, *_ = await play([[WRONG, RIGHT]], data=made)
    assert [prompt.count("brief ") for prompt in prompts] == [2, 4]


async def test_a_prompt_that_would_be_too_long_ends_its_trajectory_and_is_counted(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, prompts, *_ = await play([[WRONG, RIGHT]])
    first, second = (len(whole.rows[f"problem_0_{turn}"]["prompts"]) for turn in range(2))
    for most, turns in ((second, 2), (second - 1, 1)):
        queue, again, config, _ = await play([[WRONG, RIGHT], [RIGHT]], data={"max_prompt_length": most})
        assert again[:turns] == prompts[:turns] and len(again) == turns + 1 and first < most
        metrics, _ = trained(queue, config, monkeypatch)
        assert metrics["cost/rollout_overlong"] == (turns == 1)


async def test_validation_plays_one_turn_and_scores_pass_or_fail(play: Any) -> None:
    queue, prompts, *_ = await play([[HALF, RIGHT], [RIGHT]], validates=True)
    assert {key: float(row["rm_scores"].sum()) for key, row in queue.rows.items()} == {
        "problem_0_0": 0,
        "problem_1_0": 1,
    }
    assert len(prompts) == 2


@pytest.mark.parametrize(("method", "settings"), [("grpo", {}), ("verpo", {}), ("verpo", {"turn_baseline": "others"})])
async def test_turns_get_the_advantages_of_the_papers_stack(
    play: Any, monkeypatch: pytest.MonkeyPatch, method: str, settings: dict[str, str]
) -> None:
    """The first trajectory improves from turn to turn, and its rewards say so."""
    queue, _, config, _ = await play([[WRONG, HALF, RIGHT], [RIGHT], [WRONG, WRONG, WRONG]], method, **settings)
    metrics, found = trained(queue, config, monkeypatch)
    passed = [[0, 1, 4], [4], [0, 0, 0]]
    scores = [
        [float(queue.rows[f"problem_{n}_{t}"]["rm_scores"].sum()) for t in range(len(row))]
        for n, row in enumerate(passed)
    ]
    assert scores[0][1] > scores[2][1] and scores[0][2] == scores[1][0] == 1.0
    programs = [
        [
            Program({"score": score}, tuple(index < count for index in range(4)) if method == "verpo" else ())
            for score, count in zip(*row, strict=True)
        ]
        for row in zip(scores, passed, strict=True)
    ]
    expected = group_advantages(programs, Method(**config.cobalt.online))
    for n, row in enumerate(passed):
        for t in range(len(row)):
            assert found[f"problem_{n}_{t}"] == pytest.approx(float(expected[n][t]), abs=1e-6)
    assert metrics["reward/infra"] == 0 and metrics["reward/acc"] == pytest.approx(2 / 3)
    assert metrics["reward/acc_over_turns"] == pytest.approx(2 / 7)
    assert any(found.values())


async def test_what_the_infrastructure_failed_is_neutral_counted_and_ends_a_run(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, _, config, _ = await play([[WRONG, LOST], [RIGHT], [WRONG, HALF, WRONG]])
    metrics, found = trained(queue, config, monkeypatch)
    assert [key for key in queue.rows if key.startswith("problem_0")] == ["problem_0_0", "problem_0_1"]
    assert found["problem_0_0"] == found["problem_0_1"] == 0
    assert found["problem_1_0"] > 0 > found["problem_2_0"]
    assert metrics["reward/infra"] == pytest.approx(1 / 3)
    with pytest.raises(SetupError, match="could not be run"):
        trained(queue, config, monkeypatch, max_infra_rate=0.05)


async def test_trajectories_that_the_engine_lost_are_failures_of_the_infrastructure(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """veRL trains on the rest, in which the only trajectory that is left would win."""
    queue, _, config, _ = await play([[WRONG, None], [None], [RIGHT], [None]])
    assert [*queue.rows] == ["problem_2_0"]
    metrics, found = trained(queue, config, monkeypatch)
    assert metrics["reward/infra"] == pytest.approx(3 / 4) and set(found.values()) == {0}
    with pytest.raises(SetupError, match="were lost or could not be run"):
        trained(queue, config, monkeypatch, max_infra_rate=0.15)
    queue, _, config, _ = await play([[WRONG, WRONG, WRONG], [None], [RIGHT]])
    metrics, found = trained(queue, config, monkeypatch)
    assert metrics["reward/infra"] == pytest.approx(1 / 3)
    assert found["problem_2_0"] > 0 > found["problem_0_0"] == -found["problem_2_0"]


async def typo(**_arguments: Any) -> float:
    raise KeyError("typo")


@pytest.mark.parametrize("validates", [False, True])
async def test_an_error_in_the_reward_function_ends_training_with_one_line(
    play: Any, monkeypatch: pytest.MonkeyPatch, validates: bool
) -> None:
    queue, _, config, _ = await play([[RIGHT], [RIGHT]], validates=validates, score=typo)
    with pytest.raises(InputError, match=r"^the reward function raised KeyError: 'typo' \(\S+, line \d+\)$"):
        trained(queue, config, monkeypatch)
    infos = {"error": [row["extra_fields"]["reward_extra_info"]["error"] for row in queue.rows.values()]}
    with pytest.raises(InputError, match="the reward function raised"):
        object.__new__(our_trainer.CobaltTrainerSync)._val_metrics_update(["code"] * 2, ["a", "b"], infos, [])


async def test_an_error_of_the_agent_loop_ends_training(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PUBLIC", "no tests")
    queue, _, config, _ = await play([[RIGHT], [RIGHT]])
    with pytest.raises(InputError, match="ValueError: tests are not JSON"):
        trained(queue, config, monkeypatch)


@pytest.mark.parametrize("validates", [False, True])
async def test_verl_itself_says_what_is_validation(monkeypatch: pytest.MonkeyPatch, validates: bool) -> None:
    """From the trainer's batch to the columns that agent loops and the reward manager get."""
    chunks: list[Any] = []
    remote = SimpleNamespace(generate_sequences=SimpleNamespace(remote=chunks.append))
    manager = object.__new__(CobaltAgentLoopManager)
    manager.agent_loop_workers = [remote, remote]
    monkeypatch.setattr(agent_loop_tq.ray, "get", lambda _futures: None)
    batch = tu.get_tensordict({"uid": np.array(["a", "b"], dtype=object), "index": np.array([0, 1], dtype=object)})
    tu.assign_non_tensor_data(batch, "global_steps", 1)
    if validates:
        tu.assign_non_tensor_data(batch, "validate", True)
    manager.generate_sequences(batch)

    seen: list[bool] = []
    worker = object.__new__(Worker)
    worker.config, worker.background_tasks = adapted(compose(recipe="grpo_online")), set()
    monkeypatch.setattr(agent_loop_tq, "tq", SimpleNamespace(async_kv_put=AsyncMock()))

    async def run(*_parameters: Any, **columns: Any) -> None:
        seen.append(columns[VALIDATES])

    worker._run_agent_loop = run
    for chunk in chunks:
        await worker.generate_sequences(chunk)
    await asyncio.gather(*worker.background_tasks)
    rollout = worker.config.actor_rollout_ref.rollout
    assert seen == [validates] * 2 * (rollout.val_kwargs.n if validates else rollout.n)
    assert rollout.agent.agent_loop_manager_class == f"{type(manager).__module__}.{type(manager).__name__}"


TOKENS = ["cobalt.loss_weights=tokens"]
PAIRS = ["cobalt.loss_weights=release", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"]
ALONE = ["cobalt.share_prompts=false"]


@pytest.mark.parametrize(
    ("rows", "updates", "ranks", "overrides", "unit"),
    [
        (260, 1, 1, TOKENS, 1),
        (564, 1, 1, TOKENS, 1),
        (564, 2, 1, ALONE, 1),
        (263, 2, 2, TOKENS, 1),
        (563, 2, 3, ALONE, 1),
        (561, 2, 2, PAIRS, 2),
    ],
)
def test_updates_share_whole_trajectories_evenly_and_padding_counts_for_nothing(
    rows: int, updates: int, ranks: int, overrides: list[str], unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the batch of a step to the mini-batches of each rank, by veRL's own worker. 64 problems, 4 trajectories."""
    samples = ["actor_rollout_ref.rollout.n=4", f"actor_rollout_ref.actor.ppo_mini_batch_size={64 // updates}"]
    config = adapted(compose(*samples, *overrides, recipe="grpo_online"))
    queue, random = Queue(), torch.Generator().manual_seed(0)
    long = torch.randperm(256, generator=random).tolist()
    turns = [1] * 256
    for number in range(rows - 256):
        turns[long[number % 256]] += 1
    keys = [f"p{number // 4}_{number % 4}_{turn}" for number in range(256) for turn in range(turns[number])]
    keys = [keys[place] for place in torch.randperm(rows, generator=random)]
    for key in keys:
        problem, session, turn = key[1:].split("_")
        begin = torch.full((60,), int(problem))
        prompt = torch.cat([begin, torch.full((30 * int(turn),), int(session))])
        mask = torch.ones(1 + int(problem) % 9, dtype=torch.long)
        queue.rows[key] = {"prompts": prompt, "responses": mask, "loss_mask": mask, "uid": problem}
        lengths = {"prompt_len": len(prompt), "response_len": len(mask), "seq_len": len(prompt) + len(mask)}
        queue.tags[key] = lengths
    for module in (our_trainer, updates_of_rows, padding_utils):
        monkeypatch.setattr(module, "tq", queue)
    made = object.__new__(our_trainer.CobaltTrainerSync)
    made.config, made._method, made.parameter_sync_step = config, Method(**config.cobalt.online), 1
    made.tokenizer, made.use_critic, made.global_steps = SimpleNamespace(eos_token_id=0), False, 1
    made.distillation_config = None
    made._init_resource_pool_mgr()
    (role,) = made.role_worker_mapping.values()
    kind = role.__ray_metadata__.modified_class.actor_worker_cls

    # what each rank's worker gives the engine
    seen: list[list[tuple[list[str], int]]] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_args, **_kwargs: None)
    monkeypatch.setattr(our_worker, "get_device_id", lambda: "cpu", raising=False)

    def train(_self: Any, data: Any) -> Any:
        seen[-1].append((list(tu.get(data, "key")), tu.get(data, "global_batch_size")))
        return tu.get_tensordict({}, {"metrics": {}})

    def update(batch: Any) -> Any:
        for rank, part in enumerate(batch.chunk(ranks)):
            seen.append([])
            worker = object.__new__(kind)
            worker.profiler = SimpleNamespace(step=lambda: None)
            worker.engine = SimpleNamespace(
                get_data_parallel_size=lambda: ranks,
                get_data_parallel_rank=lambda rank=rank: rank,
                get_data_parallel_group=lambda: None,
                train_mode=lambda **_: nullcontext(),
                is_mp_src_rank_with_outputs=lambda: True,
            )
            masks = torch.nested.as_nested_tensor(
                [queue.rows[key]["loss_mask"] for key in part.keys], layout=torch.jagged
            )
            data = tu.get_tensordict({"loss_mask": masks, "key": part.keys}, dict(part.extra_info))
            worker.train_mini_batch(data)
        return {"metrics": {"mfu": [1.0]}}

    monkeypatch.setattr(TrainingWorker, "train_batch", train)
    made.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [*range(ranks)]}, update_actor=update)
    tags = [queue.tags[key] for key in keys]
    batch = made._balance_batch(KVBatchMeta(keys=keys, tags=tags, partition_id="train"), {})
    made._update_actor(batch, {})

    padding = {key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")}
    assert not any(queue.rows[key]["loss_mask"].any() for key in padding)
    assert {len(of_rank) for of_rank in seen} == {updates} and len(seen) == ranks
    assert sorted(key for of_rank in seen for part, _ in of_rank for key in part) == sorted([*keys, *padding])
    updates_of: dict[str, set[int]] = defaultdict(set)
    for number in range(updates):
        cells = [of_rank[number][0] for of_rank in seen]
        assert len({len(cell) for cell in cells}) == 1 and len(cells[0]) % unit == 0
        real = [[key for key in cell if key not in padding] for cell in cells]
        assert abs(sum(map(len, real)) - rows / updates) <= 1.5  # half of the longest trajectory
        fillers = [len(cell) - len(of_cell) for cell, of_cell in zip(cells, real, strict=True)]
        assert max(fillers) - min(fillers) <= 1 and sum(fillers) < ranks * unit + 3
        assert [of_rank[number][1] for of_rank in seen] == [len(of_cell) for of_cell in real]  # of this rank
        assert all(cell[: len(of_cell)] == of_cell for cell, of_cell in zip(cells, real, strict=True))
        for key in (key for cell in real for key in cell):
            updates_of[key.rpartition("_")[0]].add(number)
    assert all(len(numbers) == 1 for numbers in updates_of.values()) and len(updates_of) == 256


def test_a_response_that_could_not_be_scored_gets_its_groups_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the bandit: GRPO then gives it no advantage. A group without failures keeps its rewards."""
    queue = Queue()
    monkeypatch.setattr(our_trainer, "tq", queue)
    scores = {"a_0_0": 1.0, "a_1_0": None, "a_2_0": 0.5, "b_0_0": 0.25, "b_1_0": 0.0, "b_2_0": 0.0}
    for key, score in scores.items():
        info = {"acc": score or 0.0, "infra": float(score is None)}
        rewards = torch.tensor([0.0, 0.0, score or 0.0])
        queue.rows[key] = {"uid": key[0], "rm_scores": rewards, "extra_fields": {"reward_extra_info": info}}
    made, metrics = object.__new__(our_trainer.CobaltTrainerSync), {}
    made._method, made._guard, made.parameter_sync_step = None, InfraGuard(0.25), 1
    made.config = SimpleNamespace(
        data=SimpleNamespace(train_batch_size=2),
        actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(n=3)),
    )
    monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda _self, batch, _metrics: batch)
    batch = SimpleNamespace(keys=[*scores], tags=[{}] * len(scores), partition_id="train")
    made._compute_advantage(batch, metrics)
    assert {key: float(queue.rows[key]["rm_scores"].sum()) for key in scores} == {**scores, "a_1_0": 0.75}
    assert metrics["reward/infra"] == pytest.approx(1 / 6) and metrics["reward/acc"] == pytest.approx(1.75 / 5)
