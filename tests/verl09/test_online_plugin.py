"""Online training with the real veRL 0.9.1, on a CPU: from the policy's tokens to the advantages of turns.

veRL's own agent-loop worker plays, asks our reward manager and writes rows. Our trainer reads them. In memory instead
of in other processes are the engine, the programs and the queue between the two.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from online_parts import FakeService, make_tests, respond
from test_plugin import MINICODER, compose  # skips without veRL 0.9.1
from transformers import AutoTokenizer
from verl.experimental.agent_loop import agent_loop as verls_loop
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1 import PPOTrainerSync, agent_loop_tq

from cobalt.errors import SetupError
from cobalt.prompts import first_messages, problem_instruction
from cobalt.serving.execution import ExecutionService
from cobalt.training import scoring
from cobalt.training.batch_scores import InfraGuard
from cobalt.training.online import Program, group_advantages
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import Method, TrainingConfig
from cobalt.training.verl09 import manager as our_manager
from cobalt.training.verl09 import trainer as our_trainer
from cobalt.training.verl09.config import adapted
from cobalt.training.verl09.online import TurnLoop

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

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> str:
        for name, column in fields.items():
            values = column.unbind() if isinstance(column, torch.Tensor) else [getattr(v, "data", v) for v in column]
            for key, value in zip(keys, values, strict=True):
                self.rows[key][name] = value
        return "put"

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        columns = {name: [self.rows[key][name] for key in keys] for name in select_fields}
        columns["rm_scores"] = torch.nested.as_nested_tensor(columns["rm_scores"], layout=torch.jagged)
        return columns


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trajectories of one problem, whose responses are given: keys, queue, texts of prompts, configuration."""

    async def run(
        trajectories: list[list[str]],
        method: str = "grpo",
        split: str = "train",
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
        manager = load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
        worker = object.__new__(Worker)
        worker.tokenizer, worker.processor, worker.mm_processor_kwargs = tokenizer, None, {}
        remote = SimpleNamespace(remote=manager.run_single)
        worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=remote)]
        worker.distillation_enabled, prompts = False, []
        for number, texts in enumerate(trajectories):
            answers = iter(texts)

            async def generate(request_id: str, prompt_ids: list[int], sampling_params: Any, answers=answers) -> Any:
                prompts.append(tokenizer.decode(prompt_ids))
                ids = [*tokenizer.encode(next(answers)), tokenizer.eos_token_id]
                return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"min_global_steps": 1})

            columns = {
                "raw_prompt": first_messages(problem_instruction("Print the sum.")),
                "data_source": "code",
                "reward_model": {"ground_truth": make_tests(4)},
                "extra_info": {"split": split},
                "tools_kwargs": {"public_test_cases": PUBLIC},
                "global_steps": 1,
            }
            wrap = verls_loop.DictConfigWrap
            loop = TurnLoop(
                wrap(config), SimpleNamespace(generate=generate), tokenizer, None, None, wrap(config.data), "qwen3"
            )
            outputs = await loop.run({}, **columns)
            place = {"uid": "problem", "session_id": number}
            await worker._agent_loop_postprocess(outputs, split == "test", **columns, **place)
        return queue, prompts, config, fake

    return run


def trained(queue: Queue, config: Any, monkeypatch: pytest.MonkeyPatch, max_infra_rate: float = 1.0) -> Any:
    """Metrics, and the advantage of each row, which stands at all of its tokens."""
    made = object.__new__(our_trainer.CobaltTrainerSync)
    made.config, made._method = config, Method(**config.cobalt.online)
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
    queue, prompts, _, _ = await play([[HALF, RIGHT], [RIGHT]], split="test")
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
    assert metrics["reward/infra"] == 0 and metrics["reward/acc"] == pytest.approx(2 / 7)
    assert any(found.values())


async def test_what_the_infrastructure_failed_is_neutral_counted_and_ends_a_run(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, _, config, _ = await play([[WRONG, LOST], [RIGHT], [WRONG, HALF, WRONG]])
    metrics, found = trained(queue, config, monkeypatch)
    assert [key for key in queue.rows if key.startswith("problem_0")] == ["problem_0_0", "problem_0_1"]
    assert found["problem_0_0"] == found["problem_0_1"] == 0
    assert found["problem_1_0"] > 0 > found["problem_2_0"]
    assert metrics["reward/infra"] == pytest.approx(2 / 6)
    with pytest.raises(SetupError, match="could not be run"):
        trained(queue, config, monkeypatch, max_infra_rate=0.05)


def test_a_response_that_could_not_be_scored_gets_its_groups_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the bandit: GRPO then gives it no advantage. A group without failures keeps its rewards."""
    queue = Queue()
    monkeypatch.setattr(our_trainer, "tq", queue)
    scores = {"a_0_0": 1.0, "a_1_0": None, "a_2_0": 0.5, "b_0_0": 0.25, "b_1_0": 0.0}
    for key, score in scores.items():
        info = {"acc": score or 0.0, "infra": float(score is None)}
        rewards = torch.tensor([0.0, 0.0, score or 0.0])
        queue.rows[key] = {"uid": key[0], "rm_scores": rewards, "extra_fields": {"reward_extra_info": info}}
    made, metrics = object.__new__(our_trainer.CobaltTrainerSync), {}
    made._method, made._guard = None, InfraGuard(0.25)
    monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda _self, batch, _metrics: batch)
    batch = SimpleNamespace(keys=[*scores], tags=[{}] * len(scores), partition_id="train")
    made._compute_advantage(batch, metrics)
    assert {key: float(queue.rows[key]["rm_scores"].sum()) for key in scores} == {**scores, "a_1_0": 0.75}
    assert metrics["reward/infra"] == pytest.approx(0.2) and metrics["reward/acc"] == pytest.approx(1.75 / 4)
