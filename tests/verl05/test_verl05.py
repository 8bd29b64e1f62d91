"""The paper's stack, in its own environment: scores of a batch, what ends training, configuration and refusals."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from cobalt.errors import InputError, SetupError

try:
    installed = version("verl")
except PackageNotFoundError:
    installed = "none"
if installed != "0.5.0":
    pytest.skip(f"needs veRL 0.5.0 (scripts/setup_gpu.sh paper), not {installed}", allow_module_level=True)

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import torch
from fake_service import FakeService
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer import main_ppo
from verl.trainer.ppo.reward import compute_reward, compute_reward_async, get_custom_reward_fn, load_reward_manager

from cobalt.rewards import tokenizer_counter
from cobalt.sandbox import TestCases
from cobalt.serving import execution
from cobalt.serving.execution import ExecutionService
from cobalt.training import preflight, scoring
from cobalt.training.responses import ResponseScorer
from cobalt.training.scoring import Batch, compute_score
from cobalt.training.verl05.manager import BatchRewardManager
from cobalt.training.verl05.runner import recipe_config, to_paper_keys, train

pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "verl/config"
WIDTH = 60
"""Of responses, in tokens."""


@asynccontextmanager
async def no_service(executor, **limits):
    raise SetupError("no execution service")
    yield


def respond(passed, think="plan"):
    return f"<think>\n{think}\n</think>\n```python\nprint({passed})\n```"


def make_batch(tokenizer, responses, prev_best=0.0, validate=False, **columns):
    """As veRL hands it over: a token of prompt, responses padded on the right, non-tensor columns."""
    count = len(responses)
    ids, mask = torch.full((count, WIDTH), tokenizer.pad_token_id), torch.zeros(count, WIDTH, dtype=torch.long)
    for row, response in enumerate(responses):
        tokens = [*tokenizer.encode(response), tokenizer.eos_token_id][:WIDTH]
        ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.tensor(tokens), 1
    tests = TestCases(tuple("0123"), tuple("0000")).to_json()
    columns |= {
        "data_source": ["code_taco_verified"] * count,
        "reward_model": [{"style": "rule", "ground_truth": tests}] * count,
        "extra_info": [{"prev_best_pass_rate": prev_best, "index": index} for index in range(count)],
    }
    prompts = torch.zeros(count, 1, dtype=torch.long)
    attention_mask = torch.cat([prompts + 1, mask], 1)
    return DataProto.from_dict(
        {"prompts": prompts, "responses": ids, "attention_mask": attention_mask, "response_mask": mask},
        {name: np.array(values, dtype=object) for name, values in columns.items()},
        {"validate": True} if validate else {},
    )


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(ROOT / "assets/minicoder")


@pytest.fixture
def use(monkeypatch):
    """Has the manager open another execution service, and retry at once."""
    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)
    return lambda opener: monkeypatch.setattr(scoring, "open_execution_service", opener)


@pytest.fixture
def service(use):
    fake = FakeService()
    use(fake.opener())
    return fake


@pytest.fixture
def rewards(tokenizer):
    """Of responses, with settings of the batch."""

    def run(responses, function=compute_score, **batch):
        manager = BatchRewardManager(tokenizer, 0, function, max_infra_rate=1.0)
        result = manager(make_batch(tokenizer, responses, **batch), return_dict=True)
        return result["reward_tensor"], result["reward_extra_info"]

    return run


async def test_scores_are_those_of_response_scorer_on_the_last_token(tokenizer, rewards, service):
    responses = [respond(4), respond(1), respond(2, "a longer plan"), "no program"]
    scorer, batch = ResponseScorer(tokenizer, compute_score, {}), make_batch(tokenizer, responses, prev_best=0.25)
    own = Batch(ExecutionService(FakeService()), tokenizer_counter(tokenizer), False)
    ids = [[*tokenizer.encode(response), tokenizer.eos_token_id][:WIDTH] for response in responses]
    expected = [await scorer.score(item, own) for item in scorer.items(ids, batch.non_tensor_batch, WIDTH)]

    # veRL calls it where no event loop runs
    tensor, info = await asyncio.to_thread(rewards, responses, prev_best=0.25)
    ends = (batch.batch["response_mask"].sum(-1) - 1).tolist()
    assert tensor.nonzero().tolist() == [[row, end] for row, end in enumerate(ends)]
    assert tensor.sum(-1).tolist() == pytest.approx([scores.pop("score") for scores in expected])
    assert info.pop("infra") == [0, 0, 0, 0]
    assert info == {name: [scores[name] for scores in expected] for name in expected[0]}
    assert all(type(value) is float for values in info.values() for value in values)


def test_equal_programs_run_once_and_all_are_in_flight_at_once(rewards, use):
    fake = FakeService(delay_s=0.05)
    use(fake.opener())
    rewards([respond(1, f"plan {index}") for index in range(64)])
    assert fake.programs == ["print(1)"]
    rewards([respond(index) for index in range(64)])
    assert fake.most_running == 64


def test_a_failed_sample_gets_its_groups_mean_and_a_mostly_failed_group_is_zero(rewards, service, capsys):
    responses = [respond(4), respond("fail"), respond(1), respond(2)]
    responses += [respond(4), *(respond(f"fail{number}") for number in range(3))]
    tensor, info = rewards(responses, uid=list("aaaabbbb"))
    first, failed, *others = tensor.sum(-1).tolist()
    assert failed == pytest.approx((first + sum(others[:2])) / 3)
    assert others[2:] == [0, 0, 0, 0]
    assert info["infra"] == [0, 1, 0, 0, 0, 1, 1, 1]
    assert "INFRA FAILURE: 4 of 8" in capsys.readouterr().out


def test_validation_is_pass_or_fail_and_a_failed_sample_does_not_move_its_mean(rewards, service):
    tensor, info = rewards([respond(4), respond(3), respond("fail"), "nothing", respond(4)], validate=True)
    assert tensor.sum(-1).tolist() == info["acc"] == [1, 0, 0.5, 0, 1]


def test_without_a_service_a_step_is_neutral(rewards, use):
    use(no_service)
    tensor, info = rewards([respond(4), respond(1)], uid=["a", "a"])
    assert not tensor.any()
    assert info["infra"] == [1, 1]


def test_training_survives_a_single_lost_step_and_ends_at_the_second(tokenizer, use):
    """As the manager is called by veRL, which calls again after an error."""
    use(no_service)
    manager, batch = BatchRewardManager(tokenizer, 0, compute_score), make_batch(tokenizer, [respond(4)])
    for _ in range(2):
        compute_reward(make_batch(tokenizer, [respond(4)], validate=True), manager)  # does not count
    compute_reward(batch, manager)
    with pytest.raises(SetupError, match="50% of the samples"):
        compute_reward(batch, manager)


def test_the_guard_sees_all_steps_of_a_manager_that_verl_pickles_for_each(tokenizer):
    @asynccontextmanager
    async def lost(*_arguments, **_settings):
        raise SetupError("no execution service")
        yield

    class Manager(BatchRewardManager):
        """Its processes have no service."""

        def __call__(self, data, return_dict=False):
            from cobalt.serving import execution
            from cobalt.training import scoring

            execution.FIRST_DELAY_S, scoring.open_execution_service = 0.001, lost
            return super().__call__(data, return_dict)

    ray.init("local", num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": ":".join(sys.path)}})
    try:
        train, _validation = (Manager(tokenizer, examined, compute_score) for examined in (0, 1))
        batch = make_batch(tokenizer, [respond(4)])
        _, info = ray.get(compute_reward_async.remote(batch, reward_fn=train))
        assert info["infra"] == [1]
        with pytest.raises(ray.exceptions.RayTaskError) as caught:
            ray.get(compute_reward_async.remote(batch, reward_fn=train))
        assert isinstance(caught.value.cause, SetupError)
        assert str(caught.value.cause).startswith("stopped: 50% of the samples")
    finally:
        ray.shutdown()


def test_an_error_in_the_reward_function_is_raised_in_one_line_though_verl_calls_again(tokenizer, service):
    calls = []

    async def broken(**_arguments):
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("typo")
        return 1.0

    with pytest.raises(InputError, match=r"^the reward function raised KeyError: 'typo' \(\S+, line \d+\)$"):
        compute_reward(make_batch(tokenizer, [respond(4)]), BatchRewardManager(tokenizer, 0, broken))


def test_verl_makes_the_manager_of_both_recipes_with_the_released_reward(tokenizer, service):
    for recipe, prompt, epochs in (("multi_turn", 10240, 2), ("single_turn", 2048, 4)):
        constant = "+reward.custom_reward_function.reward_kwargs.correct_some=0.125"
        overrides = [f"+recipe={recipe}", "+preset=paper-qwen3", constant, "reward.reward_kwargs.lengths=policy"]
        config = to_paper_keys(recipe_config(overrides, RECIPES))
        assert (config.data.max_prompt_length, config.trainer.total_epochs) == (prompt, epochs)
        assert config.actor_rollout_ref.model.path == "Qwen/Qwen3-8B"
        assert config.reward_model.launch_reward_fn_async
        # micro-batches of rows, as released
        actor = config.actor_rollout_ref.actor
        assert (actor.use_dynamic_bsz, actor.ppo_micro_batch_size_per_gpu) == (False, 2)
        assert not {"reward", "transfer_queue"} & {*config}
        manager = load_reward_manager(config, tokenizer, num_examine=0, **config.reward_model.reward_kwargs)
        assert type(manager) is BatchRewardManager
        assert manager(make_batch(tokenizer, [respond(1)])).sum() == 0.125


def test_a_reward_function_of_the_user_may_be_plain(tokenizer, rewards, service, tmp_path):
    file = tmp_path / "reward.py"
    file.write_text("def mine(data_source, solution_str, ground_truth, extra_info):\n    return len(solution_str)\n")
    own = [f"reward.custom_reward_function.path={file}", "reward.custom_reward_function.name=mine"]
    config = to_paper_keys(recipe_config(["+recipe=multi_turn", *own], RECIPES))
    tensor, _ = rewards(["abc", "ab"], get_custom_reward_fn(config))
    assert tensor.sum(-1).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([], "no recipe"),
        (["+recipe=grpo_online"], "cobalt.online"),
        (["+recipe=verpo_online"], "cobalt.online"),
        (["+recipe=multi_turn", "+preset=cpu"], "cobalt.backend"),
        (["+recipe=multi_turn", "+preset=one-gpu-vllm"], 'cobalt.loss_weights: veRL 0.5.0 needs "release"'),
        (["+recipe=multi_turn", "cobalt.share_prompts=true"], "cobalt.share_prompts"),
        (["+recipe=multi_turn", "cobalt.budget={responses: 9}"], "cobalt.budget"),
        (["+recipe=multi_turn", "reward.reward_manager.name=dapo"], "reward.reward_manager.name cannot be set"),
        (["+recipe=multi_turn", "custom_reward_function.path=a.py"], "custom_reward_function.path cannot be set"),
        (["+recipe=multi_turn", "trainer.v1.trainer_mode=sync"], "trainer.v1.trainer_mode"),
        (["+recipe=multi_turn", "data.train_batch_sise=8"], "did you mean data.train_batch_size"),
        (["+recipe=multi_turn", "data.train_batch_size=many"], "expected an integer"),
        (["+recipe=nobodys"], "nobodys"),
    ],
)
def test_what_verl_050_does_not_do_is_refused(overrides, told):
    with pytest.raises(InputError) as caught:
        recipe_config(overrides, RECIPES)
    assert told in str(caught.value)


def test_the_steps_that_are_asked_for_are_trained_on_whole_prompts(monkeypatch, tmp_path, capsys):
    """veRL would end after the epochs, and cut the prompt that is too long."""
    for name, count in (("train", 4), ("test", 1)):
        prompts = ["? " * (100 if number == 3 else 1) for number in range(count)]
        row = {"data_source": "code", "reward_model": {"ground_truth": TestCases(("1",), ("1",)).to_json()}}
        rows = [{**row, "prompt": [{"role": "user", "content": prompt}]} for prompt in prompts]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    small = ["data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "data.max_prompt_length=100"]
    small += [
        f"actor_rollout_ref.model.path={ROOT}/assets/minicoder",
        "actor_rollout_ref.model.use_remove_padding=false",
    ]
    places = [f"data.{kind}_files={tmp_path}/{name}.parquet" for kind, name in (("train", "train"), ("val", "test"))]
    places += [f"trainer.default_local_dir={tmp_path}/out", "trainer.n_gpus_per_node=1", "trainer.logger=[console]"]
    steps = ["trainer.total_epochs=2", "trainer.total_training_steps=40"]
    started = []
    monkeypatch.setattr(preflight, "find_spec", lambda _name: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(main_ppo, "TaskRunner", main_ppo.TaskRunner)
    monkeypatch.setattr(main_ppo, "run_ppo", started.append)
    train(recipe_config(["+recipe=multi_turn", "+preset=paper-qwen3", *places, *small, *steps], RECIPES))
    assert (started[0].trainer.total_epochs, started[0].trainer.total_training_steps) == (40, 40)
    assert (started[0].data.filter_overlong_prompts, started[0].data.truncation) == (True, "error")
    assert "1 prompts of data.train_files are left out" in capsys.readouterr().err


def run(*arguments):
    command = [sys.executable, "-m", "cobalt.training.verl05", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()[-1:]


def test_help_teaches_and_errors_are_one_line(tmp_path):
    code, out, _ = run("--help")
    assert (code, "+recipe=multi_turn" in out) == (0, True)
    files = [f"data.{name}={tmp_path / 'none.parquet'}" for name in ("train_files", "val_files")]
    settings = "--config-dir", "verl/config", "+recipe=multi_turn", *files, f"trainer.default_local_dir={tmp_path}"
    for arguments, told in ((settings, "none.parquet"), (settings[2:], "--config-dir is missing")):
        code, _, last = run("--check", *arguments)
        assert code == 2, last
        assert told in last[0]
