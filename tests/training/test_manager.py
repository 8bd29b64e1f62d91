"""The reward manager on hand-built batches, with services that fail in every way."""

import math
import pickle
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from online_parts import make_batch
from ray.exceptions import RayActorError, RayError
from service import FakeService, no_service, respond
from verl.trainer.ppo.reward import compute_reward, get_custom_reward_fn
from verl.workers.reward_manager import NaiveRewardManager, get_reward_manager_cls

from cobalt.errors import InputError, SetupError
from cobalt.serving import execution
from cobalt.serving.execution import ExecutionService
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.scoring import compute_score

pytestmark = pytest.mark.usefixtures("no_waiting")


def make_manager(minicoder, function=compute_score, **settings):
    return CobaltRewardManager(minicoder, 0, function, reward_fn_key="data_source", **settings)


def totals(result):
    return result["reward_tensor"].sum(-1).tolist()


def test_rewards_lie_on_the_last_token_of_each_response(minicoder, service):
    batch = make_batch(minicoder, [respond(4), respond(4, think="a longer plan")])
    ends = batch.batch["response_mask"].sum(-1) - 1
    assert make_manager(minicoder)(batch).nonzero().tolist() == [[row, int(end)] for row, end in enumerate(ends)]


def test_all_parts_are_plain_floats_of_every_sample(minicoder, service):
    batch = make_batch(minicoder, [respond(4), respond(1), "no program"], uid=["a", "a", "a"])
    info = make_manager(minicoder)(batch, return_dict=True)["reward_extra_info"]
    assert set(info) == {
        *("acc", "pass_rate", "reward_correct", "reward_improve", "reward_format", "reward_total", "infra"),
        *("cost_reward_programs_run", "cost_reward_tests_run", "cost_reward_executor_cpu_s"),
    }
    assert all(len(values) == 3 and all(type(value) is float for value in values) for values in info.values())
    assert info["acc"] == [1, 0, 0]
    assert info["pass_rate"] == [1, 0.25, 0]
    assert info["reward_correct"] == [1, 0, -1]


@pytest.mark.parametrize(("prev_best", "total"), [(0.25, 0.2 + 0.1 * 0.25 / 0.75), (None, 0.2), (0.0, 0.2)])
def test_the_context_counts_and_a_missing_best_pass_rate_is_zero(minicoder, service, prev_best, total):
    batch = make_batch(minicoder, [respond(2)], prev_best=prev_best)
    assert totals(make_manager(minicoder)(batch, return_dict=True)) == pytest.approx([total])


def test_validation_is_pass_or_fail_and_a_failed_sample_does_not_move_its_mean(minicoder, service):
    batch = make_batch(minicoder, [respond(4), respond(3), respond("fail"), "nothing", respond(4)], validate=True)
    result = make_manager(minicoder)(batch, return_dict=True)
    assert totals(result) == result["reward_extra_info"]["acc"] == [1, 0, 0.5, 0, 1]


def test_unfinished_responses_count_as_no_program_if_asked(minicoder, service):
    """Cut off at the full width: the text holds a program, but the policy never ended it."""
    cut = respond(4) + " and" * 100
    batch = make_batch(minicoder, [cut, respond(4)])
    assert totals(make_manager(minicoder, require_end=True)(batch, return_dict=True)) == [-1, 1]
    assert totals(make_manager(minicoder)(batch, return_dict=True)) == [1, 1]


def test_a_failed_sample_gets_its_groups_mean_and_a_mostly_failed_group_is_zero(minicoder, service):
    responses = [respond(4), respond("fail"), respond(1), respond(2)]
    responses += [respond(4), *(respond(f"fail{number}") for number in range(3))]
    result = make_manager(minicoder)(make_batch(minicoder, responses, uid=list("aaaabbbb")), return_dict=True)
    rewards = totals(result)
    assert rewards[1] == pytest.approx((rewards[0] + rewards[2] + rewards[3]) / 3)
    assert rewards[4:] == [0, 0, 0, 0]
    assert result["reward_extra_info"]["infra"] == [0, 1, 0, 0, 0, 1, 1, 1]


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
    yield ExecutionService(DyingService())


@pytest.mark.parametrize("service", [no_service, no_cluster, dying_service])
def test_without_a_service_a_step_is_neutral_and_a_validation_is_not_a_zero(minicoder, use, capsys, service):
    use(service)
    result = make_manager(minicoder)(make_batch(minicoder, [respond(4), respond(1)], uid=["a", "a"]), return_dict=True)
    assert totals(result) == [0, 0]
    assert result["reward_extra_info"]["infra"] == [1, 1]
    assert "INFRA FAILURE: 2 of 2" in capsys.readouterr().out
    result = make_manager(minicoder)(make_batch(minicoder, [respond(4)], validate=True), return_dict=True)
    assert math.isnan(result["reward_extra_info"]["acc"][0])


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

    with pytest.raises(KeyError, match="typo"):
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
    ("function", "responses", "rewards"),
    [
        (plain_function, ["abc", "ab"], [3, 2]),
        (bonus_function, [respond(1, "# a"), respond(1)], [0.01, 0]),
        (sum_function, ["abc", "ab"], [0.75, 0.75]),
    ],
)
def test_a_function_of_the_user_may_be_plain_add_a_part_and_run_programs(
    minicoder, service, function, responses, rewards
):
    result = make_manager(minicoder, function)(make_batch(minicoder, responses), return_dict=True)
    assert totals(result) == pytest.approx(rewards)
    assert result["reward_extra_info"].get("reward_comment", rewards) == rewards
    assert len(service.programs) == (function is not plain_function)


def forgetful_function(data_source, solution_str, ground_truth, extra_info):
    """Calls ours without the batch."""
    return compute_score(data_source, solution_str, ground_truth, extra_info)


@pytest.mark.parametrize(
    "make",
    [
        lambda minicoder: make_manager(minicoder, forgetful_function),
        lambda minicoder: NaiveRewardManager(minicoder, 0, compute_score),
    ],
)
def test_our_function_without_a_batch_says_in_one_line_what_is_missing(minicoder, service, make):
    with pytest.raises(InputError, match=r"reward_model\.reward_manager=cobalt") as refused:
        compute_reward(make_batch(minicoder, [respond(4)]), make(minicoder))
    assert "\n" not in str(refused.value)


USERS_FILE = """
def compute_score(data_source, solution_str, ground_truth, extra_info, weight=1.0):
    return weight * len(solution_str)
"""


def test_functions_that_verl_loads_by_path_take_constants_with_and_without_a_batch(minicoder, service, tmp_path):
    (tmp_path / "reward.py").write_text(USERS_FILE)
    for path, constants, response, total in (
        (str(tmp_path / "reward.py"), {"weight": 0.5}, "abcd", 2),
        ("verl/code_reward_func_think.py", {"correct_some": 0.125}, respond(1), 0.125),
    ):
        function = {"path": path, "name": "compute_score", "reward_kwargs": constants}
        manager = make_manager(minicoder, get_custom_reward_fn({"custom_reward_function": function}))
        assert totals(manager(make_batch(minicoder, [response]), return_dict=True)) == [total]


def test_the_manager_can_be_pickled_and_used_again_and_again(minicoder, service):
    """veRL ships it to another process at each step when rewards are computed asynchronously."""
    config = {"custom_reward_function": {"path": "verl/code_reward_func_think.py", "name": "compute_score"}}
    manager = make_manager(minicoder, get_custom_reward_fn(config))
    batch = make_batch(minicoder, [respond(4)])
    assert totals(manager(batch, return_dict=True)) == [1]
    assert totals(pickle.loads(pickle.dumps(manager))(batch, return_dict=True)) == [1]


@pytest.mark.parametrize(
    "settings",
    [
        {"lengths": "words"},
        {"executor": "sevre"},
        {"max_in_flight": "abc"},
        {"max_in_flight": 0},
        {"max_infra_rate": 2},
    ],
)
def test_settings_of_a_wrong_type_or_out_of_range_are_refused_in_one_line(minicoder, settings):
    ((name, value),) = settings.items()
    with pytest.raises(InputError, match=rf"^reward_model\.reward_kwargs\.{name}={value}: Input should be [^\n]*$"):
        make_manager(minicoder, **settings)


@pytest.mark.parametrize("settings", [{"executor": "serve", "cpu_limit_s": 2}, {"executor": "local", "cpu_limt_s": 2}])
def test_limits_that_nobody_takes_are_refused_before_training(minicoder, settings):
    with pytest.raises(InputError, match=r"limits|cpu_limt_s"):
        make_manager(minicoder, **settings).check()


def test_equal_programs_run_once_and_all_are_in_flight_at_once(minicoder, use):
    fake = FakeService(delay_s=0.05)
    use(fake.opener())
    make_manager(minicoder)(make_batch(minicoder, [respond(1, f"plan {index}") for index in range(64)]))
    assert fake.programs == ["print(1)"]  # 64 times
    responses = [respond(index) for index in range(64)]
    make_manager(minicoder)(make_batch(minicoder, responses))
    assert fake.most_running == 64


def test_verls_manager_that_scores_errors_zero_is_ended_with_the_same_line(minicoder):
    manager = get_reward_manager_cls("prime")(minicoder, 0, compute_score)
    with pytest.raises(SystemExit, match=r"reward_model\.reward_manager=cobalt"):
        manager(make_batch(minicoder, [respond(1)]))
