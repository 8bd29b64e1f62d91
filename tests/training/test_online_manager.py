"""The manager of online training; and with one turn everything is single-turn GRPO: rows, rewards and advantages."""

import asyncio
import zlib

import numpy as np
import pytest
import torch
from online_parts import MODEL, make_settings
from service import FakeService, make_tests, respond
from tensordict import TensorDict
from test_hf_rollout import rollout_config
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from cobalt.prompts import first_messages, problem_instruction
from cobalt.records import ExecutionResult, Verdict
from cobalt.training import execution
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online.manager import OnlineRewardManager
from cobalt.training.online.rollouts import ROLLOUT_FAILED
from cobalt.training.online.rows import drop_rows_after_end, with_given_advantages
from cobalt.training.online.settings import ONLINE_VARIABLE
from cobalt.training.rollout_engines import HFRollout, OnlineRollout
from cobalt.training.scoring import compute_score

PROMPT_WIDTH, RESPONSE_WIDTH, SAMPLES = 64, 60, 4


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture
def service(monkeypatch):
    fake = FakeService()
    monkeypatch.setattr(execution, "open_execution_service", fake.opener())
    return fake


def make_batch(tokenizer, trajectories, uids, failed=(), turns=3):
    """Rows as they reach the manager: ``trajectories[n]`` are the responses of trajectory n, of group ``uids[n]``."""
    texts = [text for responses in trajectories for text in [*responses, *[None] * (turns - len(responses))]]
    ids = torch.full((len(texts), RESPONSE_WIDTH), tokenizer.pad_token_id)
    mask = torch.zeros(len(texts), 1 + RESPONSE_WIDTH, dtype=torch.long)
    mask[:, 0] = 1
    for row, text in enumerate(texts):
        if text is not None:
            tokens = [*tokenizer.encode(text), tokenizer.eos_token_id]
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, 1 : 1 + len(tokens)] = 1
    numbers = np.arange(len(texts)) // turns
    columns = {
        "uid": [uids[number] for number in numbers],
        ROLLOUT_FAILED: [number in failed for number in numbers],
        "data_source": ["code"] * len(texts),
        "reward_model": [{"ground_truth": make_tests()}] * len(texts),
        "extra_info": [{"prev_best_pass_rate": 0.0}] * len(texts),
    }
    data = DataProto.from_dict(
        tensors={
            "prompts": torch.zeros(len(texts), 1, dtype=torch.long),
            "responses": ids,
            "attention_mask": mask,
            "response_mask": mask[:, 1:],
        },
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
    )
    drop_rows_after_end(data, turns, rows_of_problem=len(texts), mini_batches=1, unit=2)
    return data


def judge(tokenizer, data, monkeypatch, **settings):
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings(**settings).to_json())
    result = OnlineRewardManager(tokenizer, 0, compute_score)(data, return_dict=True)
    live = data.batch["response_mask"].any(1)
    columns = {name: np.array(values)[live.numpy()] for name, values in result["reward_extra_info"].items()}
    order = np.lexsort((data.non_tensor_batch["turn"][live.numpy()], data.non_tensor_batch["trajectory"][live.numpy()]))
    rewards = result["reward_tensor"].sum(1)[live].numpy()
    return {"rewards": rewards[order], **{name: values[order] for name, values in columns.items()}}


def test_a_programs_context_is_its_own_trajectory(tokenizer, service, monkeypatch):
    """Pass rates 1/4, 2/4, 1/4: better than before, then worse than the best; another trajectory starts anew."""
    data = make_batch(tokenizer, [[respond(1), respond(2), respond(1)], [respond(2)]], ["a", "a"])
    got = judge(tokenizer, data, monkeypatch)
    improved = 0.2 + 0.1 * 0.25 / 0.75
    worse = -0.1 - 0.1 * 0.5
    assert got["reward_correct"] + got["reward_improve"] == pytest.approx([0, improved, worse, 0.2])


def test_rows_without_a_response_have_no_part_in_anything(tokenizer, service, monkeypatch):
    responses = [[respond(4)], [respond(1), respond(2)]]
    data = make_batch(tokenizer, responses, ["a", "a"])
    assert len(data) == 4
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings().to_json())
    result = OnlineRewardManager(tokenizer, 0, compute_score)(data, return_dict=True)
    info = result["reward_extra_info"]
    empty = (~data.batch["response_mask"].any(1)).numpy()
    assert np.array(info["advantage"])[empty] == [0] and np.array(info["infra"])[empty] == [0]
    assert result["reward_tensor"][torch.from_numpy(empty)].sum() == 0
    assert np.mean(info["acc"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("where", ["rollout", "reward"])
def test_an_infrastructure_failure_neutralises_the_whole_trajectory(tokenizer, service, monkeypatch, where):
    second = respond("fail") if where == "reward" else respond(2)
    responses = [[respond(1), second], [respond(4)], [respond(0)], [respond(0)]]
    data = make_batch(tokenizer, responses, ["a"] * 4, failed=[0] if where == "rollout" else [])
    got = judge(tokenizer, data, monkeypatch)
    assert got["infra"].tolist() == [1, 1, 0, 0, 0]
    assert got["advantage"][:2].tolist() == [0, 0]
    assert (got["advantage"][2:] != 0).all()


def test_verpo_runs_no_program_twice(tokenizer, service, monkeypatch):
    data = make_batch(tokenizer, [[respond(1), respond(2)], [respond(4)]], ["a", "a"])
    got = judge(tokenizer, data, monkeypatch, method="verpo")
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
        return ExecutionResult(passing, ("",) * 4, tuple(Verdict.WRONG_ANSWER for _ in passing))


def prompts_for(tokenizer):
    """Four problems, each ``SAMPLES`` times, as veRL hands them to a rollout; and the columns that it keeps."""
    prompts, columns = [], {"raw_prompt": [], "raw_prompt_ids": [], "tools_kwargs": [], "uid": []}
    for kind in ("sum", "product", "largest", "smallest"):
        messages = first_messages(problem_instruction(f"Print the {kind} of the values."))
        ids = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        for _ in range(SAMPLES):
            prompts.append([tokenizer.pad_token_id] * (PROMPT_WIDTH - len(ids)) + ids)
            for name, value in zip(columns, (messages, ids, {}, kind), strict=True):
                columns[name].append(value)
    ids = torch.tensor(prompts)
    mask = (ids != tokenizer.pad_token_id).long()
    tensors = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    named = {}
    for name, values in columns.items():
        named[name] = np.empty(len(values), dtype=object)
        named[name][:] = values
    meta = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    return DataProto(batch=TensorDict(tensors, batch_size=len(ids)), non_tensor_batch=named, meta_info=meta)


def make_rollout():
    config = rollout_config(response_length=RESPONSE_WIDTH, prompt_length=PROMPT_WIDTH, micro_batch_size=16)
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


def test_with_one_turn_rows_rewards_and_advantages_are_those_of_single_turn_grpo(tokenizer, monkeypatch):
    """The update takes rows, masks and advantages; that it is unchanged too is ``test_online_credit``'s."""
    monkeypatch.setattr(execution, "open_execution_service", ByHash().opener())
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings(turns=1).to_json())
    single = make_rollout()[0].generate_sequences(prompts_for(tokenizer))
    multi = OnlineRollout(*make_rollout()).generate_sequences(prompts_for(tokenizer))
    for name, values in single.batch.items():
        assert multi.batch[name].equal(values), name

    data = for_reward(multi, prompts_for(tokenizer))
    drop_rows_after_end(data, turns=1, rows_of_problem=SAMPLES, mini_batches=1, unit=2)
    given = OnlineRewardManager(tokenizer, 0, compute_score)(data, return_dict=True)
    expected = CobaltRewardManager(tokenizer, 0, compute_score)(for_reward(single, prompts_for(tokenizer)), True)
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
