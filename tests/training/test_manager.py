"""The reward manager on hand-built responses, with services that fail in every way, and what failed samples teach."""

import asyncio
import json
import math
import sys
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fake_service import FakeService
from online_parts import (
    LOCAL,
    ROOT,
    compose,
    make_manager,
    make_tests,
    make_trajectory,
    no_service,
    respond,
)
from ray.exceptions import RayActorError, RayError
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import load_reward_manager

from cobalt.errors import InputError, SetupError
from cobalt.serving import execution
from cobalt.serving.execution import ExecutionService
from cobalt.training import manager as manager_module
from cobalt.training.batch_scores import (
    WINDOW_STEPS,
    InfraGuard,
    judging_metrics,
    neutralise_groups,
    reward_metrics,
    turn_metrics,
)
from cobalt.training.config import completed
from cobalt.training.manager import ERROR, FAILURE_S, JobExecutor, service_of_online
from cobalt.training.responses import follows_context
from cobalt.training.rollouts import refuse_errors
from cobalt.training.scoring import RewardSettings, compute_score

pytestmark = pytest.mark.usefixtures("no_waiting")


@pytest.fixture
def rewards(minicoder, service):
    """Scores of responses, and the other results by name. Each is scored as it comes, all at the same time."""

    async def run(responses, manager=None, **columns):
        manager = manager or make_manager(minicoder)
        made = [make_trajectory(minicoder, [response], **columns) for response in responses]
        found = await asyncio.gather(*(manager.run_single(trajectory) for trajectory in made))
        infos = [one["reward_extra_info"] for one in found]
        names = dict.fromkeys(name for info in infos for name in info)
        return [one["reward_score"] for one in found], {name: [info.get(name) for info in infos] for name in names}

    return run


def context(best):
    return {"prev_best_pass_rate": best}


async def test_all_parts_are_plain_floats_of_every_response(rewards):
    scores, info = await rewards([respond(4), respond(1), "no program"])
    parts = {f"reward_{name}" for name in ("correct", "improve", "format", "total")}
    times = {"arrived_at", "scored_at"}
    assert set(info) == {"acc", "pass_rate", "infra", "turn", "solved_before", "repeats", *parts, *times}
    assert all(type(value) is float for values in [scores, *info.values()] for value in values)
    assert scores == info["reward_total"] == [1, 0, -1]
    assert (info["acc"], info["pass_rate"], info["reward_correct"]) == ([1, 0, 0], [1, 0.25, 0], [1, 0, -1])
    assert info["infra"] == [0, 0, 0]


@pytest.mark.parametrize(("prev_best", "total"), [(0.25, 0.2 + 0.1 * 0.25 / 0.75), (None, 0.2), (0.0, 0.2)])
async def test_the_context_counts_and_a_missing_best_pass_rate_is_zero(rewards, prev_best, total):
    scores, _ = await rewards([respond(2)], extra_info=context(prev_best))
    assert scores == pytest.approx([total])


async def test_validation_is_pass_or_fail_and_what_could_not_be_run_is_no_wrong_program(rewards):
    scores, info = await rewards([respond(4), respond(3), respond("fail"), "nothing"], validates=True)
    assert [scores[0], scores[1], scores[3]] == [1, 0, 0] and math.isnan(scores[2])
    assert info["infra"] == [0, 0, 1, 0] and math.isnan(info["acc"][2])


async def test_programs_are_found_by_the_rule_of_the_settings(minicoder, rewards):
    """The answer shows a sample behind its program: the released rule runs the sample."""
    response = respond(4) + "\n```\nprint(1)\n```"
    _, found = await rewards([response])
    _, released = await rewards([response], make_manager(minicoder, extraction="released"))
    assert (found["pass_rate"], released["pass_rate"]) == ([1], [0.25])


async def test_unfinished_responses_count_as_no_program_if_asked(minicoder, rewards):
    """Cut off at the full width: the text holds a program, but the policy never ended it."""
    responses = [respond(4) + " and" * 100, respond(4)]
    assert (await rewards(responses, make_manager(minicoder, require_end=True)))[0] == [-1, 1]
    assert (await rewards(responses))[0] == [1, 1]


async def test_a_response_is_cut_off_only_where_it_has_all_tokens_that_it_may_have(minicoder, service):
    """An engine may end it by a token that is not the tokenizer's own."""
    row = make_trajectory(minicoder, [respond(4)])
    row.batch["responses"] = row.batch["responses"][:, :-1]  # without the tokenizer's end
    whole = row.batch["responses"].shape[1]
    row.non_tensor_batch["response_len"] -= 1
    for most, passed in ((whole + 1, 1.0), (whole, 0.0)):
        manager = make_manager(minicoder, require_end=True)
        manager._width = most
        assert (await manager.run_single(row))["reward_extra_info"]["acc"] == passed


async def test_the_papers_token_counts_are_of_o200k(minicoder, rewards, monkeypatch):
    encoding = SimpleNamespace(encode=lambda text, **_: [0] * (10**6 if "plan" in text else 1))
    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=lambda _name: encoding))
    _, by_policy = await rewards([respond(1)])
    _, by_paper = await rewards([respond(1)], make_manager(minicoder, lengths="o200k_base"))
    assert by_policy["reward_format"] != by_paper["reward_format"]


async def test_the_column_that_says_where_data_are_from_is_a_setting(minicoder, service):
    def function(data_source, solution_str, ground_truth, extra_info):
        return float(data_source == "mine")

    for key, score in (("data_source", 0), ("origin", 1)):
        manager = make_manager(minicoder, function, source_key=key)
        row = make_trajectory(minicoder, ["abc"], data_source="theirs", origin="mine")
        assert (await manager.run_single(row))["reward_score"] == score


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
@pytest.mark.parametrize("validates", [False, True])
async def test_without_a_service_nothing_has_a_score_and_nothing_is_an_error(rewards, use, capsys, opener, validates):
    """No number: to veRL's filter zeros would be a group of equal rewards."""
    use(opener)
    scores, info = await rewards([respond(4), respond(1)], validates=validates)
    assert all(map(math.isnan, [*scores, *info["acc"]])) and info["infra"] == [1, 1]
    assert ERROR not in info and capsys.readouterr().out.count("INFRA FAILURE: a response was not scored") == 2


async def test_a_service_that_comes_back_is_waited_for(rewards, minicoder, monkeypatch, use):
    complaints = iter(["no cluster", "no app"])

    def handle(*_):
        for complaint in complaints:
            raise SetupError(complaint)
        return app

    async def answer(programs):
        return [await FakeService().run(code, tests) for code, tests in programs]

    app = SimpleNamespace(run_many=SimpleNamespace(remote=answer))
    monkeypatch.setattr(execution, "app_handle", handle)
    use(execution.open_execution_service)
    assert (await rewards([respond(4)], make_manager(minicoder, executor="serve")))[0] == [1]


async def test_a_failed_attempt_is_shared_by_all_who_wait_for_it_and_those_soon_after(
    rewards, minicoder, use, monkeypatch
):
    tried, now = [], [100.0]

    @asynccontextmanager
    async def failing(*_args, **_limits):
        tried.append(now[0])
        await asyncio.sleep(0)
        raise SetupError("no execution service")
        yield

    use(failing)
    monkeypatch.setattr(manager_module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    manager = make_manager(minicoder)
    for _ in range(2):
        assert (await rewards([respond(4)] * 8, manager))[1]["infra"] == [1.0] * 8
    now[0] += FAILURE_S
    await rewards([respond(4)], manager)
    assert tried == [100.0, now[0]]


async def test_all_processes_of_an_online_training_share_one_local_executor(use, monkeypatch):
    """Ray's part, an actor that exists once for each job, is played by this process."""
    fake, opened = FakeService(), []

    @asynccontextmanager
    async def open_service(executor, **limits):
        opened.append((executor, limits["workers"]))
        yield ExecutionService(fake)

    use(open_service)
    reward = RewardSettings.read({"executor": "local", "workers": 2})
    actor = JobExecutor.__ray_metadata__.modified_class(reward)
    handle = SimpleNamespace(run=SimpleNamespace(remote=actor.run))
    named = SimpleNamespace(options=lambda **_name: SimpleNamespace(remote=lambda _reward: handle))
    monkeypatch.setattr(manager_module, "JobExecutor", named)
    services = [await service_of_online(reward).opened() for _ in range(9)]
    results = await asyncio.gather(*[service.run("print(1)", make_tests(2)) for service in services])
    assert opened == [("local", 2)] and [result.pass_rate for result in results] == [0.5] * 9


def function_that_raises(error):
    async def function(**_arguments):
        raise error

    return function


@pytest.mark.parametrize("error", [KeyError("typo"), SystemExit(0)])
async def test_an_error_in_the_reward_function_or_the_data_is_for_the_trainer(minicoder, rewards, error):
    scores, info = await rewards([respond(4)], make_manager(minicoder, function_that_raises(error)))
    assert math.isnan(scores[0])
    (told,) = info[ERROR]
    assert told.startswith(f"the reward function raised {type(error).__name__}: {error} (") and told.endswith(")")
    assert "\n" not in told
    _, info = await rewards(["no program"], reward_model={"style": "rule"})
    assert info[ERROR] == ["KeyError: 'ground_truth'"]


@pytest.mark.parametrize("given", [{"reward": 1}, {"score": math.nan}, math.inf])
async def test_a_reward_function_that_gives_no_score_ends_training(minicoder, rewards, given):
    """It is neither a failure of the infrastructure nor a gradient that veRL leaves out."""
    _, info = await rewards([respond(4)], make_manager(minicoder, lambda **_arguments: given))
    (told,) = info[ERROR]
    assert told.startswith("the reward function must give a finite number as 'score', and gave {")


async def test_a_part_of_the_user_called_error_ends_nothing(minicoder, rewards):
    scores, info = await rewards([respond(4)], make_manager(minicoder, lambda **_arguments: {"score": 1, "error": 1}))
    refuse_errors(info.get(ERROR, ()))
    assert (scores, info["error"]) == ([1], [1])


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
async def test_a_function_of_the_user_may_be_plain_add_a_part_and_run_programs(
    minicoder, rewards, service, function, responses, expected
):
    scores, info = await rewards(responses, make_manager(minicoder, function))
    assert scores == pytest.approx(expected)
    assert info.get("reward_comment", expected) == expected
    assert len(service.programs) == (function is not plain_function)


def forgetful_function(data_source, solution_str, ground_truth, extra_info):
    """Calls ours without the batch."""
    return compute_score(data_source, solution_str, ground_truth, extra_info)


async def test_our_function_without_a_batch_says_in_one_line_what_is_missing(minicoder, rewards):
    told = "leave reward.reward_manager as it is in the recipe"
    _, info = await rewards([respond(4)], make_manager(minicoder, forgetful_function))
    assert told in info[ERROR][0] and "\n" not in info[ERROR][0]
    verls = NaiveRewardManager(completed(compose()), minicoder, compute_score)
    row = make_trajectory(minicoder, [respond(4)])
    row.batch["attention_mask"] = torch.ones_like(row.batch["responses"])
    row.non_tensor_batch.pop("tool_extra_fields")
    with pytest.raises(InputError, match=told):
        await verls.run_single(row)


USERS_FILE = """
def compute_score(data_source, solution_str, ground_truth, extra_info, weight=1.0):
    return weight * len(solution_str)
"""


@pytest.mark.parametrize(
    ("path", "constant", "response", "total"),
    [
        ("reward.py", "weight: 0.5", "abcd", 2),
        (ROOT / "verl/code_reward_func_think.py", "correct_some: 0.125", respond(1), 0.125),
        (ROOT / "verl/code_reward_func_think.py", "", respond(4), 1),
    ],
)
async def test_the_recipes_manager_loads_a_function_by_path_and_gives_it_constants(
    minicoder, rewards, tmp_path, path, constant, response, total
):
    """By veRL, from a composed configuration."""
    (tmp_path / "reward.py").write_text(USERS_FILE)
    config = completed(compose(LOCAL, f"+reward.custom_reward_function.reward_kwargs={{{constant}}}"))
    config.reward.custom_reward_function.path = str(tmp_path / path)
    manager = load_reward_manager(config, minicoder, reward_router_address=None, reward_model_tokenizer=None)
    assert type(manager).__name__ == "StreamingRewardManager"
    assert (await rewards([response], manager))[0] == [total]


async def test_a_program_is_run_by_the_local_executor(minicoder):
    manager = make_manager(minicoder, workers=1)
    tests = {"ground_truth": json.dumps({"inputs": ["2", "3"], "outputs": ["4", "9"]})}
    for program, passed in (("print(int(input()) ** 2)", 1.0), ("print(0)", 0.0)):
        row = make_trajectory(minicoder, [f"```python\n{program}\n```"], reward_model=tests)
        found = await manager.run_single(row)
        assert (found["reward_extra_info"]["acc"], found["reward_extra_info"]["infra"]) == (passed, 0)
    await manager.service.stack.aclose()


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
def test_settings_of_a_wrong_type_or_out_of_range_are_refused_in_one_line(name, value):
    with pytest.raises(InputError, match=rf"^reward\.reward_kwargs\.{name}={value}: Input should be [^\n]*$"):
        RewardSettings.read({name: value})


@pytest.mark.parametrize("settings", [{"executor": "serve", "workers": 2}, {"executor": "local", "cpu_limt_s": 2}])
def test_limits_that_nobody_takes_are_refused_before_training(settings):
    with pytest.raises(InputError, match=r"workers: a setting of executor=local|cpu_limt_s"):
        RewardSettings.read(settings)


async def test_equal_programs_run_once_and_all_are_in_flight_at_once(minicoder, rewards, use):
    fake = FakeService(delay_s=0.05)
    use(fake.opener())
    manager = make_manager(minicoder)
    await rewards([respond(1, f"plan {index}") for index in range(64)], manager)
    assert fake.programs == ["print(1)"]  # 64 times
    await rewards([respond(index) for index in range(64)], manager)  # the earlier result is forgotten
    assert fake.most_running == 64 and fake.programs.count("print(1)") == 2


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


def test_judging_is_what_comes_after_the_last_response():
    """The slowest program came early: it held back no more than the four seconds after the last one.

    Of these, three passed in passes of the model.
    """
    slow, last, unscored = (
        {"arrived_at": 10.0, "scored_at": 24.0},
        {"arrived_at": 20.0, "scored_at": 20.5},
        {"infra": 1.0},
    )
    for passes_end, seconds in ((None, 4.0), (23.0, 1.0), (25.0, 0.0)):
        assert judging_metrics([slow, unscored, last], passes_end) == {"timing_s/judging": seconds}
    assert judging_metrics([unscored], None) == {}


def test_learning_is_told_by_the_number_of_programs_before():
    columns = {
        "infra": [0, 0, 0, 0, 0, 1],
        "acc": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0],
        "turn": [0, 0, 1, 1, 1, 1],
        "solved_before": [0, 0, 1, 1, 0, 1],
        "repeats": [0, 0, 1, 0, 0, 0],
    }
    assert turn_metrics({name: np.array(values) for name, values in columns.items()}) == {
        "turn_0/solved": 0.5,
        "turn_1/solved": pytest.approx(2 / 3),
        "turn_1/kept": 0.5,
        "turn_1/broken": 0.5,
        "turn_1/repaired": 1.0,
        "turn_1/repeated": pytest.approx(1 / 3),
    }
    assert turn_metrics({"infra": [0], "acc": [1.0]}) == {}


def test_a_response_is_compared_with_the_last_program_of_its_context():
    def told(*answers, best):
        answered = ({"role": "assistant", "content": f"```python\n{code}\n```"} for code in answers)
        asked = {"role": "user", "content": "?"}
        messages = [message for answer in answered for message in (asked, answer)] + [asked]
        info = {"conversation": messages if answers else None, "prev_best_pass_rate": best, "extraction": "markdown"}
        item = {"solution_str": "```python\nb = 1\n```", "extra_info": info}
        return tuple(follows_context(item).values())

    assert [told(best=None), told("a = 1", "b = 1", best=1.0), told("b = 1", "a = 1", best=0.5)] == [
        (0, 0, 0),
        (2, 1, 1),
        (2, 0, 0),
    ]


def test_online_a_trajectory_counts_once_by_its_last_turn_and_lost_ones_are_not_scored():
    columns = {"infra": [0, 0, 0, 0, 1], "acc": [0.0, 0.0, 1.0, 1.0, 0.0]}
    metrics = reward_metrics(columns, [[0, 1, 2], [3], [4]], lost=1)
    assert metrics == {"reward/infra": 0.5, "reward/acc": 1.0, "reward/acc_over_turns": 0.5}


def test_training_survives_a_single_lost_step_and_stops_at_the_second_within_the_window():
    guard = InfraGuard(0.25)
    for share in (1, *[0] * WINDOW_STEPS, 0):
        guard.note(share)
    guard.note(1)
    with pytest.raises(SetupError, match="50% of the samples"):
        guard.note(1)
    InfraGuard(1.0).note(1)
    with pytest.raises(SetupError, match=r"max_infra_rate=0\.0"):
        InfraGuard(0.0).note(0.25)
