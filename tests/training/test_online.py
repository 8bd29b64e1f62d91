"""Online training on a CPU: from the policy's tokens to the advantages of turns, and the updates that they go into.

veRL's own agent-loop worker plays, asks our reward manager and writes rows. Our trainer reads them. In memory instead
of in other processes are the engine, the programs and the queue between the two.
"""

import asyncio
import json
from collections import defaultdict
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest
import ray
import torch
from fake_service import FakeService
from online_parts import (
    LOCAL,
    compose,
    jagged,
    make_manager,
    make_method,
    make_tests,
    make_trajectory,
    no_service,
    respond,
)
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop import agent_loop as verls_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1 import PPOTrainerSync, agent_loop_tq
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker

from cobalt.errors import InfraError, InputError, SetupError
from cobalt.prompts import COBALT, described, first_messages, problem_instruction
from cobalt.training import manager as manager_module
from cobalt.training import rollouts as rollouts_module
from cobalt.training import trainer as trainer_module
from cobalt.training import updates as updates_module
from cobalt.training import worker as worker_module
from cobalt.training.agent_loops import SeededLoop, TurnLoop, seed_of
from cobalt.training.batch_scores import InfraGuard
from cobalt.training.config import completed
from cobalt.training.manager import ERROR, PROGRAMS, VALIDATES, SharedService
from cobalt.training.online import Program, group_advantages, shares_of_updates, turn_advantages
from cobalt.training.rollouts import CobaltAgentLoopManager, CobaltAgentLoopWorker
from cobalt.training.settings import Method, TrainingConfig
from cobalt.training.trainer import CobaltTrainerSync

PUBLIC = make_tests(2)
WRONG, HALF, RIGHT, LOST = respond(0), respond(1), respond(4), respond("fail")


class Queue:
    """Rows by key, as TransferQueue keeps them."""

    def __init__(self):
        self.rows, self.tags = defaultdict(dict), {}

    async def async_kv_batch_put(self, keys, fields, partition_id, tags=()):
        self.kv_batch_put(keys, partition_id, fields)
        self.tags |= dict(zip(keys, tags, strict=False))

    def kv_batch_put(self, keys, partition_id, fields, tags=None):
        for name, column in fields.items():
            values = column.unbind() if isinstance(column, torch.Tensor) else [getattr(v, "data", v) for v in column]
            for key, value in zip(keys, values, strict=True):
                self.rows[key][name] = value
        return "put"

    def kv_batch_get(self, keys, partition_id, select_fields=None):
        if select_fields is None:
            return [self.rows[key] for key in keys]
        columns = {name: [self.rows[key][name] for key in keys] for name in select_fields}
        for name in {"rm_scores", "prompts"} & columns.keys():
            columns[name] = jagged(columns[name])
        return columns


def worker_of(config, tokenizer, score):
    """The process of agent loops, whose responses are scored by ``score``."""
    worker = object.__new__(CobaltAgentLoopWorker)
    worker.config, worker._judged = config, []
    worker.tokenizer, worker.processor, worker.mm_processor_kwargs = tokenizer, None, {}
    worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=score))]
    worker.distillation_enabled = False
    return worker


@cache
def online_config(method, changes):
    """As it is trained on. ``changes``: of ``cobalt.online`` and of ``data``, as JSON."""
    made = compose(LOCAL, recipe=f"{method}_online")
    settings, data = json.loads(changes)
    made.cobalt.online.update(settings)
    made.data.update(data)
    assert TrainingConfig.of(made).online is not None
    made.cobalt = {**made.cobalt, "prompts": described(COBALT)}  # ``launch`` takes them from the data
    return completed(made)


@pytest.fixture
def play(minicoder, monkeypatch):
    """Trajectories of one problem, whose responses are given (None: the engine fails; a list: tokens without an end).

    Gives the queue, the texts of all prompts, the configuration and the programs that ran.
    """

    async def run(trajectories, method="grpo", validates=False, score=None, data=None, public=PUBLIC, **settings):
        fake, queue, prompts = FakeService(), Queue(), []
        monkeypatch.setattr(manager_module, "JobExecutorClient", lambda _reward: fake)  # and nobody opens their own
        monkeypatch.setattr(TurnLoop, "service", None)
        monkeypatch.setattr(agent_loop_tq, "tq", queue)
        monkeypatch.setattr(trainer_module, "tq", queue)
        monkeypatch.setattr(rollouts_module, "tq", queue)
        config = deepcopy(online_config(method, json.dumps([settings, data or {}])))
        config.actor_rollout_ref.rollout.n, config.data.train_batch_size = len(trajectories), 1
        manager = load_reward_manager(config, minicoder, reward_router_address=None, reward_model_tokenizer=None)
        if score is not None:
            manager._scorer.compute_score, manager._scorer.gives_batch = score, False
        worker = worker_of(config, minicoder, manager.run_single)
        for number, texts in enumerate(trajectories):
            answers = iter(texts)

            async def generate(request_id, prompt_ids, sampling_params, answers=answers):
                prompts.append(minicoder.decode(prompt_ids))
                if (answer := next(answers)) is None:
                    raise ConnectionError("the engine is gone")
                ids = answer if isinstance(answer, list) else [*minicoder.encode(answer), minicoder.eos_token_id]
                return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"min_global_steps": 1})

            columns = {
                "raw_prompt": first_messages(problem_instruction("Print the sum.")),
                "data_source": "code",
                "reward_model": {"ground_truth": make_tests(4)},
                "extra_info": {"split": "train" if validates else "test"},  # veRL knows better
                "tools_kwargs": {"public_test_cases": public},
                "global_steps": 1,
                VALIDATES: validates,
            }
            wrap = verls_loop.DictConfigWrap
            server = SimpleNamespace(generate=generate)
            loop = TurnLoop(wrap(config), server, minicoder, None, None, wrap(config.data), "qwen3")
            try:
                outputs = await loop.run({}, **columns)
            except InfraError:
                continue  # veRL goes on without the trajectory
            place = {"uid": "problem", "session_id": number}
            await worker._agent_loop_postprocess(outputs, validates, **columns, **place)
        await worker.scored()
        return queue, prompts, config, fake

    return run


def trained(queue, config, monkeypatch, max_infra_rate=1.0):
    """Metrics, and the advantage of each row, which stands at all of its tokens."""
    made = object.__new__(CobaltTrainerSync)
    made.config, made._method, made.parameter_sync_step = config, Method(**config.cobalt.online), 1
    made._guard = InfraGuard(max_infra_rate)
    made.agent_loop_manager = SimpleNamespace(wait_for_scores=lambda: None)
    monkeypatch.setattr(PPOTrainerSync, "_compute_advantage", lambda _self, batch, _metrics: batch)
    padding = "pad_0_0"
    queue.rows[padding] = {**next(iter(queue.rows.values())), "uid": "pad"}
    keys = [*queue.rows][::-1]  # any order
    tags = [{"is_padding": key == padding} for key in keys]
    metrics = {}
    made._compute_advantage(SimpleNamespace(keys=keys, tags=tags, partition_id="train"), metrics)
    found = {}
    for key in keys:
        values = queue.rows[key]["advantages"]
        assert values.shape == queue.rows[key]["responses"].shape and values.eq(values[0]).all()
        found[key] = float(values[0])
    assert found.pop(padding) == 0
    return metrics, found


def turns_of(queue):
    """Turns played by each trajectory."""
    return [sum(key.startswith(f"problem_{number}_") for key in queue.rows) for number in range(3)]


async def test_a_trajectory_is_a_row_for_each_turn_with_feedback_and_without_earlier_thinking(play):
    queue, prompts, *_ = await play([[respond(0, think="my plan"), HALF, RIGHT], [RIGHT]])
    assert [*queue.rows] == ["problem_0_0", "problem_0_1", "problem_0_2", "problem_1_0"]
    assert "Here is the execution feedback:" in prompts[1] and "print(0)" in prompts[1] and "my plan" not in prompts[1]
    row = queue.rows["problem_0_1"]
    assert row["input_ids"].tolist() == [*row["prompts"].tolist(), *row["responses"].tolist()]
    assert row["rollout_log_probs"].tolist() == [-0.5] * len(row["responses"])
    assert row["response_mask"].all() and queue.tags["problem_0_1"]["response_len"] == len(row["responses"])


async def test_a_trajectory_ends_when_public_tests_pass_or_turns_are_used_up_and_can_go_on_after_success(play):
    queue, *_ = await play([[RIGHT], [WRONG, WRONG, HALF], [WRONG, RIGHT]])
    assert turns_of(queue) == [1, 3, 2]
    queue, prompts, *_ = await play([[RIGHT, RIGHT, WRONG], [WRONG, WRONG, RIGHT]], stop_at_success=False)
    assert turns_of(queue) == [3, 3, 0]
    told = ["The code has passed all public test cases" in prompt for prompt in prompts]
    assert told == [False, True, True, False, False, False]


async def test_each_turns_prompt_is_made_with_the_arguments_of_the_chat_template(play):
    template = "{% for message in messages %}{{ style }} {{ message.content }}\n{% endfor %}"
    made = {"apply_chat_template_kwargs": {"chat_template": template, "style": "brief"}}
    _, prompts, *_ = await play([[WRONG, RIGHT]], data=made)
    assert [prompt.count("brief ") for prompt in prompts] == [2, 4]


async def test_a_prompt_that_would_be_too_long_ends_its_trajectory_and_is_counted(play, monkeypatch):
    whole, prompts, *_ = await play([[WRONG, RIGHT]])
    first, second = (len(whole.rows[f"problem_0_{turn}"]["prompts"]) for turn in range(2))
    for most, turns in ((second, 2), (second - 1, 1)):
        queue, again, config, _ = await play([[WRONG, RIGHT], [RIGHT]], data={"max_prompt_length": most})
        assert again[:turns] == prompts[:turns] and len(again) == turns + 1 and first < most
        metrics, _ = trained(queue, config, monkeypatch)
        assert metrics["cost/rollout_overlong"] == (turns == 1)


async def test_a_response_that_was_cut_off_has_no_program(minicoder, play):
    cut_off = minicoder.encode(RIGHT + " x" * 200)[:192]  # the preset's longest, and it asks for an end
    queue, *_, fake = await play([[cut_off, RIGHT]])
    assert turns_of(queue)[0] == 2 and fake.programs == [None, "print(4)", "print(4)"]
    assert queue.rows["problem_0_0"]["extra_fields"]["reward_extra_info"][PROGRAMS][0]["score"]["score"] == -1


async def test_programs_of_the_last_turn_need_no_feedback_and_verpo_runs_none_twice(play):
    *_, fake = await play([[WRONG, HALF, RIGHT]], "verpo")
    assert fake.programs == ["print(0)", "print(1)", *("print(0)", "print(1)", "print(4)")]  # play, then judgement


async def test_validation_plays_one_turn_and_scores_pass_or_fail(play):
    queue, prompts, *_ = await play([[HALF, RIGHT], [RIGHT]], validates=True)
    scores = {key: float(row["rm_scores"].sum()) for key, row in queue.rows.items()}
    assert scores == {"problem_0_0": 0, "problem_1_0": 1} and len(prompts) == 2


THIRD_VERSION = {"turn_baseline": "all_turns", "test_weights": "density", "gamma": 0.0, "outcome_decay": 0.9}


@pytest.mark.parametrize(
    ("method", "settings"),
    [("grpo", {}), ("verpo", {}), ("verpo", {"turn_baseline": "others"}), ("verpo", THIRD_VERSION)],
)
async def test_turns_get_the_advantages_of_their_group(play, monkeypatch, method, settings):
    """The first trajectory improves from turn to turn, and its rewards say so."""
    queue, _, config, _ = await play([[WRONG, HALF, RIGHT], [RIGHT], [WRONG, WRONG, WRONG]], method, **settings)
    metrics, found = trained(queue, config, monkeypatch)
    passed = [[0, 1, 4], [4], [0, 0, 0]]
    scores = [
        [float(queue.rows[f"problem_{n}_{t}"]["rm_scores"].sum()) for t in range(len(row))]
        for n, row in enumerate(passed)
    ]
    assert scores[0][1] > scores[2][1] and scores[0][2] == scores[1][0] == 1.0
    group = [
        [program(score, *(index < count for index in range(4))) for score, count in zip(*row, strict=True)]
        for row in zip(scores, passed, strict=True)
    ]
    expected = group_advantages(group, Method(**config.cobalt.online))
    for n, row in enumerate(passed):
        for t in range(len(row)):
            assert found[f"problem_{n}_{t}"] == pytest.approx(float(expected[n][t]), abs=1e-6)
    assert metrics["reward/infra"] == 0 and metrics["reward/acc"] == pytest.approx(2 / 3)
    assert metrics["reward/acc_over_turns"] == pytest.approx(2 / 7)
    assert any(found.values())


async def test_what_the_infrastructure_failed_is_neutral_counted_and_ends_a_run(play, monkeypatch):
    queue, _, config, _ = await play([[WRONG, LOST], [RIGHT], [WRONG, HALF, WRONG]])
    metrics, found = trained(queue, config, monkeypatch)
    assert turns_of(queue) == [2, 1, 3]
    assert found["problem_0_0"] == found["problem_0_1"] == 0
    assert found["problem_1_0"] > 0 > found["problem_2_0"]
    assert metrics["reward/infra"] == pytest.approx(1 / 3)
    with pytest.raises(SetupError, match="could not be run"):
        trained(queue, config, monkeypatch, max_infra_rate=0.05)


async def test_without_a_service_trajectories_end_and_have_failed(play, use, monkeypatch):
    use(no_service)
    monkeypatch.setattr("cobalt.training.agent_loops.service_of_online", SharedService)
    queue, _, config, _ = await play([[WRONG], [RIGHT]])
    metrics, found = trained(queue, config, monkeypatch)
    assert metrics["reward/infra"] == 1 and set(found.values()) == {0}


async def test_trajectories_that_the_engine_lost_are_failures_of_the_infrastructure(play, monkeypatch):
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


async def typo(**_arguments):
    raise KeyError("typo")


@pytest.mark.parametrize("validates", [False, True])
async def test_an_error_in_the_reward_function_ends_training_with_one_line(play, monkeypatch, validates):
    queue, _, config, _ = await play([[RIGHT], [RIGHT]], validates=validates, score=typo)
    with pytest.raises(InputError, match=r"^the reward function raised KeyError: 'typo' \(\S+, line \d+\)$"):
        trained(queue, config, monkeypatch)
    infos = {ERROR: [row["extra_fields"]["reward_extra_info"][ERROR] for row in queue.rows.values()]}
    with pytest.raises(InputError, match="the reward function raised"):
        object.__new__(CobaltTrainerSync)._val_metrics_update(["code"] * 2, ["a", "b"], infos, [])


@pytest.mark.parametrize(
    ("public", "told"), [("no tests", "ValueError: tests are not JSON"), (None, "lack .*public_test_cases")]
)
async def test_an_error_of_the_agent_loop_ends_training(play, monkeypatch, public, told):
    queue, _, config, _ = await play([[RIGHT], [RIGHT]], public=public)
    with pytest.raises(InputError, match=told):
        trained(queue, config, monkeypatch)


async def test_workers_start_without_an_engine_and_get_it_later(monkeypatch):
    """Their imports take as long as the engine's start, beside it."""
    made = []

    class Process:
        def __init__(self, *given):
            made.append(given)
            self.connect = SimpleNamespace(remote=self.connected)

        async def connected(self, *engine):
            if engine[1] == "broken":
                raise ValueError(engine[1])
            made.append(engine)

    options = SimpleNamespace(options=lambda **_placed: SimpleNamespace(remote=Process))
    monkeypatch.setattr(ray, "remote", lambda kind: options if kind.__name__ == "CobaltAgentLoopWorker" else kind)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "ab" * 28, "Alive": True, "Resources": {"CPU": 4.0}}])
    config = compose("actor_rollout_ref.rollout.agent.num_workers=2", recipe="multi_turn")
    await CobaltAgentLoopManager.start_workers(config)
    assert made == [(config, None, None, None)] * 2
    await CobaltAgentLoopManager.create(config, "engine", {}, ["reward"])
    assert made[2:] == [(config, "engine", {}, ["reward"])] * 2
    with pytest.raises(ValueError, match="broken"):
        await CobaltAgentLoopManager.create(config, "broken")


@pytest.mark.parametrize("validates", [False, True])
async def test_verl_itself_says_what_is_validation(monkeypatch, validates):
    """From the trainer's batch to the columns that agent loops and the reward manager get."""
    chunks = []
    remote = SimpleNamespace(generate_sequences=SimpleNamespace(remote=chunks.append))
    manager = object.__new__(CobaltAgentLoopManager)
    manager.agent_loop_workers = [remote, remote]
    monkeypatch.setattr(agent_loop_tq.ray, "get", lambda _futures: None)
    batch = tu.get_tensordict({"uid": np.array(["a", "b"], dtype=object), "index": np.array([0, 1], dtype=object)})
    tu.assign_non_tensor_data(batch, "global_steps", 1)
    if validates:
        tu.assign_non_tensor_data(batch, "validate", True)
    manager.generate_sequences(batch)

    seen, worker = [], object.__new__(CobaltAgentLoopWorker)
    worker.config, worker.background_tasks = completed(compose(recipe="grpo_online")), set()
    monkeypatch.setattr(agent_loop_tq, "tq", SimpleNamespace(async_kv_put=AsyncMock()))

    async def run(*_parameters, **columns):
        seen.append(columns[VALIDATES])

    worker._run_agent_loop = run
    for chunk in chunks:
        await worker.generate_sequences(chunk)
    await asyncio.gather(*worker.background_tasks)
    rollout = worker.config.actor_rollout_ref.rollout
    assert seen == [validates] * 2 * (rollout.val_kwargs.n if validates else rollout.n)
    assert rollout.agent.agent_loop_manager_class == f"{type(manager).__module__}.{type(manager).__name__}"


@pytest.mark.parametrize(
    ("overrides", "validates", "is_later"),
    [
        ([], False, True),
        ([], True, False),
        (["trainer.v1.trainer_mode=colocate_async"], False, False),
        (["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"], False, False),
    ],
)
async def test_a_response_is_handed_over_while_its_program_runs(minicoder, monkeypatch, overrides, validates, is_later):
    queue, ended = Queue(), asyncio.Event()

    async def score(data):
        await ended.wait()
        if data.non_tensor_batch["session_id"][0] == 1:
            raise ConnectionError("the process is gone")
        return {"reward_score": 0.5, "reward_extra_info": {"acc": 1.0}}

    for module in (agent_loop_tq, rollouts_module):
        monkeypatch.setattr(module, "tq", queue)
    worker = worker_of(completed(compose(*overrides)), minicoder, score)
    common = {"uid": "problem", "global_steps": 1, VALIDATES: validates}

    def hand_over(session):
        made = {"prompt_ids": [1], "response_ids": [2, 3], "response_mask": [1, 1], "metrics": AgentLoopMetrics()}
        output = AgentLoopOutput(**made, extra_fields={"min_global_steps": 4})
        return worker._agent_loop_postprocess(output, validates, session_id=session, **common)

    first = asyncio.create_task(hand_over(0))
    await asyncio.sleep(0.01)
    assert first.done() == (bool(queue.rows) and queue.rows["problem_0_0"]["extra_fields"]["reward_extra_info"] == {})
    assert first.done() == is_later
    ended.set()
    await first
    if is_later:
        await hand_over(1)
        await worker.scored()
        lost = queue.rows["problem_1_0"]
        assert lost["extra_fields"]["reward_extra_info"]["infra"] == 1 and lost["rm_scores"][-1].isnan()
    row = queue.rows["problem_0_0"]
    assert row["rm_scores"].tolist() == [0, 0.5] and row["responses"].tolist() == [2, 3]
    assert row["extra_fields"] == {"min_global_steps": 4, "reward_extra_info": {"acc": 1.0}}
    worker.reward_loop_worker_handles = None  # a reward model scores on the trainer's GPUs, later
    await hand_over(2)
    await worker.scored()
    assert "rm_scores" not in queue.rows["problem_2_0"]


def test_each_place_step_sample_and_turn_has_a_seed_of_its_own():
    columns = {"global_steps": 1, "index": 2, "session_id": 3}
    seeds = [seed_of(0, columns), seed_of(0, columns, 1), seed_of(1, columns)]
    seeds += [seed_of(0, {**columns, name: 4}) for name in columns]
    assert len(set(seeds)) == len(seeds) and seed_of(0, dict(columns)) == seeds[0]


async def test_single_turns_on_cpu_cores_bring_their_seeds(monkeypatch):
    async def run(_self, sampling_params, **columns):
        return sampling_params

    monkeypatch.setattr(SingleTurnAgentLoop, "run", run)
    loop, columns = object.__new__(SeededLoop), {"global_steps": 1, "index": 2, "session_id": 3}
    loop.config = SimpleNamespace(cobalt=SimpleNamespace(seed=7))
    assert await loop.run({"top_p": 1.0}, **columns) == {"top_p": 1.0, "seed": seed_of(7, columns)}


HALF_ROOT = 0.5**0.5


def program(reward, *passed):
    return Program({"score": reward}, tuple(map(bool, passed)))


def advantages(group, **settings):
    """``group[n]``: the programs of trajectory n; turn by turn."""
    judged = [None if None in programs else programs for programs in group]
    values_NT = group_advantages(judged, make_method(**settings))
    return [value for programs, values_T in zip(group, values_NT, strict=True) for value in values_T[: len(programs)]]


GROUP = [[program(0.2, 1, 0), program(1.0, 1, 1)], [program(-0.1, 0, 0), program(-0.1, 0, 0), program(-0.1, 0, 0)]]


def test_grpo_scores_a_trajectory_by_its_last_program_or_the_discounted_sum():
    """In the second group the last program says 1 and 0.2, the sums are 0.1 and 0.4 + 0.1."""
    assert advantages(GROUP) == pytest.approx([HALF_ROOT] * 2 + [-HALF_ROOT] * 3, abs=1e-4)
    group = [[program(-0.4), program(1.0)], [program(0.4), program(0.2)]]
    assert advantages(group)[0] > 0
    assert advantages(group, trajectory_score="sum", gamma=0.5)[0] < 0


def test_verpo_tells_turns_apart():
    first, second, *others = advantages(GROUP, method="verpo")
    assert first == pytest.approx(2 * HALF_ROOT, abs=1e-4)  # its return and its outcome are above the other's
    assert second == pytest.approx(2 * HALF_ROOT, abs=1e-4)
    assert others == pytest.approx([-2 * HALF_ROOT, -2 * HALF_ROOT, -HALF_ROOT], abs=1e-4)  # alone at turn 2


@pytest.mark.parametrize("method", ["grpo", "verpo"])
def test_a_failed_program_neutralises_its_trajectory_and_mostly_failed_groups_whole(method):
    failed = [[program(1.0, 1, 1), None]]
    others = [[program(1.0, 1, 1)], [program(0.0, 1, 0)], [program(0.0, 0, 1)]]
    values = advantages([*failed, *others], method=method)
    assert values[:2] == [0, 0]
    assert np.sign(values[2:]).tolist() == np.sign(advantages(others, method=method)).tolist()
    assert advantages([[None], [None], [None], [program(1.0, 1, 1)], [program(0.0, 0, 0)]], method=method) == [0] * 5


def test_groups_do_not_touch():
    others = [[program(0.5, 1, 0)], [program(0.0, 0, 0)]]
    rows = [[0, 1], [4, 3, 2], [5], [6]]
    both = turn_advantages(rows, list("aabb"), [*GROUP, *others], make_method())
    expected = [*advantages(GROUP), *advantages(others)]
    assert [both[row] for row in (0, 1, 4, 3, 2, 5, 6)] == expected and all(expected)


@pytest.fixture
def judge(minicoder, service, monkeypatch):
    """The result of a trajectory with these responses."""
    monkeypatch.setattr(manager_module, "JobExecutorClient", lambda _reward: service)

    async def run(*responses, turns=3, **columns):
        manager = make_manager(minicoder, online={"method": "grpo", "turns": turns})
        return await manager.run_single(make_trajectory(minicoder, responses, **columns))

    return run


async def test_a_programs_context_is_its_own_trajectory(judge):
    """Pass rates 1/4, 2/4, 1/4: better than before, then worse than the best; another trajectory starts anew."""
    found = [await judge(respond(1), respond(2), respond(1)), await judge(respond(2))]
    scores = [one["score"] for made in found for one in made["reward_extra_info"][PROGRAMS]]
    improved, worse = 0.2 + 0.1 * 0.25 / 0.75, -0.1 - 0.1 * 0.5
    assert [one["reward_correct"] + one["reward_improve"] for one in scores] == pytest.approx([0, improved, worse, 0.2])
    assert found[0]["reward_score"] == scores[2]["score"]


@pytest.mark.parametrize(("second", "failed"), [(2, True), ("fail", False)], ids=["rollout", "reward"])
async def test_a_trajectory_with_a_failure_is_not_scored(judge, second, failed):
    info = (await judge(respond(1), respond(second), respond(4), failed=failed))["reward_extra_info"]
    assert info["infra"] == 1 and PROGRAMS not in info and ERROR not in info


async def test_a_users_own_loop_need_not_say_that_nothing_failed(judge):
    assert (await judge(respond(1), tool_extra_fields={}))["reward_extra_info"]["infra"] == 0


async def test_with_one_turn_rewards_and_advantages_are_those_of_single_turn_grpo(minicoder, judge, service):
    responses = [respond(4), respond("fail"), respond(1), "no program", respond(2, "another plan")]
    single = make_manager(minicoder)
    alone = [await single.run_single(make_trajectory(minicoder, [response])) for response in responses]
    given = [await judge(response, turns=1) for response in responses]
    assert str([one["reward_score"] for one in given]) == str([one["reward_score"] for one in alone])
    group = [[Program(**one) for one in made["reward_extra_info"].get(PROGRAMS, [])] or [None] for made in given]
    scores = [one["reward_score"] for one in alone]
    scores[1] = sum(scores[:1] + scores[2:]) / 4  # neutral
    tokens = torch.tensor(scores)[:, None]
    expected, _ = compute_grpo_outcome_advantage(tokens, torch.ones_like(tokens), np.array(["a"] * 5))
    assert advantages(group, turns=1) == pytest.approx(expected[:, 0].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("turns", "updates", "expected"),
    [
        ([1, 1, 3, 1, 2, 3, 1], 1, [12]),
        ([3, 3, 3, 3], 2, [6, 6]),
        ([3, 1, 1, 1, 3, 3], 2, [6, 6]),
        ([1, 1, 3, 1, 2, 3, 1], 3, [5, 3, 4]),
        ([3, 1], 2, [3, 1]),
        ([3, 1], 4, [3, 1]),  # no update without a trajectory
        ([1, 1, 1, 1, 9], 4, [2, 1, 1, 9]),
    ],
)
def test_updates_get_whole_trajectories_and_about_equally_many_rows(turns, updates, expected):
    rows = iter(range(sum(turns)))
    trajectories = [[next(rows) for _ in range(count)] for count in turns]
    shares = shares_of_updates(trajectories, updates)
    assert [len(share) for share in shares] == expected
    assert [row for share in shares for row in share] == [*range(sum(turns))]


TOKENS = "cobalt.loss_weights=tokens"


@pytest.mark.parametrize(
    ("rows", "updates", "ranks", "override"),
    [
        (564, 1, 1, TOKENS),
        (564, 2, 1, "cobalt.share_prompts=false"),
        (263, 2, 2, TOKENS),
        (563, 2, 3, "cobalt.share_prompts=false"),
        (561, 2, 2, "cobalt.loss_weights=release"),
    ],
)
def test_updates_share_whole_trajectories_evenly_and_padding_counts_for_nothing(
    rows, updates, ranks, override, monkeypatch
):
    """From the batch of a step to the mini-batches of each rank, by veRL's own worker. 64 problems, 4 trajectories."""
    samples = ["actor_rollout_ref.rollout.n=4", f"actor_rollout_ref.actor.ppo_mini_batch_size={64 // updates}"]
    config = completed(compose(*samples, override, recipe="grpo_online"))
    queue, random = Queue(), torch.Generator().manual_seed(0)
    long, turns = torch.randperm(256, generator=random).tolist(), [1] * 256
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
    for module in (trainer_module, updates_module, padding_utils):
        monkeypatch.setattr(module, "tq", queue)
    made = object.__new__(CobaltTrainerSync)
    made.config, made._method, made.parameter_sync_step = config, Method(**config.cobalt.online), 1
    made.tokenizer, made.use_critic, made.global_steps = SimpleNamespace(eos_token_id=0), False, 1
    made.distillation_config = None
    made._init_resource_pool_mgr()
    (role,) = made.role_worker_mapping.values()
    kind = role.__ray_metadata__.modified_class.actor_worker_cls

    # what each rank's worker gives the engine
    seen = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_args, **_kwargs: None)
    monkeypatch.setattr(worker_module, "get_device_id", lambda: "cpu")

    def train(_self, data):
        seen[-1].append((list(tu.get(data, "key")), tu.get(data, "global_batch_size")))
        return tu.get_tensordict({}, {"metrics": {}})

    def update(batch):
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
            masks = jagged([queue.rows[key]["loss_mask"] for key in part.keys])
            data = tu.get_tensordict({"loss_mask": masks, "key": part.keys}, dict(part.extra_info))
            worker.train_mini_batch(data)
        return {"metrics": {"mfu": [1.0]}}

    monkeypatch.setattr(TrainingWorker, "train_batch", train)
    made._actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [*range(ranks)]}, update_actor=update)
    tags = [queue.tags[key] for key in keys]
    batch = made._balance_batch(KVBatchMeta(keys=keys, tags=tags, partition_id="train"), {})
    made._update_actor(batch, {})

    padding = {key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")}
    assert not any(queue.rows[key]["loss_mask"].any() for key in padding)
    assert {len(of_rank) for of_rank in seen} == {updates} and len(seen) == ranks
    assert sorted(key for of_rank in seen for part, _ in of_rank for key in part) == sorted([*keys, *padding])
    updates_of = defaultdict(set)
    for number in range(updates):
        cells = [of_rank[number][0] for of_rank in seen]
        assert len({len(cell) for cell in cells}) == 1
        real = [[key for key in cell if key not in padding] for cell in cells]
        assert abs(sum(map(len, real)) - rows / updates) <= 1.5  # half of the longest trajectory
        fillers = [len(cell) - len(of_cell) for cell, of_cell in zip(cells, real, strict=True)]
        assert max(fillers) - min(fillers) <= 1 and sum(fillers) < ranks + 3
        assert [of_rank[number][1] for of_rank in seen] == [len(of_cell) for of_cell in real]  # of this rank
        assert all(cell[: len(of_cell)] == of_cell for cell, of_cell in zip(cells, real, strict=True))
        for key in (key for cell in real for key in cell):
            updates_of[key.rpartition("_")[0]].add(number)
    assert all(len(numbers) == 1 for numbers in updates_of.values()) and len(updates_of) == 256
