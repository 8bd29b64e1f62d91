"""The manager of online training; and with one turn everything is single-turn GRPO: rows, rewards and advantages."""

import asyncio
import zlib

import numpy as np
import pytest
import torch
from online_parts import MODEL, PROMPT_WIDTH, WIDTH, make_batch, make_prompts, make_settings
from service import FakeService, make_tests, respond
from test_hf_rollout import rollout_config
from transformers import AutoModelForCausalLM
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from cobalt.sandbox import ExecutionResult, Verdict
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online.manager import OnlineRewardManager
from cobalt.training.online.rows import ROLLOUT_FAILED, drop_rows_after_end, with_given_advantages
from cobalt.training.online.settings import ONLINE_VARIABLE
from cobalt.training.rollout_engines import HFRollout, OnlineRollout
from cobalt.training.scoring import compute_score

SAMPLES = 4
PROBLEMS = ("sum", "product", "largest", "smallest")


def make_trajectories(minicoder, trajectories, uids, failed=(), turns=3):
    """Rows as they reach the manager: ``trajectories[n]`` are the responses of trajectory n, of group ``uids[n]``."""
    texts = [text for responses in trajectories for text in [*responses, *[None] * (turns - len(responses))]]
    numbers = np.arange(len(texts)) // turns
    rollout_failed = {ROLLOUT_FAILED: [number in failed for number in numbers]}
    data = make_batch(minicoder, texts, uid=[uids[number] for number in numbers], **rollout_failed)
    drop_rows_after_end(data, turns, rows_of_problem=len(texts), mini_batches=1, unit=2)
    return data


def judge(minicoder, data, monkeypatch, **settings):
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings(**settings).to_json())
    result = OnlineRewardManager(minicoder, 0, compute_score)(data, return_dict=True)
    live = data.batch["response_mask"].any(1)
    columns = {name: np.array(values)[live.numpy()] for name, values in result["reward_extra_info"].items()}
    order = np.lexsort((data.non_tensor_batch["turn"][live.numpy()], data.non_tensor_batch["trajectory"][live.numpy()]))
    rewards = result["reward_tensor"].sum(1)[live].numpy()
    return {"rewards": rewards[order], **{name: values[order] for name, values in columns.items()}}


def test_a_programs_context_is_its_own_trajectory(minicoder, service, monkeypatch):
    """Pass rates 1/4, 2/4, 1/4: better than before, then worse than the best; another trajectory starts anew."""
    data = make_trajectories(minicoder, [[respond(1), respond(2), respond(1)], [respond(2)]], ["a", "a"])
    got = judge(minicoder, data, monkeypatch)
    improved = 0.2 + 0.1 * 0.25 / 0.75
    worse = -0.1 - 0.1 * 0.5
    assert got["reward_correct"] + got["reward_improve"] == pytest.approx([0, improved, worse, 0.2])


def test_rows_without_a_response_have_no_part_in_anything(minicoder, service, monkeypatch):
    data = make_trajectories(minicoder, [[respond(4)], [respond(1), respond(2)]], ["a", "a"])
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings().to_json())
    result = OnlineRewardManager(minicoder, 0, compute_score)(data, return_dict=True)
    info, empty = result["reward_extra_info"], (~data.batch["response_mask"].any(1)).numpy()
    assert (len(data), empty.sum()) == (4, 1)
    assert np.array(info["advantage"])[empty] == [0] and np.array(info["infra"])[empty] == [0]
    assert result["reward_tensor"][torch.from_numpy(empty)].sum() == 0
    assert np.mean(info["acc"]) == pytest.approx(1 / 3)


def test_groups_do_not_touch(minicoder, service, monkeypatch):
    group = [[respond(4)], [respond(1), respond(2)], [respond(0)]]
    alone = judge(minicoder, make_trajectories(minicoder, group, "aaa"), monkeypatch)["advantage"]
    both = judge(minicoder, make_trajectories(minicoder, group + group, "aaabbb"), monkeypatch)["advantage"]
    assert both.tolist() == [*alone, *alone] and both.any()


@pytest.mark.parametrize("where", ["rollout", "reward"])
def test_an_infrastructure_failure_neutralises_the_whole_trajectory(minicoder, service, monkeypatch, where):
    second = respond("fail") if where == "reward" else respond(2)
    responses = [[respond(1), second], [respond(4)], [respond(0)], [respond(0)]]
    data = make_trajectories(minicoder, responses, ["a"] * 4, failed=[0] if where == "rollout" else [])
    got = judge(minicoder, data, monkeypatch)
    assert got["infra"].tolist() == [1, 1, 0, 0, 0]
    assert got["advantage"][:2].tolist() == [0, 0]
    assert (got["advantage"][2:] != 0).all()


def test_verpo_runs_no_program_twice(minicoder, service, monkeypatch):
    data = make_trajectories(minicoder, [[respond(1), respond(2)], [respond(4)]], ["a", "a"])
    got = judge(minicoder, data, monkeypatch, method="verpo")
    assert sorted(service.programs) == ["print(1)", "print(2)", "print(4)"]
    assert got["advantage"][2] > 0 > got["advantage"][0]


class ByHash(FakeService):
    """Verdicts by the program's text, so that MiniCoder's own programs differ; some cannot be run."""

    async def run(self, code, tests):
        await asyncio.sleep(0)
        value = zlib.crc32(code.encode())
        if value % 5 == 0:
            return ExecutionResult.infra(4, "worker lost")
        passing = tuple(value >> bit & 1 == 1 for bit in range(4))
        verdicts = tuple(Verdict.PASSED if passed else Verdict.WRONG_ANSWER for passed in passing)
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


def test_with_one_turn_rows_rewards_and_advantages_are_those_of_single_turn_grpo(minicoder, monkeypatch, use):
    """The update takes rows, masks and advantages; that it is unchanged too is ``test_online_credit``'s."""
    use(ByHash().opener())
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings(turns=1).to_json())
    prompts = make_prompts(minicoder, PROBLEMS, SAMPLES)
    single = make_rollout()[0].generate_sequences(prompts)
    multi = OnlineRollout(*make_rollout()).generate_sequences(prompts)
    for name, values in single.batch.items():
        assert multi.batch[name].equal(values), name

    data = for_reward(multi, prompts)
    drop_rows_after_end(data, turns=1, rows_of_problem=SAMPLES, mini_batches=1, unit=2)
    given = OnlineRewardManager(minicoder, 0, compute_score)(data, return_dict=True)
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
