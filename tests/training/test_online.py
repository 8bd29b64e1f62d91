"""Online training: what each turn is asked, when trajectories end, the rows for veRL, and their rewards and advantages.

With one turn everything is single-turn GRPO: rows, rewards and advantages.
"""

import asyncio
import sys
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from actors import RESPONSES, make_update, updated, verls_actor, worker_settings
from online_parts import (
    MODEL,
    PROMPT_WIDTH,
    WIDTH,
    FakeService,
    ScriptedEngine,
    make_batch,
    make_method,
    make_multi_turn,
    make_prompts,
    make_tests,
    no_service,
    respond,
)
from tensordict import TensorDict
from test_hf_rollout import rollout_config
from test_shared_prompts import ROWS
from transformers import AutoModelForCausalLM
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from cobalt.errors import InputError
from cobalt.sandbox import ExecutionResult, Verdict
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online import (
    ADVANTAGE,
    MINI_BATCHES,
    ROLLOUT_FAILED,
    TRAJECTORY,
    TURN,
    OnlineRewardManager,
    Program,
    drop_rows_after_end,
    group_advantages,
    kept_rows,
    shares_of_updates,
    with_given_advantages,
)
from cobalt.training.rollout_engines import HFRollout, OnlineRollout
from cobalt.training.scoring import compute_score
from cobalt.training.workers import CobaltActor

__all__ = ["verls_actor"]
LONGEST_PROMPT = 600
WRONG, RIGHT, LOST = respond(1), respond(2), respond("fail")
ALL_PUBLIC = 2
PUBLIC_TESTS = make_tests(ALL_PUBLIC)


def roll_with(engine, minicoder, trajectories, prompt_width=LONGEST_PROMPT, tests=PUBLIC_TESTS, turns=3, **settings):
    config = SimpleNamespace(prompt_length=prompt_width, response_length=WIDTH)
    prompts = make_prompts(minicoder, ["sum"], trajectories * turns, tests)
    multi_turn = make_multi_turn(minicoder, config, turns=turns, **settings)
    return multi_turn.rollout(prompts, engine, list(range(len(prompts))))


def roll(minicoder, answers, **settings):
    """Rows and the engine; as many trajectories as the first call has answers."""
    engine = ScriptedEngine(minicoder, answers)
    return roll_with(engine, minicoder, len(answers[0]), **settings), engine


def played(rows, turns=3):
    """Turns played by each trajectory."""
    return (rows.batch["attention_mask"][:, LONGEST_PROMPT:].any(1).view(-1, turns).sum(1)).tolist()


def test_the_next_turn_shows_program_and_feedback_without_the_thinking(minicoder, service):
    _, engine = roll(minicoder, [[respond(1, think="my plan")], [RIGHT]])
    first, second = (minicoder.decode(requests[0].prompt) for requests in engine.asked)
    assert "Print the sum of the values." in first and "Print the sum of the values." in second
    assert "print(1)" in second and "Here is the execution feedback:" in second
    assert "my plan" not in second


def test_a_trajectory_ends_when_public_tests_pass_or_turns_are_used_up_or_the_context_is_full(minicoder, service):
    rows, engine = roll(minicoder, [[RIGHT, WRONG, WRONG], [WRONG, RIGHT], [WRONG]])
    assert played(rows) == [1, 3, 2]
    assert [len(requests) for requests in engine.asked] == [3, 2, 1]
    second = len(engine.asked[1][0].prompt)
    for width, calls in ((second, 2), (second - 1, 1)):
        _, engine = roll(minicoder, [[WRONG], [RIGHT]], turns=2, prompt_width=width)
        assert len(engine.asked) == calls


def test_a_trajectory_can_go_on_after_success(minicoder, service):
    rows, engine = roll(minicoder, [[RIGHT, WRONG], [RIGHT, WRONG], [WRONG, RIGHT]], stop_at_success=False)
    assert played(rows) == [3, 3]
    told = "The code has passed all public test cases"
    assert [[told in minicoder.decode(asked.prompt) for asked in turn] for turn in engine.asked[1:]] == [
        [True, False],
        [True, False],
    ]


def test_equal_programs_run_once_and_those_of_the_last_turn_need_not_run(minicoder, service):
    roll(minicoder, [[WRONG] * 5, [respond(0)] * 5, [RIGHT] * 5])
    assert sorted(service.programs) == ["print(0)", "print(1)"]
    service.programs.clear()
    roll(minicoder, [[WRONG, RIGHT]], turns=1)
    assert service.programs == []


def test_programs_run_while_others_are_generated(minicoder, service):
    ran, answer = threading.Event(), service.run

    def run(code, tests):
        ran.set()
        return answer(code, tests)

    service.run = run

    class Engine(ScriptedEngine):
        def __call__(self, requests, on_finished):
            def and_wait(index, response):
                on_finished(index, response)
                assert ran.wait(timeout=60)

            super().__call__(requests, and_wait)

    roll_with(Engine(minicoder, [[WRONG, RIGHT], [RIGHT]]), minicoder, 2, turns=2)


def test_an_infrastructure_failure_ends_and_marks_its_trajectory_only(minicoder, service):
    rows, _ = roll(minicoder, [[LOST, WRONG], [RIGHT]])
    assert played(rows) == [1, 2]
    assert rows.non_tensor_batch[ROLLOUT_FAILED].tolist() == [True] * 3 + [False] * 3


def test_without_a_service_every_trajectory_that_needs_it_has_failed(minicoder, no_waiting, use):
    use(no_service)
    rows, _ = roll(minicoder, [[WRONG, RIGHT]])
    assert rows.non_tensor_batch[ROLLOUT_FAILED].all()
    assert played(rows) == [1, 1]


def test_a_response_that_was_cut_off_has_no_program(minicoder, service):
    def cut_off(requests, on_finished):
        on_finished(0, minicoder.encode(RIGHT + " x" * WIDTH)[:WIDTH])

    for require_end, expected in ((False, "print(2)"), (True, None)):
        asked = []
        service.run = lambda code, tests, asked=asked: asked.append(code) or FakeService().run("print(2)", tests)
        roll_with(cut_off, minicoder, 1, turns=2, require_end=require_end)
        assert asked == [expected]


def test_rows_are_laid_out_as_verls_and_empty_ones_after_the_end(minicoder, service):
    rows, engine = roll(minicoder, [[WRONG], [RIGHT]])
    batch = rows.batch
    mask = batch["attention_mask"].bool()
    asked = [len(requests[0].prompt) for requests in engine.asked]
    assert mask[:, :LONGEST_PROMPT].sum(1).tolist() == [*asked, 1]
    answered = [len(minicoder.encode(WRONG)) + 1, len(minicoder.encode(RIGHT)) + 1, 0]
    assert mask[:, LONGEST_PROMPT:].sum(1).tolist() == answered
    assert batch["input_ids"].equal(torch.cat([batch["prompts"], batch["responses"]], 1))
    assert batch["position_ids"][mask].equal((mask.long().cumsum(1) - 1)[mask])
    assert batch["prompts"][1][mask[1, :LONGEST_PROMPT]].tolist() == list(engine.asked[1][0].prompt)
    assert (batch["responses"][~mask[:, LONGEST_PROMPT:]] == minicoder.pad_token_id).all()


def test_costs_are_counted_on_rows_with_a_response(minicoder, service):
    rows, _ = roll(minicoder, [[WRONG, RIGHT], [respond(0)], [RIGHT]])
    for name, total in (("programs_run", 3), ("tests_run", 3 * ALL_PUBLIC)):
        column = rows.non_tensor_batch[f"cost_rollout_{name}"].astype(float)
        assert column.sum() == pytest.approx(total)
        assert (column > 0).tolist() == rows.batch["attention_mask"][:, LONGEST_PROMPT:].any(1).tolist()


def test_data_without_public_tests_is_refused(minicoder, service):
    with pytest.raises(InputError, match="public_test_cases"):
        roll(minicoder, [[WRONG]], tests=None)


class FakeVLLM:
    """The part of vLLM's engine that is used: the request added last ends first, one in each step."""

    def __init__(self):
        self.waiting = []

    def add_request(self, request_id, prompt, params):
        assert request_id not in [name for name, _ in self.waiting]
        self.waiting.append((request_id, prompt["prompt_token_ids"]))

    def has_unfinished_requests(self):
        return bool(self.waiting)

    def step(self):
        request_id, ids = self.waiting.pop()
        running = [SimpleNamespace(request_id=name, finished=False, outputs=[]) for name, _ in self.waiting]
        response = SimpleNamespace(token_ids=tuple(ids[::-1]))
        return [*running, SimpleNamespace(request_id=request_id, finished=True, outputs=[response])]


@pytest.fixture
def verls_vllm(monkeypatch):
    """The part of veRL's ``vLLMRollout`` that is built upon, where vLLM can be imported."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "inference" / "fake_vllm")
    yield SimpleNamespace(
        inference_engine=SimpleNamespace(llm_engine=FakeVLLM()),
        sampling_params=SimpleNamespace(output_kind=None),
        generate_sequences=lambda prompts: "a single turn",
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def test_verls_vllm_rollout_plays_in_training_and_validates_as_before(minicoder, service, verls_vllm):
    """The fake engine answers with the prompt backwards: no program, so every trajectory goes on to its last turn."""
    service.run = lambda code, tests: FakeService().run("print(0)", tests)
    config = SimpleNamespace(prompt_length=LONGEST_PROMPT, response_length=LONGEST_PROMPT)
    rollout = OnlineRollout(verls_vllm, make_multi_turn(minicoder, config, require_end=False, turns=2))
    assert verls_vllm.sampling_params.output_kind is not None
    prompts, pad = make_prompts(minicoder, ["sum"], 3 * 2, PUBLIC_TESTS), minicoder.pad_token_id
    for _ in range(2):  # request ids are new in each call
        rows = rollout.generate_sequences(prompts)
        assert played(rows, turns=2) == [2, 2, 2]
        for prompt, response in zip(rows.batch["prompts"], rows.batch["responses"], strict=True):
            assert prompt[prompt != pad].flip(0).tolist() == response[response != pad].tolist()
    prompts.meta_info["validate"] = True
    assert rollout.generate_sequences(prompts) == "a single turn"


def make_rows(lengths_BT, turns, samples):
    """Rows of problems × samples × turns, with responses of these lengths; ``responses`` hold the row's number."""
    lengths = torch.tensor(lengths_BT).flatten()
    mask = torch.arange(4) < lengths[:, None]
    numbers = torch.arange(len(lengths))[:, None].expand(-1, 4)
    batch = TensorDict({"response_mask": mask.long(), "responses": numbers}, batch_size=len(lengths))
    return DataProto(batch=batch, non_tensor_batch={"uid": np.arange(len(lengths)) // (turns * samples)})


def test_rows_after_the_end_are_dropped_but_for_what_divides_evenly():
    assert kept_rows([True] * 4, 2) == [0, 1, 2, 3]
    assert kept_rows([True, False] * 3, 1) == [0, 2, 4]
    assert kept_rows([False] * 4 + [True] * 4, 3) == [4, 0, 5, 6, 1, 7]


def test_the_rows_that_are_left_know_their_trajectory_and_turn():
    batch = make_rows([[2, 1, 0], [3, 0, 0], [1, 1, 1], [4, 0, 0]], turns=3, samples=2)
    drop_rows_after_end(batch, turns=3, rows_of_problem=6, mini_batches=1, unit=1)
    assert batch.batch["responses"][:, 0].tolist() == [0, 3, 1, 6, 9, 7, 8]  # turn by turn within a problem
    assert batch.non_tensor_batch[TRAJECTORY].tolist() == [0, 1, 0, 2, 3, 2, 2]
    assert batch.non_tensor_batch[TURN].tolist() == [0, 0, 1, 0, 0, 1, 2]
    assert batch.non_tensor_batch["uid"].tolist() == [0, 0, 0, 1, 1, 1, 1]
    alone = make_rows([[1], [2], [3], [4]], turns=1, samples=2)  # with one turn every row stays where it is
    drop_rows_after_end(alone, turns=1, rows_of_problem=2, mini_batches=2, unit=2)
    assert alone.batch["responses"][:, 0].tolist() == [0, 1, 2, 3]


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


def test_given_advantages_stand_at_every_token_of_a_response():
    batch = make_rows([[1], [3]], turns=1, samples=2)
    batch.non_tensor_batch[ADVANTAGE] = np.array([0.5, -2.0], dtype=object)
    given = with_given_advantages(batch).batch["advantages"]
    assert given.tolist() == [[0.5, 0, 0, 0], [-2, -2, -2, 0]]


@pytest.mark.usefixtures("verls_actor")
def test_dropped_rows_count_for_nothing_in_the_update():
    """As many steps of as many rows as if the trainer had never asked for more."""
    micro_batches = {"ppo_micro_batch_size_per_gpu": 2}
    *_, alone = updated(CobaltActor, make_update(ROWS), worker_settings(), **micro_batches)
    data = make_update([*ROWS, *ROWS])
    data.batch["response_mask"] = data.batch["response_mask"].clone()
    data.batch["response_mask"][len(ROWS) :] = 0
    for name, values in make_update(ROWS).batch.items():
        data.batch[name][: len(ROWS)] = values
    drop_rows_after_end(data, turns=1, rows_of_problem=1, mini_batches=2, unit=2)
    assert data.meta_info[MINI_BATCHES] == 2 and data.batch["responses"].shape == (len(ROWS), RESPONSES)
    *_, found = updated(CobaltActor, data, worker_settings(), ppo_mini_batch_size=8, **micro_batches)
    torch.testing.assert_close(found, alone)


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


@pytest.fixture
def judge(minicoder, service):
    """The manager's named scores of rows, and rewards, in the order of trajectories and turns."""

    def run(trajectories, uids, failed=(), turns=3, **settings):
        """``trajectories[n]`` are the responses of trajectory n, of group ``uids[n]``."""
        texts = [text for responses in trajectories for text in [*responses, *[None] * (turns - len(responses))]]
        numbers = np.arange(len(texts)) // turns
        rollout_failed = {ROLLOUT_FAILED: [number in failed for number in numbers]}
        data = make_batch(minicoder, texts, uid=[uids[number] for number in numbers], **rollout_failed)
        drop_rows_after_end(data, turns, rows_of_problem=len(texts), mini_batches=1, unit=2)
        result = OnlineRewardManager(make_method(**settings), minicoder, 0, compute_score)(data, return_dict=True)
        named = {name: np.array(values) for name, values in result["reward_extra_info"].items()}
        named |= {"reward": result["reward_tensor"].sum(1).numpy(), **data.non_tensor_batch}
        live = data.batch["response_mask"].any(1).numpy()
        order = np.lexsort((named[TURN], named[TRAJECTORY], ~live))  # rows without a response at the end
        return {"live": live[order], **{name: values[order] for name, values in named.items()}}

    return run


def test_a_programs_context_is_its_own_trajectory(judge):
    """Pass rates 1/4, 2/4, 1/4: better than before, then worse than the best; another trajectory starts anew."""
    got = judge([[respond(1), respond(2), respond(1)], [respond(2)]], ["a", "a"])
    improved, worse = 0.2 + 0.1 * 0.25 / 0.75, -0.1 - 0.1 * 0.5
    assert got["reward_correct"] + got["reward_improve"] == pytest.approx([0, improved, worse, 0.2])


def test_rows_without_a_response_have_no_part_in_anything(judge):
    got = judge([[respond(4)], [respond(1), respond(2)]], ["a", "a"])
    assert got["live"].tolist() == [True] * 3 + [False]
    assert [got[name][3] for name in ("advantage", "infra", "reward")] == [0, 0, 0]
    assert np.mean(got["acc"]) == pytest.approx(1 / 3)


def test_groups_do_not_touch(judge):
    group = [[respond(4)], [respond(1), respond(2)], [respond(0)]]
    alone = judge(group, "aaa")["advantage"]
    both = judge(group + group, "aaabbb")["advantage"]
    assert both.tolist() == [*alone, *alone] and both.any()


@pytest.mark.parametrize(("second", "failed"), [(2, [0]), ("fail", [])], ids=["rollout", "reward"])
def test_an_infrastructure_failure_neutralises_the_whole_trajectory(judge, second, failed):
    got = judge([[respond(1), respond(second)], [respond(4)], [respond(0)], [respond(0)]], ["a"] * 4, failed)
    assert got["infra"][got["live"]].tolist() == [1, 1, 0, 0, 0]
    assert got["advantage"][:2].tolist() == [0, 0]
    assert (got["advantage"][2:5] != 0).all()


def test_verpo_runs_no_program_twice(judge, service):
    got = judge([[respond(1), respond(2)], [respond(4)]], ["a", "a"], method="verpo")
    assert sorted(service.programs) == ["print(1)", "print(2)", "print(4)"]
    assert got["advantage"][2] > 0 > got["advantage"][0]


class ByHash(FakeService):
    """Verdicts by the program's text, so that MiniCoder's own programs differ; some cannot be run."""

    async def run(self, code, tests):
        await asyncio.sleep(0)
        value = zlib.crc32(code.encode())
        if value % 5 == 0:
            return ExecutionResult.infra(4, "worker lost")
        verdicts = tuple(Verdict.PASSED if value >> bit & 1 else Verdict.WRONG_ANSWER for bit in range(4))
        return ExecutionResult(verdicts, ("",) * 4, ("",) * 4)


def make_rollout():
    config = rollout_config(response_length=WIDTH, prompt_length=PROMPT_WIDTH, micro_batch_size=16)
    return HFRollout(AutoModelForCausalLM.from_pretrained(MODEL), config), config


def for_reward(rows, prompts):
    """What reaches the manager."""
    count = len(rows)
    columns = {
        **rows.non_tensor_batch,
        "uid": prompts.non_tensor_batch["uid"],
        "data_source": np.array(["code"] * count, dtype=object),
        "reward_model": np.array([{"ground_truth": make_tests()}] * count, dtype=object),
        "extra_info": np.array([{}] * count, dtype=object),
    }
    data = DataProto(batch=rows.batch.clone(), non_tensor_batch=columns)
    data.batch["response_mask"] = data.batch["attention_mask"][:, PROMPT_WIDTH:]
    return data


def test_with_one_turn_rows_rewards_and_advantages_are_those_of_single_turn_grpo(minicoder, use):
    """The update takes rows, masks and advantages. Another test shows that the update is unchanged."""
    samples = 4
    use(ByHash().opener())
    prompts = make_prompts(minicoder, ("sum", "product", "largest", "smallest"), samples)
    single = make_rollout()[0].generate_sequences(prompts)
    rollout, config = make_rollout()
    multi = OnlineRollout(rollout, make_multi_turn(minicoder, config, turns=1)).generate_sequences(prompts)
    for name, values in single.batch.items():
        assert multi.batch[name].equal(values), name

    data = for_reward(multi, prompts)
    drop_rows_after_end(data, turns=1, rows_of_problem=samples, mini_batches=1, unit=2)
    given = OnlineRewardManager(make_method(turns=1), minicoder, 0, compute_score)(data, return_dict=True)
    expected = CobaltRewardManager(minicoder, 0, compute_score)(for_reward(single, prompts), True)
    assert given["reward_tensor"].equal(expected["reward_tensor"])
    assert 0 < sum(given["reward_extra_info"]["infra"]) < len(data)

    data.non_tensor_batch["advantage"] = np.array(given["reward_extra_info"]["advantage"], dtype=object)
    advantages, _ = compute_grpo_outcome_advantage(
        expected["reward_tensor"].clone(), data.batch["response_mask"], data.non_tensor_batch["uid"]
    )
    assert advantages.abs().max() > 0.1
    torch.testing.assert_close(
        with_given_advantages(data).batch["advantages"], advantages.float(), rtol=1e-4, atol=1e-5
    )
