"""The reward manager on hand-built batches, with services that fail in every way, and what failed samples teach."""

import math
import pickle
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from online_parts import FakeService, make_batch, no_service, respond
from ray.exceptions import RayActorError, RayError
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.reward import compute_reward, get_custom_reward_fn
from verl.workers.reward_manager import NaiveRewardManager, get_reward_manager_cls

from cobalt.errors import InputError, SetupError
from cobalt.serving import execution
from cobalt.serving.execution import ExecutionService
from cobalt.training.batch_scores import WINDOW_STEPS, InfraGuard, neutralise_groups, reward_metrics
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.scoring import compute_score

pytestmark = pytest.mark.usefixtures("no_waiting")


def make_manager(minicoder, function=compute_score, **settings):
    return CobaltRewardManager(minicoder, 0, function, reward_fn_key="data_source", **settings)


def totals(result):
    return result["reward_tensor"].sum(-1).tolist()


@pytest.fixture
def rewards(minicoder, service):
    """Of responses, with settings of the batch."""

    def run(responses, function=compute_score, manager=None, **batch):
        manager = manager or make_manager(minicoder, function)
        return manager(make_batch(minicoder, responses, **batch), return_dict=True)

    return run


def test_rewards_lie_on_the_last_token_of_each_response(minicoder, service):
    batch = make_batch(minicoder, [respond(4), respond(4, think="a longer plan")])
    ends = batch.batch["response_mask"].sum(-1) - 1
    assert make_manager(minicoder)(batch).nonzero().tolist() == [[row, int(end)] for row, end in enumerate(ends)]


def test_all_parts_are_plain_floats_of_every_sample(rewards):
    info = rewards([respond(4), respond(1), "no program"], uid=["a", "a", "a"])["reward_extra_info"]
    assert set(info) == {
        *("acc", "pass_rate", "reward_correct", "reward_improve", "reward_format", "reward_total", "infra"),
        *("cost_reward_programs_run", "cost_reward_tests_run", "cost_reward_executor_cpu_s"),
    }
    assert all(len(values) == 3 and all(type(value) is float for value in values) for values in info.values())
    assert info["acc"] == [1, 0, 0]
    assert info["pass_rate"] == [1, 0.25, 0]
    assert info["reward_correct"] == [1, 0, -1]


@pytest.mark.parametrize(("prev_best", "total"), [(0.25, 0.2 + 0.1 * 0.25 / 0.75), (None, 0.2), (0.0, 0.2)])
def test_the_context_counts_and_a_missing_best_pass_rate_is_zero(rewards, prev_best, total):
    assert totals(rewards([respond(2)], prev_best=prev_best)) == pytest.approx([total])


def test_validation_is_pass_or_fail_and_a_failed_sample_does_not_move_its_mean(rewards):
    result = rewards([respond(4), respond(3), respond("fail"), "nothing", respond(4)], validate=True)
    assert totals(result) == result["reward_extra_info"]["acc"] == [1, 0, 0.5, 0, 1]


def test_programs_are_found_by_the_rule_of_the_settings(minicoder, rewards):
    """The answer shows a sample behind its program: the released rule runs the sample."""
    response = respond(4) + "\n```\nprint(1)\n```"
    found = rewards([response], manager=make_manager(minicoder))["reward_extra_info"]
    released = rewards([response], manager=make_manager(minicoder, extraction="released"))["reward_extra_info"]
    assert (found["pass_rate"], released["pass_rate"]) == ([1], [0.25])


def test_unfinished_responses_count_as_no_program_if_asked(minicoder, rewards):
    """Cut off at the full width: the text holds a program, but the policy never ended it."""
    responses = [respond(4) + " and" * 100, respond(4)]
    assert totals(rewards(responses, manager=make_manager(minicoder, require_end=True))) == [-1, 1]
    assert totals(rewards(responses)) == [1, 1]


def test_a_failed_sample_gets_its_groups_mean_and_a_mostly_failed_group_is_zero(rewards):
    responses = [respond(4), respond("fail"), respond(1), respond(2)]
    responses += [respond(4), *(respond(f"fail{number}") for number in range(3))]
    result = rewards(responses, uid=list("aaaabbbb"))
    first, failed, *others = totals(result)
    assert failed == pytest.approx((first + sum(others[:2])) / 3)
    assert others[2:] == [0, 0, 0, 0]
    assert result["reward_extra_info"]["infra"] == [0, 1, 0, 0, 0, 1, 1, 1]


@asynccontextmanager
async def no_cluster(executor, **limits):
    raise RayError("the cluster is gone")
    yield


@asynccontextmanager
async def dying_service(executor, **limits):
    async def run(code, tests):
        raise RayActorError

    yield ExecutionService(SimpleNamespace(run=run))


@pytest.mark.parametrize("opener", [no_service, no_cluster, dying_service])
def test_without_a_service_a_step_is_neutral_and_a_validation_is_not_a_zero(rewards, use, capsys, opener):
    use(opener)
    result = rewards([respond(4), respond(1)], uid=["a", "a"])
    assert totals(result) == [0, 0]
    assert result["reward_extra_info"]["infra"] == [1, 1]
    assert "INFRA FAILURE: 2 of 2" in capsys.readouterr().out
    assert math.isnan(rewards([respond(4)], validate=True)["reward_extra_info"]["acc"][0])


def test_a_service_that_comes_back_is_waited_for(minicoder, monkeypatch):
    complaints = iter(["no cluster", "no app"])

    def handle(*_):
        for complaint in complaints:
            raise SetupError(complaint)
        return app

    async def answer(programs):
        return [await FakeService().run(code, tests) for code, tests in programs]

    app = SimpleNamespace(run_many=SimpleNamespace(remote=answer))
    monkeypatch.setattr(execution, "app_handle", handle)
    result = make_manager(minicoder)(make_batch(minicoder, [respond(4)]), return_dict=True)
    assert totals(result) == [1]


def test_an_error_in_the_reward_function_is_raised_not_scored(minicoder, service):
    async def broken(**_arguments):
        raise KeyError("typo")

    with pytest.raises(InputError, match=r"^the reward function raised KeyError: 'typo' \(\S+, line \d+\)$"):
        compute_reward(make_batch(minicoder, [respond(4)]), make_manager(minicoder, broken))


def plain_function(data_source, solution_str, ground_truth, extra_info):
    return float(len(solution_str))


async def bonus_function(data_source, solution_str, ground_truth, extra_info=None, batch=None):
    """A user's part in one small function."""
    scores = await compute_score(data_source, solution_str, ground_truth, extra_info, batch)
    bonus = 0.01 * ("#" in solution_str)
    return {**scores, "score": scores["score"] + bonus, "reward_comment": bonus}


async def sum_function(data_source, solution_str, ground_truth, extra_info, batch):
    """A user's own rule about the program's run."""
    return (await batch.execute("print(3)", ground_truth)).pass_rate


@pytest.mark.parametrize(
    ("function", "responses", "expected"),
    [
        (plain_function, ["abc", "ab"], [3, 2]),
        (bonus_function, [respond(1, "# a"), respond(1)], [0.01, 0]),
        (sum_function, ["abc", "ab"], [0.75, 0.75]),
    ],
)
def test_a_function_of_the_user_may_be_plain_add_a_part_and_run_programs(
    rewards, service, function, responses, expected
):
    result = rewards(responses, function)
    assert totals(result) == pytest.approx(expected)
    assert result["reward_extra_info"].get("reward_comment", expected) == expected
    assert len(service.programs) == (function is not plain_function)


def forgetful_function(data_source, solution_str, ground_truth, extra_info):
    """Calls ours without the batch."""
    return compute_score(data_source, solution_str, ground_truth, extra_info)


def test_our_function_without_a_batch_says_in_one_line_what_is_missing(minicoder, service):
    """veRL's manager ``prime`` would score any error 0, so it is ended."""
    batch = make_batch(minicoder, [respond(4)])
    for manager in (make_manager(minicoder, forgetful_function), NaiveRewardManager(minicoder, 0, compute_score)):
        with pytest.raises(InputError, match=r"^[^\n]*reward_model\.reward_manager=cobalt[^\n]*$"):
            compute_reward(batch, manager)
    with pytest.raises(SystemExit, match=r"reward_model\.reward_manager=cobalt"):
        get_reward_manager_cls("prime")(minicoder, 0, compute_score)(batch)


USERS_FILE = """
def compute_score(data_source, solution_str, ground_truth, extra_info, weight=1.0):
    return weight * len(solution_str)
"""


def test_functions_that_verl_loads_by_path_take_constants_and_can_be_pickled(minicoder, rewards, tmp_path):
    """veRL ships the manager to another process at each step when rewards are computed asynchronously."""
    (tmp_path / "reward.py").write_text(USERS_FILE)
    ours = "verl/code_reward_func_think.py"
    for path, constants, response, total in (
        (str(tmp_path / "reward.py"), {"weight": 0.5}, "abcd", 2),
        (ours, {"correct_some": 0.125}, respond(1), 0.125),
        (ours, {}, respond(4), 1),
    ):
        function = {"path": path, "name": "compute_score", "reward_kwargs": constants}
        manager = make_manager(minicoder, get_custom_reward_fn({"custom_reward_function": function}))
        assert totals(rewards([response], manager=manager)) == [total]
        if not constants:
            assert totals(rewards([response], manager=pickle.loads(pickle.dumps(manager)))) == [total]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lengths", "words"),
        ("executor", "sevre"),
        ("max_in_flight", "abc"),
        ("max_in_flight", 0),
        ("max_infra_rate", 2),
    ],
)
def test_settings_of_a_wrong_type_or_out_of_range_are_refused_in_one_line(minicoder, name, value):
    with pytest.raises(InputError, match=rf"^reward_model\.reward_kwargs\.{name}={value}: Input should be [^\n]*$"):
        make_manager(minicoder, **{name: value})


@pytest.mark.parametrize("settings", [{"executor": "serve", "cpu_limit_s": 2}, {"executor": "local", "cpu_limt_s": 2}])
def test_limits_that_nobody_takes_are_refused_before_training(minicoder, settings):
    with pytest.raises(InputError, match=r"limits|cpu_limt_s"):
        make_manager(minicoder, **settings)


def test_equal_programs_run_once_and_all_are_in_flight_at_once(rewards, use):
    fake = FakeService(delay_s=0.05)
    use(fake.opener())
    rewards([respond(1, f"plan {index}") for index in range(64)])
    assert fake.programs == ["print(1)"]  # 64 times
    rewards([respond(index) for index in range(64)])
    assert fake.most_running == 64


def advantages(rewards_B, groups_B):
    """By veRL; one token per response."""
    tokens = torch.tensor(rewards_B)[:, None]
    values, _ = compute_grpo_outcome_advantage(tokens, torch.ones_like(tokens), groups_B)
    return values[:, 0].tolist()


def test_a_failed_sample_has_no_advantage_and_leaves_the_others_their_sign():
    groups = ["a"] * 4 + ["b"] * 4
    values = advantages(neutralise_groups([1.0, None, 0.2, 0.0, 1.0, 0.0, 0.0, 0.0], groups), groups)
    assert values[1] == pytest.approx(0, abs=1e-6)
    assert values[0] > 0 > values[2] > values[3]
    assert values[4] > 0 > values[5]


@pytest.mark.parametrize(
    ("scores", "groups", "expected"),
    [
        ([1.0, None, None, None], "aaaa", [0, 0, 0, 0]),  # mostly failed: neutral as a whole
        ([1.0, 0.0, None, None], "aaaa", [1, 0, 0.5, 0.5]),  # half of a group is enough
        ([1.0, 0.5, None, None, 0.0], "ababa", [1, 0.5, 0.5, 0.5, 0]),  # neither adjacent nor complete
        ([0.1, 0.2], "ab", [0.1, 0.2]),  # without failures nothing changes
    ],
)
def test_a_failed_sample_gets_the_mean_of_its_group(scores, groups, expected):
    assert neutralise_groups(scores, groups) == expected


@pytest.mark.parametrize(
    ("columns", "metrics"),
    [
        # failed samples do not count in the means
        (
            {"infra": [0, 0, 1], "acc": [1.0, 0.0, 0.5], "reward_correct": [1.0, 0.0, 0.5]},
            {"reward/infra": pytest.approx(1 / 3), "reward/acc": 0.5, "reward/correct": 0.5},
        ),
        # nobody could be scored
        ({"infra": [1, 1], "acc": [np.nan, np.nan]}, {"reward/infra": 1}),
        # another manager's
        ({"acc": [1.0]}, {}),
        # a user's part is logged, and columns that are no scores are not
        (
            {"infra": [0, 0], "reward_comment": [0.01, 0.0], "other": [1.0, 1.0], "reward_model": [{}, {}]},
            {"reward/infra": 0, "reward/comment": 0.005},
        ),
    ],
)
def test_metrics_are_means_over_the_scored_samples(columns, metrics):
    assert reward_metrics({name: np.array(values) for name, values in columns.items()}) == metrics


def test_online_a_trajectory_counts_once_by_its_last_turn_and_lost_ones_are_not_scored():
    columns = {"infra": [0, 0, 0, 0, 1], "acc": [0.0, 0.0, 1.0, 1.0, 0.0]}
    metrics = reward_metrics(columns, [[0, 1, 2], [3], [4]], lost=1)
    assert metrics == {"reward/infra": 0.5, "reward/acc": 1.0, "reward/acc_over_turns": 0.5}


def test_training_survives_a_single_lost_step_and_stops_at_the_second_within_the_window():
    """A batch without ``infra`` is one whose scoring failed as a whole."""

    def step(*infra_B):
        return SimpleNamespace(non_tensor_batch={"infra": np.array(infra_B)} if infra_B else {})

    guard = InfraGuard(0.25)
    for batch in (step(1, 1), *[step(0, 0)] * WINDOW_STEPS, step()):
        guard(batch)
    with pytest.raises(SetupError, match="50% of the samples"):
        guard(step(1, 1))
    InfraGuard(1.0)(step(1, 1))
    with pytest.raises(SetupError, match=r"max_infra_rate=0\.0"):
        InfraGuard(0.0)(step(0, 0, 0, 1))
