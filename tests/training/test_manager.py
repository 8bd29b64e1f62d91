"""The reward manager on hand-built batches, with services that fail in every way."""

import math
import pickle
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch
from ray.exceptions import RayActorError, RayError
from service import FakeService, make_tests, no_service, respond
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.trainer.ppo.reward import compute_reward, get_custom_reward_fn
from verl.workers.reward_manager import NaiveRewardManager, get_reward_manager_cls

from cobalt.errors import InputError
from cobalt.training import execution
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.scoring import compute_score

PROMPT_WIDTH, RESPONSE_WIDTH = 3, 120
END, PAD = "<end>", "<pad>"


@pytest.fixture(scope="module")
def tokenizer():
    """One token per byte, an end and a padding token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_level = Tokenizer(models.BPE({character: index for index, character in enumerate(alphabet)}, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=byte_level, eos_token=END, pad_token=PAD)


@pytest.fixture
def service(monkeypatch):
    fake = FakeService()
    monkeypatch.setattr(execution, "open_execution_service", fake.opener())
    return fake


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(execution, "OPEN_ATTEMPTS", 3)
    monkeypatch.setattr(execution, "FIRST_OPEN_DELAY_S", 0)


def make_manager(tokenizer, function=compute_score, **settings):
    return CobaltRewardManager(tokenizer, 0, function, reward_fn_key="data_source", **settings)


def make_batch(tokenizer, responses, uids=None, prev_best=0.0, end=True, validate=False):
    """A batch as veRL hands it over: right-padded responses, non-tensor columns, group ids."""
    rows = []
    for response in responses:
        ids = tokenizer(response)["input_ids"][:RESPONSE_WIDTH]
        rows.append(ids + [tokenizer.eos_token_id] * (end and len(ids) < RESPONSE_WIDTH))
    ids = torch.full((len(rows), RESPONSE_WIDTH), tokenizer.pad_token_id)
    mask = torch.zeros(len(rows), PROMPT_WIDTH + RESPONSE_WIDTH, dtype=torch.long)
    mask[:, :PROMPT_WIDTH] = 1
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        mask[index, PROMPT_WIDTH : PROMPT_WIDTH + len(row)] = 1
    columns = {
        "data_source": ["code_taco_verified"] * len(rows),
        "reward_model": [{"style": "rule", "ground_truth": make_tests()}] * len(rows),
        "extra_info": [{"prev_best_pass_rate": prev_best, "index": index} for index in range(len(rows))],
    }
    if uids is not None:
        columns["uid"] = uids
    return DataProto.from_dict(
        tensors={
            "prompts": torch.zeros(len(rows), PROMPT_WIDTH, dtype=torch.long),
            "responses": ids,
            "attention_mask": mask,
        },
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
        meta_info={"validate": True} if validate else {},
    )


def totals(result):
    return result["reward_tensor"].sum(-1).tolist()


def test_rewards_lie_on_the_last_token_of_each_response(tokenizer, service):
    batch = make_batch(tokenizer, [respond(4), respond(1, think="a longer plan")])
    tensor = make_manager(tokenizer)(batch)
    lengths = batch.batch["attention_mask"][:, PROMPT_WIDTH:].sum(-1)
    assert tensor.nonzero()[:, 1].tolist()[0] == int(lengths[0]) - 1
    assert tensor.sum(-1)[0] == 1


def test_all_parts_are_plain_floats_of_every_sample(tokenizer, service):
    batch = make_batch(tokenizer, [respond(4), respond(1), "no program"], uids=["a", "a", "a"])
    info = make_manager(tokenizer)(batch, return_dict=True)["reward_extra_info"]
    assert set(info) == {
        *("acc", "pass_rate", "reward_correct", "reward_improve", "reward_format", "reward_total", "infra"),
        *("cost_reward_programs_run", "cost_reward_tests_run", "cost_reward_executor_cpu_s"),
    }
    assert all(len(values) == 3 and all(type(value) is float for value in values) for values in info.values())
    assert info["acc"] == [1, 0, 0]
    assert info["pass_rate"] == [1, 0.25, 0]
    assert info["reward_correct"] == [1, 0, -1]


def test_the_context_counts(tokenizer, service):
    batch = make_batch(tokenizer, [respond(2)], prev_best=0.25)
    assert totals(make_manager(tokenizer)(batch, return_dict=True)) == pytest.approx([0.2 + 0.1 * 0.25 / 0.75])


@pytest.mark.parametrize("prev_best", [None, 0.0])
def test_a_missing_best_pass_rate_is_zero(tokenizer, service, prev_best):
    batch = make_batch(tokenizer, [respond(2)], prev_best=prev_best)
    assert totals(make_manager(tokenizer)(batch, return_dict=True)) == pytest.approx([0.2])


def test_validation_is_pass_or_fail_without_groups(tokenizer, service):
    batch = make_batch(tokenizer, [respond(4), respond(3), "nothing"], validate=True)
    assert totals(make_manager(tokenizer)(batch, return_dict=True)) == [1, 0, 0]


def test_identical_programs_run_once(tokenizer, service):
    make_manager(tokenizer)(make_batch(tokenizer, [respond(1)] * 5 + [respond(2)]))
    assert len(service.programs) == 2


def test_unfinished_responses_count_as_no_program_if_asked(tokenizer, service):
    """Cut off at the full width: the text holds a program, but the policy never ended it."""
    cut = respond(4) + " and" * 100
    batch = make_batch(tokenizer, [cut, respond(4)])
    assert totals(make_manager(tokenizer, require_end=True)(batch, return_dict=True)) == [-1, 1]
    assert totals(make_manager(tokenizer)(batch, return_dict=True)) == [1, 1]


def test_a_failed_sample_gets_its_groups_mean_and_is_counted(tokenizer, service):
    responses = [respond(4), respond("fail"), respond(1), respond(2), respond(1), respond(4)]
    result = make_manager(tokenizer)(make_batch(tokenizer, responses, uids=list("aaaabb")), return_dict=True)
    rewards = totals(result)
    assert rewards[1] == pytest.approx((rewards[0] + rewards[2] + rewards[3]) / 3)
    assert result["reward_extra_info"]["infra"] == [0, 1, 0, 0, 0, 0]


def test_a_mostly_failed_group_is_zero(tokenizer, service):
    responses = [respond(4), respond("fail1"), respond("fail2"), respond("fail3")]
    result = make_manager(tokenizer)(make_batch(tokenizer, responses, uids=list("aaaa")), return_dict=True)
    assert totals(result) == [0, 0, 0, 0]


def test_a_failed_validation_sample_does_not_move_the_mean(tokenizer, service):
    batch = make_batch(tokenizer, [respond(4), respond("fail"), respond(1)], validate=True)
    result = make_manager(tokenizer)(batch, return_dict=True)
    assert totals(result) == [1, 0.5, 0]
    assert result["reward_extra_info"]["acc"] == [1, 0.5, 0]


def test_without_a_service_the_step_ends_neutralised(tokenizer, monkeypatch, capsys):
    monkeypatch.setattr(execution, "open_execution_service", no_service)
    result = make_manager(tokenizer)(make_batch(tokenizer, [respond(4), "x"], uids=["a", "a"]), return_dict=True)
    assert totals(result) == [0, 0]
    assert result["reward_extra_info"]["infra"] == [1, 1]
    assert "INFRA FAILURE: 2 of 2" in capsys.readouterr().out


@asynccontextmanager
async def no_cluster(executor, **limits):
    raise RayError("the cluster is gone")
    yield


class DyingService:
    """Every call fails with what Ray raises."""

    async def run(self, code, tests):
        raise RayActorError


@asynccontextmanager
async def dying_service(executor, **limits):
    yield DyingService()


@pytest.mark.parametrize("service", [no_cluster, dying_service])
def test_a_failing_cluster_is_never_an_error_of_the_reward_function(tokenizer, monkeypatch, service):
    monkeypatch.setattr(execution, "open_execution_service", service)
    result = make_manager(tokenizer)(make_batch(tokenizer, [respond(4), respond(1)]), return_dict=True)
    assert totals(result) == [0, 0]
    assert result["reward_extra_info"]["infra"] == [1, 1]


def test_a_service_that_comes_back_is_waited_for(tokenizer, monkeypatch):
    openings = iter([no_service, no_service, FakeService().opener()])
    monkeypatch.setattr(execution, "open_execution_service", lambda *args, **limits: next(openings)(*args, **limits))
    result = make_manager(tokenizer)(make_batch(tokenizer, [respond(4)]), return_dict=True)
    assert totals(result) == [1]


def test_a_validation_nobody_could_score_is_not_a_zero(tokenizer, monkeypatch):
    monkeypatch.setattr(execution, "open_execution_service", no_service)
    result = make_manager(tokenizer)(make_batch(tokenizer, [respond(4)], validate=True), return_dict=True)
    assert math.isnan(result["reward_extra_info"]["acc"][0])


def test_an_error_in_the_reward_function_is_raised_not_scored(tokenizer, service):
    async def broken(**_arguments):
        raise KeyError("typo")

    with pytest.raises(KeyError, match="typo"):
        compute_reward(make_batch(tokenizer, [respond(4)]), make_manager(tokenizer, broken))


def plain_function(data_source, solution_str, ground_truth, extra_info):
    return float(len(solution_str))


async def bonus_function(data_source, solution_str, ground_truth, extra_info=None, batch=None):
    """A user's part in one small function."""
    scores = await compute_score(data_source, solution_str, ground_truth, extra_info, batch)
    bonus = 0.01 * ("#" in solution_str)
    return {**scores, "score": scores["score"] + bonus, "reward_comment": bonus}


def test_a_plain_function_of_the_user_works(tokenizer, service):
    batch = make_batch(tokenizer, ["abc", "ab"])
    assert totals(make_manager(tokenizer, plain_function)(batch, return_dict=True)) == [3, 2]


def test_a_part_can_be_added(tokenizer, service):
    result = make_manager(tokenizer, bonus_function)(
        make_batch(tokenizer, [respond(1, "# a"), respond(1)]), return_dict=True
    )
    assert result["reward_extra_info"]["reward_comment"] == [0.01, 0]
    assert totals(result) == pytest.approx([0.01, 0])


async def sum_function(data_source, solution_str, ground_truth, extra_info, batch):
    """A user's own rule about the program's run."""
    return (await batch.execute("print(3)", ground_truth)).pass_rate


def test_a_function_of_the_user_can_run_programs(tokenizer, service):
    result = make_manager(tokenizer, sum_function)(make_batch(tokenizer, ["abc", "ab"]), return_dict=True)
    assert totals(result) == [0.75, 0.75]
    assert service.programs == ["print(3)"]


def forgetful_function(data_source, solution_str, ground_truth, extra_info):
    """Calls ours without the batch."""
    return compute_score(data_source, solution_str, ground_truth, extra_info)


@pytest.mark.parametrize(
    "make",
    [
        lambda tokenizer: make_manager(tokenizer, forgetful_function),
        lambda tokenizer: NaiveRewardManager(tokenizer, 0, compute_score),
    ],
)
def test_our_function_without_a_batch_says_in_one_line_what_is_missing(tokenizer, service, make):
    with pytest.raises(InputError, match=r"reward_model\.reward_manager=cobalt") as refused:
        compute_reward(make_batch(tokenizer, [respond(4)]), make(tokenizer))
    assert "\n" not in str(refused.value)


USERS_FILE = """
def compute_score(data_source, solution_str, ground_truth, extra_info, weight=1.0):
    return weight * len(solution_str)
"""


def test_a_users_file_without_a_batch_keeps_working(tokenizer, service, tmp_path):
    (tmp_path / "reward.py").write_text(USERS_FILE)
    function = {"path": str(tmp_path / "reward.py"), "name": "compute_score", "reward_kwargs": {"weight": 0.5}}
    manager = make_manager(tokenizer, get_custom_reward_fn({"custom_reward_function": function}))
    assert totals(manager(make_batch(tokenizer, ["abcd"]), return_dict=True)) == [2]


def test_the_function_that_verl_loads_by_path_takes_constants(tokenizer, service):
    config = {
        "custom_reward_function": {
            "path": "verl/code_reward_func_think.py",
            "name": "compute_score",
            "reward_kwargs": {"correct_some": 0.125},
        }
    }
    batch = make_batch(tokenizer, [respond(1)])
    assert totals(make_manager(tokenizer, get_custom_reward_fn(config))(batch, return_dict=True)) == [0.125]


def test_the_manager_can_be_pickled_and_used_again_and_again(tokenizer, service):
    """veRL ships it to another process at each step when rewards are computed asynchronously."""
    config = {"custom_reward_function": {"path": "verl/code_reward_func_think.py", "name": "compute_score"}}
    manager = make_manager(tokenizer, get_custom_reward_fn(config))
    batch = make_batch(tokenizer, [respond(4)])
    assert totals(manager(batch, return_dict=True)) == [1]
    assert totals(pickle.loads(pickle.dumps(manager))(batch, return_dict=True)) == [1]


def test_unknown_lengths_are_refused(tokenizer):
    with pytest.raises(InputError, match="lengths=words"):
        make_manager(tokenizer, lengths="words")


def test_an_unknown_executor_is_not_taken_for_another(tokenizer):
    with pytest.raises(InputError, match="executor=sevre"):
        make_manager(tokenizer, executor="sevre")


@pytest.mark.parametrize("settings", [{"executor": "serve", "cpu_limit_s": 2}, {"executor": "local", "cpu_limt_s": 2}])
def test_limits_that_nobody_takes_are_refused_before_training(tokenizer, settings):
    with pytest.raises(InputError, match=r"limits|cpu_limt_s"):
        make_manager(tokenizer, **settings).check()


def test_all_programs_are_in_flight_at_once(tokenizer, monkeypatch):
    fake = FakeService(delay_s=0.05)
    monkeypatch.setattr(execution, "open_execution_service", fake.opener())
    make_manager(tokenizer)(make_batch(tokenizer, [respond(1, f"plan {index}") for index in range(64)]))
    assert fake.most_running == 1  # one program, 64 times
    responses = [respond(index) for index in range(64)]
    make_manager(tokenizer)(make_batch(tokenizer, responses))
    assert fake.most_running == 64


def test_verls_manager_that_scores_errors_zero_is_ended_with_the_same_line(tokenizer):
    manager = get_reward_manager_cls("prime")(tokenizer, 0, compute_score)
    with pytest.raises(SystemExit, match=r"reward_model\.reward_manager=cobalt"):
        manager(make_batch(tokenizer, [respond(1)]))
