"""The online recipes on CPU: three steps on MiniCode problems, with a checkpoint, resumed from it."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cpu_loop import train

from cobalt.prompts import first_messages, problem_instruction
from cobalt.records.training_run import read_metrics, training_manifest
from studies.minicode.problems import sample_problem

TURNS, SAMPLES, PROBLEMS = 3, 4, 4
FIRST_STEPS, ALL_STEPS = 2, 3


def make_row(problem, index):
    return {
        "data_source": "code_taco_verified",
        "prompt": first_messages(problem_instruction(problem.statement)),
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": (problem.public + problem.hidden).to_json()},
        "extra_info": {"index": index, "tools_kwargs": {"public_test_cases": problem.public.to_json()}},
    }


def write_data(folder):
    for name, split, count in (("train", "train", 16), ("test", "dev", 4)):
        random_ = random.Random(0)
        rows = [make_row(sample_problem(random_, split), index) for index in range(count)]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


def train_online(script, folder, steps):
    overrides = (f"actor_rollout_ref.rollout.n={SAMPLES}", f"cobalt.online.turns={TURNS}", "trainer.test_freq=-1")
    done = train(folder, steps, *overrides, script=script, EXECUTOR="local")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", ["grpo", "verpo"])
def test_a_recipe_trains_resumes_and_counts_its_cost(tmp_path: Path, method):
    write_data(tmp_path)
    script = f"scripts/train_{method}_online.sh"
    train_online(script, tmp_path, FIRST_STEPS)
    train_online(script, tmp_path, ALL_STEPS)
    assert f"Setting global step to {FIRST_STEPS}" in (tmp_path / "logs/train.log").read_text()

    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert [record["step"] for record in metrics] == [1, 2, 3]
    trajectories = PROBLEMS * SAMPLES
    for record in metrics:
        assert record["reward/infra"] == 0
        assert record["actor/grad_norm"] >= 0  # NaN is not
        assert trajectories <= record["cost/responses"] <= trajectories * TURNS
        assert record["cost/rollout_programs_run"] > 0 and record["cost/reward_programs_run"] > 0
        assert record["cost/rollout_executor_cpu_s"] > 0 and record["cost/rollout_execution_wait_s"] >= 0
    responses = sum(record["cost/responses"] for record in metrics)
    assert ALL_STEPS * trajectories < responses < ALL_STEPS * trajectories * TURNS  # some end early, some go on
    assert any(record["actor/grad_norm"] > 0 for record in metrics)
    assert any(record["critic/advantages/max"] > 0 > record["critic/advantages/min"] for record in metrics)
    assert json.loads(training_manifest(tmp_path / "out").read_text())["config"]["cobalt"]["online"]["method"] == method

    dumped = [json.loads(line) for line in (tmp_path / "rollouts" / "1.jsonl").read_text().splitlines()]
    later = [row for row in dumped if "Here is the execution feedback:" in row["input"]]
    assert later and all("Here is the problem" in row["input"] for row in later)
    assert len(dumped) - len(later) >= trajectories
