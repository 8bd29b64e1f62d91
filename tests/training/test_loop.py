"""The recipes on CPU: a few steps, a checkpoint, resuming from it, and a merged model that generates."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cobalt.prompts import feedback_message, first_messages, problem_instruction
from cobalt.records import TestCases
from cobalt.records.training_run import read_metrics, training_manifest

ROOT = Path(__file__).parents[2]
PROBLEMS = ROOT / "assets" / "minicode" / "problems.jsonl"


def make_row(messages, tests, **extra_info):
    return {
        "data_source": "code_taco_verified",
        "prompt": messages,
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": tests.to_json()},
        "extra_info": extra_info,
    }


def make_rows(count):
    """Half of the prompts are problems, half are contexts with one previous program."""
    rows = []
    for index in range(count):
        question = (
            f"Your program receives one line that holds several integers. Print the sum of the values plus {index}."
        )
        inputs = [" ".join(str(index + value) for value in range(length)) for length in (2, 3, 4)]
        tests = TestCases(tuple(inputs), tuple(str(sum(map(int, text.split())) + index) for text in inputs))
        messages = first_messages(problem_instruction(question))
        if index % 2:
            answer = "<think>\nsum\n</think>\n```python\nprint(sum(map(int, input().split())))\n```"
            feedback = f"Input:\n{inputs[0]}\nProgram's Output:\n0\nExpected Output:\n{tests.outputs_K[0]}"
            messages += [{"role": "assistant", "content": answer}, feedback_message(feedback)]
        rows.append(make_row(messages, tests, split="train", index=index, prev_best_pass_rate=0.0))
    return rows


def train(folder, steps, *more, script="scripts/train_grpo_multi_turn.sh", **environment):
    """Run the recipe; its output and exit code."""
    overrides = [
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=10",
        "trainer.val_before_train=False",
        "trainer.test_freq=4",
        f"trainer.rollout_data_dir={folder}/rollouts",
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "reward_model.launch_reward_fn_async=True",
        *more,
    ]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PRESET": "cpu",
        "HF_HUB_OFFLINE": "1",
        "TRAIN_FILE": str(folder / "train.parquet"),
        "VAL_FILE": str(folder / "test.parquet"),
        "OUTPUT_DIR": str(folder / "out"),
        "EVALUATOR_ARGS": "",
        "LOG_FILE": str(folder / "logs" / "train.log"),
        **environment,
    }
    command = ["bash", script, *overrides]
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def generate(model_dir):
    """Text of the merged model for one problem, greedy."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(model_dir), AutoModelForCausalLM.from_pretrained(model_dir)
    ids = tokenizer.apply_chat_template(make_rows(1)[0]["prompt"], add_generation_prompt=True, return_tensors="pt")
    out = model.generate(ids, max_new_tokens=160, do_sample=False)
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def make_problems(count, split):
    """Of MiniCode, with public tests."""
    found = [json.loads(line) for line in PROBLEMS.read_text().splitlines()]
    rows = []
    for index, problem in enumerate([row for row in found if row["split"] == split][:count]):
        tests = TestCases.parse(problem["input_output"])
        public = {"public_test_cases": TestCases(tests.inputs_K[:4], tests.outputs_K[:4]).to_json()}
        messages = first_messages(problem_instruction(problem["question"]))
        rows.append(make_row(messages, tests, index=index, tools_kwargs=public))
    return rows


def write_data(folder, train, test):
    for name, rows in (("train", train), ("test", test)):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


def dumped(folder):
    """The responses of the first step."""
    return [json.loads(line) for line in (folder / "rollouts" / "1.jsonl").read_text().splitlines()]


NOBODY_CAN_SCORE = """
from cobalt.errors import InfraError


def compute_score(data_source, solution_str, ground_truth, extra_info):
    raise InfraError("worker lost")
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_training_stops_when_nothing_can_be_scored(tmp_path):
    write_data(tmp_path, make_rows(16), make_rows(4))
    (tmp_path / "reward.py").write_text(NOBODY_CAN_SCORE)
    function = f"custom_reward_function.path={tmp_path}/reward.py"
    stopped = train(tmp_path, 8, function, "trainer.test_freq=-1", EXECUTOR="local")
    assert stopped.returncode == 3, stopped.stdout[-4000:]
    log = tmp_path / "logs" / "train.log"
    assert "INFRA FAILURE: 32 of 32" in log.read_text()
    assert "INFRA FAILURE" not in stopped.stdout
    (line,) = [line for line in stopped.stdout.splitlines() if "error:" in line]
    assert "cobalt train: error: stopped: 50% of the samples" in line and f"(log: {log})" in line
    assert "not scored 100%" in stopped.stdout
    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert [record["reward/infra"] for record in metrics] == [1, 1]
    assert all(record["critic/advantages/max"] == record["critic/advantages/min"] == 0 for record in metrics)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(1800)
def test_train_resume_merge_generate(tmp_path):
    write_data(tmp_path, make_rows(16), make_rows(4))
    first = train(tmp_path, 4, "trainer.save_freq=3")
    assert first.returncode == 0, first.stdout[-4000:]
    uninterrupted = read_metrics(tmp_path / "out" / "metrics.jsonl")[-1]
    log = tmp_path / "logs" / "train.log"
    assert "BACKEND 'cpu' IS ACTIVE" in log.read_text()
    assert "Training from scratch" in log.read_text()
    assert f"next: bash scripts/merge_checkpoint.sh {tmp_path}/out models/out" in first.stdout
    assert "s/step" in first.stdout and "pid=" not in first.stdout and " object at 0x" not in first.stdout

    # as if the last step had been interrupted
    shutil.rmtree(tmp_path / "out" / "global_step_4")
    (tmp_path / "out" / "latest_checkpointed_iteration.txt").write_text("3")
    resumed = train(tmp_path, 4, EVALUATOR_ARGS="checker=examples/checker.py:close")
    assert resumed.returncode == 0, resumed.stdout[-4000:]
    again = read_metrics(tmp_path / "out" / "metrics.jsonl")[-1]
    for name in ("response_length/mean", "reward/total", "actor/entropy", "actor/grad_norm", "actor/pg_loss"):
        assert again[name] == pytest.approx(uninterrupted[name], rel=1e-4), name
    assert "healthy; checker=checker.py:close@" in resumed.stdout
    assert "Setting global step to 3" in log.read_text()

    assert (tmp_path / "out" / "latest_checkpointed_iteration.txt").read_text() == "4"

    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert [record["step"] for record in metrics] == [1, 2, 3, 4]
    assert all(record["reward/infra"] == 0 for record in metrics)
    assert all(record["cost/responses"] == 4 * 8 and record["cost/reward_programs_run"] > 0 for record in metrics)
    assert all(
        {"reward/correct", "reward/improve", "reward/format", "reward/total"} <= record.keys() for record in metrics
    )
    assert all(record["actor/grad_norm"] >= 0 for record in metrics)  # NaN is not
    assert "val-core/code_taco_verified/acc/mean@1" in metrics[-1]

    rows = dumped(tmp_path)
    assert len(rows) == 4 * 8
    assert all({"score", "acc", "pass_rate", "reward_total", "infra"} <= row.keys() for row in rows)
    assert any("```python" in row["output"] for row in rows)

    merge = ["bash", "scripts/merge_checkpoint.sh", tmp_path / "out", tmp_path / "model"]
    merged = subprocess.run(
        merge, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True
    )
    assert (merged.stdout, merged.stderr) == (f"{tmp_path}/model: model of step 4\n", "")
    assert "| train.parquet |" in (tmp_path / "model" / "README.md").read_text()
    assert "```python" in generate(tmp_path / "model")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("method", "ends"), [("grpo", [3]), pytest.param("verpo", [2, 3], marks=pytest.mark.ci)])
def test_an_online_recipe_trains_resumes_and_counts_its_cost(tmp_path, method, ends):
    turns, samples, problems = 3, 4, 4
    write_data(tmp_path, make_problems(16, "train"), make_problems(4, "dev"))
    overrides = (f"actor_rollout_ref.rollout.n={samples}", f"cobalt.online.turns={turns}", "trainer.test_freq=-1")
    for steps in ends:  # resuming is the same for both methods
        done = train(tmp_path, steps, *overrides, script=f"scripts/train_{method}_online.sh", EXECUTOR="local")
        assert done.returncode == 0, done.stdout[-4000:]
    assert len(ends) == 1 or "Setting global step to 2" in (tmp_path / "logs/train.log").read_text()

    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert [record["step"] for record in metrics] == [1, 2, 3]
    trajectories = problems * samples
    for record in metrics:
        assert record["reward/infra"] == 0
        assert record["actor/grad_norm"] >= 0  # NaN is not
        assert trajectories <= record["cost/responses"] <= trajectories * turns
        assert record["cost/rollout_programs_run"] > 0 and record["cost/reward_programs_run"] > 0
        assert record["cost/rollout_executor_cpu_s"] > 0 and record["cost/rollout_execution_wait_s"] >= 0
    responses = sum(record["cost/responses"] for record in metrics)
    assert 3 * trajectories < responses < 3 * trajectories * turns  # some end early, some go on
    assert any(record["actor/grad_norm"] > 0 for record in metrics)
    assert any(record["critic/advantages/max"] > 0 > record["critic/advantages/min"] for record in metrics)
    assert json.loads(training_manifest(tmp_path / "out").read_text())["config"]["cobalt"]["online"]["method"] == method

    rows = dumped(tmp_path)
    later = [row for row in rows if "Here is the execution feedback:" in row["input"]]
    assert later and all("Here is the problem" in row["input"] for row in later)
    assert len(rows) - len(later) >= trajectories
