"""The recipes on CPU: a few steps, a checkpoint, resuming from it, and a merged model that generates."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import wait_for

from cobalt.prompts import FEEDBACK_MARKER, feedback_message, first_messages, load_prompts, problem_instruction
from cobalt.records import TestCases
from cobalt.records.training_run import read_metrics, training_manifest
from cobalt.training.settings import VERL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
PROBLEMS = ROOT / "assets" / "minicode" / "problems.jsonl"
PROMPTS = load_prompts(str(ROOT / "assets" / "minicode" / "prompts.json"))
"""The wording that MiniCoder knows."""


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
        messages = first_messages(problem_instruction(question, prompts=PROMPTS), PROMPTS)
        if index % 2:
            answer = "<think>\nsum\n</think>\n```python\nprint(sum(map(int, input().split())))\n```"
            feedback = f"Input:\n{inputs[0]}\nProgram's Output:\n0\nExpected Output:\n{tests.outputs_K[0]}"
            messages += [{"role": "assistant", "content": answer}, feedback_message(feedback, PROMPTS)]
        rows.append(make_row(messages, tests, split="train", index=index, prev_best_pass_rate=0.0))
    return rows


def recipe(folder, steps, *more, script="scripts/train_grpo_multi_turn.sh", **environment):
    """Command and environment of a recipe on the CPU, with small batches."""
    overrides = [
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=10",
        "trainer.val_before_train=False",
        "trainer.test_freq=2",
        "trainer.save_freq=1",
        f"trainer.rollout_data_dir={folder}/rollouts",
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
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
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return {"args": ["bash", script, *overrides], "cwd": ROOT, "env": environment, "text": True, **streams}


def train(folder, steps, *more, **settings):
    """Run the recipe; its output and exit code."""
    return subprocess.run(**recipe(folder, steps, *more, **settings))


def trained(folder, steps, *more, **settings):
    """What the recipe printed. It has to succeed."""
    done = train(folder, steps, *more, **settings)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def generate(model_dir):
    """Text of the merged model for one problem, greedy."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(model_dir), AutoModelForCausalLM.from_pretrained(model_dir)
    settings = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    prompt = tokenizer.apply_chat_template(make_rows(1)[0]["prompt"], **settings)
    out = model.generate(**prompt, max_new_tokens=160, do_sample=False)
    return tokenizer.decode(out[0, prompt.input_ids.shape[1] :], skip_special_tokens=True)


def make_problems(count, split):
    """Of MiniCode, with public tests."""
    found = [json.loads(line) for line in PROBLEMS.read_text().splitlines()]
    rows = []
    for index, problem in enumerate([row for row in found if row["split"] == split][:count]):
        tests = TestCases.parse(problem["input_output"])
        public = {"public_test_cases": TestCases(tests.inputs_K[:4], tests.outputs_K[:4]).to_json()}
        messages = first_messages(problem_instruction(problem["question"], prompts=PROMPTS), PROMPTS)
        rows.append(make_row(messages, tests, index=index, tools_kwargs=public))
    return rows


def write_data(folder, train, test):
    for name, rows in (("train", train), ("test", test)):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


def dumped(folder):
    """The responses of the first step."""
    return [json.loads(line) for line in (folder / "rollouts" / "1.jsonl").read_text().splitlines()]


def manifest_of(folder):
    return json.loads(training_manifest(folder / "out").read_text())


def tensors(checkpoint):
    """Checksums of its tensors' bytes."""
    with zipfile.ZipFile(checkpoint) as file:
        return {entry.filename: entry.CRC for entry in file.infolist() if "/data/" in entry.filename}


def refuse_broken_steps(metrics, steps):
    assert [record["step"] for record in metrics] == list(range(1, steps + 1))
    for record in metrics:
        assert record["reward/infra"] == 0
        assert record["actor/grad_norm"] >= 0  # NaN is not
        assert record["cost/prompt_tokens"] > 0 and record["cost/response_tokens"] > 0
        assert 0 <= record["timing_s/judging"] < record["timing_s/step"]


NOBODY_CAN_SCORE = """
from cobalt.errors import InfraError


def compute_score(data_source, solution_str, ground_truth, extra_info):
    raise InfraError("worker lost")
"""


def test_training_stops_when_nothing_can_be_scored(tmp_path):
    write_data(tmp_path, make_rows(16), make_rows(4))
    (tmp_path / "reward.py").write_text(NOBODY_CAN_SCORE)
    function = f"reward.custom_reward_function.path={tmp_path}/reward.py"
    stopped = train(tmp_path, 8, function, "trainer.test_freq=-1", EXECUTOR="local")
    assert stopped.returncode == 3, stopped.stdout[-4000:]
    log = tmp_path / "logs" / "train.log"
    assert "INFRA FAILURE" in log.read_text() and "INFRA FAILURE" not in stopped.stdout
    (line,) = [line for line in stopped.stdout.splitlines() if "error:" in line]
    assert "cobalt train: error: stopped: 50% of the samples" in line and f"(log: {log})" in line
    assert "not scored 100%" in stopped.stdout
    (first,) = read_metrics(tmp_path / "out" / "metrics.jsonl")  # the second step ended training
    assert (first["reward/infra"], first["critic/advantages/max"], first["critic/advantages/min"]) == (1, 0, 0)
    assert manifest_of(tmp_path)["status"] != "done"


@pytest.fixture(scope="module")
def bandit(tmp_path_factory):
    """Two steps of Cobalt, and the second once more, as if it had been interrupted. Folder, and what was printed.

    The first checkpoint of the second step is in ``before``.
    """
    folder = tmp_path_factory.mktemp("bandit")
    write_data(folder, make_rows(16), make_rows(4))
    first = trained(folder, 2, EXECUTOR="local")
    log, metrics = (folder / "logs/train.log").read_text(), read_metrics(folder / "out/metrics.jsonl")
    (folder / "out" / "global_step_2").rename(folder / "before")
    (folder / "out" / "latest_checkpointed_iteration.txt").write_text("1")
    resumed = trained(folder, 2, EVALUATOR_ARGS="checker=examples/checker.py:close")
    return SimpleNamespace(folder=folder, first=first, log=log, metrics=metrics, resumed=resumed)


@pytest.mark.ci
def test_the_console_of_a_training_shows_steps_and_what_comes_next(bandit):
    assert "BACKEND 'cpu' IS ACTIVE" in bandit.log and "Training from scratch" in bandit.log
    assert f"next: bash scripts/merge_checkpoint.sh {bandit.folder}/out models/out" in bandit.first
    assert "s/step" in bandit.first and "pid=" not in bandit.first and " object at 0x" not in bandit.first


@pytest.mark.ci
def test_metrics_manifest_and_responses_of_a_training(bandit):
    refuse_broken_steps(bandit.metrics, 2)
    for record in bandit.metrics:
        assert record["cost/responses"] == 4 * 8
        assert {"reward/correct", "reward/improve", "reward/format", "reward/total"} <= record.keys()
    assert "val-core/code_taco_verified/acc/mean@1" in bandit.metrics[-1]
    manifest = manifest_of(bandit.folder)
    assert (manifest["status"], manifest["counts"]["steps"], manifest["versions"]["verl"]) == ("done", 2, VERL)
    rows = dumped(bandit.folder)
    assert len(rows) == 4 * 8 and any("```python" in row["output"] for row in rows)
    assert sum(row["score"] for row in rows) / len(rows) == pytest.approx(bandit.metrics[0]["reward/total"], abs=1e-4)


@pytest.mark.ci
def test_a_resumed_training_repeats_the_lost_step(bandit):
    metrics = read_metrics(bandit.folder / "out/metrics.jsonl")
    refuse_broken_steps(metrics, 2)
    again, before = (
        {name: value for name, value in record.items() if "timing" not in name and "perf/" not in name}
        for record in (metrics[-1], bandit.metrics[-1])
    )
    assert len(again) > 50 and again == before
    shards = [path.relative_to(bandit.folder / "before") for path in bandit.folder.glob("before/actor/[mo]*.pt")]
    assert len(shards) == 2 * 2  # of the model and of the optimizer, each rank's
    for shard in shards:
        assert tensors(bandit.folder / "before" / shard) == tensors(bandit.folder / "out/global_step_2" / shard)
    assert "healthy; checker=checker.py:close@" in bandit.resumed
    assert "setting global step to 1" in (bandit.folder / "logs/train.log").read_text()
    assert (bandit.folder / "out" / "latest_checkpointed_iteration.txt").read_text() == "2"


@pytest.mark.ci
def test_a_trained_model_is_merged_and_generates(bandit, tmp_path):
    merge = ["bash", "scripts/merge_checkpoint.sh", bandit.folder / "out", tmp_path / "model"]
    environment = {**os.environ, "PYTHON": sys.executable}
    merged = subprocess.run(merge, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (merged.stdout, merged.stderr) == (f"{tmp_path}/model: model of step 2\n", "")
    assert "| train.parquet |" in (tmp_path / "model" / "README.md").read_text()
    assert "```python" in generate(tmp_path / "model")


def test_one_rank_goes_on_where_two_have_stopped(bandit, tmp_path):
    folder = shutil.copytree(bandit.folder, tmp_path / "bandit")
    shutil.rmtree(folder / "out" / "global_step_2")
    (folder / "out" / "latest_checkpointed_iteration.txt").write_text("1")
    trained(folder, 2, N_GPUS="1")
    ours, before = read_metrics(folder / "out/metrics.jsonl")[-1], bandit.metrics[-1]
    for name in ("reward/total", "response_length/mean", "actor/kl_loss", "actor/pg_loss", "actor/grad_norm"):
        assert ours[name] == pytest.approx(before[name], rel=1e-4)
    assert len(list((folder / "out/global_step_2/actor").glob("model_*.pt"))) == 1


def test_the_updates_of_a_step_are_the_same_on_one_rank_as_on_two(tmp_path):
    found = []
    for ranks in ("2", "1"):
        folder = tmp_path / ranks
        folder.mkdir()
        write_data(folder, make_rows(16), make_rows(4))
        two = ("actor_rollout_ref.actor.ppo_mini_batch_size=2", "trainer.test_freq=-1")
        trained(folder, 2, *two, EXECUTOR="local", N_GPUS=ranks)
        found.append(read_metrics(folder / "out/metrics.jsonl"))
    for ours, other in zip(*found, strict=True):
        for name in ("response_length/mean", "actor/kl_loss", "actor/pg_loss", "actor/grad_norm"):
            assert ours[name] == pytest.approx(other[name], rel=1e-3)


def kill_after_the_first_step(folder, *more, **settings):
    """``kill -9`` of a recipe once its first checkpoint is there, and then the step's metrics."""
    running = subprocess.Popen(**recipe(folder, 9, *more, **settings))
    try:
        wait_for(lambda: (folder / "out/metrics.jsonl").exists() or running.poll() is not None, seconds=900)
    finally:
        running.kill()
    assert "error" not in running.communicate()[0]


def ray_process(root, title):
    """A process of Ray among those that ``root`` has started."""
    for process in psutil.Process(root).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(f"ray::{title}"):
                return process
    raise LookupError(title)


@pytest.mark.parametrize("title", ["WorkerDict", "CobaltAgentLoopWorker", "TransferQueueController"])
def test_a_killed_process_is_named_in_one_line_and_loses_no_step(tmp_path, title):
    """veRL waits without end for its agent loops and its queue."""
    write_data(tmp_path, make_rows(16), make_rows(4))
    overrides, metrics = ("trainer.test_freq=-1",), tmp_path / "out/metrics.jsonl"
    running = subprocess.Popen(**recipe(tmp_path, 9, *overrides, EXECUTOR="local"))
    try:
        wait_for(lambda: metrics.exists() or running.poll() is not None, seconds=900)
        victim = ray_process(running.pid, title)
        victim.kill()
        printed = running.communicate(timeout=300)[0]
    finally:
        running.kill()
    told = f"cobalt train: error: process {victim.pid} ({title}) was killed"
    assert running.returncode == 1 and printed.splitlines()[-1].startswith(told), printed[-4000:]
    steps = len(read_metrics(metrics)) + 1
    trained(tmp_path, steps, *overrides, EXECUTOR="local")
    refuse_broken_steps(read_metrics(metrics), steps)


@pytest.mark.parametrize(("method", "is_killed"), [("grpo", True), ("verpo", False)])
def test_an_online_recipe_trains_resumes_and_counts_its_cost(tmp_path, method, is_killed):
    turns, samples, problems, steps = 3, 4, 4, 2
    write_data(tmp_path, make_problems(16, "train"), make_problems(4, "dev"))
    overrides = (f"actor_rollout_ref.rollout.n={samples}", f"cobalt.online.turns={turns}", "trainer.test_freq=-1")
    settings = {"script": f"scripts/train_{method}_online.sh", "EXECUTOR": "local"}
    if is_killed:
        kill_after_the_first_step(tmp_path, *overrides, **settings)
        steps = 3
    trained(tmp_path, steps, *overrides, **settings)
    assert ("setting global step to" in (tmp_path / "logs/train.log").read_text()) == is_killed

    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl")
    refuse_broken_steps(metrics, steps)
    trajectories = problems * samples
    assert all(trajectories <= record["cost/responses"] <= trajectories * turns for record in metrics)
    responses = sum(record["cost/responses"] for record in metrics)
    assert steps * trajectories < responses < steps * trajectories * turns  # some end early, some go on
    assert any(record["actor/grad_norm"] > 0 for record in metrics)
    assert any(record["critic/advantages/max"] > 0 > record["critic/advantages/min"] for record in metrics)
    manifest = manifest_of(tmp_path)
    assert (manifest["status"], manifest["config"]["cobalt"]["online"]["method"]) == ("done", method)

    rows = dumped(tmp_path)
    later = [row for row in rows if FEEDBACK_MARKER in row["input"]]
    questions = [json.loads(line)["question"] for line in PROBLEMS.read_text().splitlines()]
    assert later and all(any(question in row["input"] for question in questions) for row in later)
    assert len(rows) - len(later) >= trajectories
