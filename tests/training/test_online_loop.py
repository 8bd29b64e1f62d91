"""The online recipes on CPU: three steps with a checkpoint, resumed from it, on problems that MiniCoder mostly fails."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cpu_loop import make_rows, train

from cobalt.records.training_run import read_metrics, training_manifest

TURNS, SAMPLES, PROBLEMS = 3, 4, 4
FIRST_STEPS, ALL_STEPS = 2, 3


def write_data(folder):
    """Problems without a previous program, each with its first two tests public."""
    for name, count in (("train", 16), ("test", 4)):
        rows = make_rows(2 * count)[::2]
        for row in rows:
            tests = json.loads(row["reward_model"]["ground_truth"])
            public = json.dumps({name: values[:2] for name, values in tests.items()})
            row["extra_info"]["tools_kwargs"] = {"public_test_cases": public}
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


def train_online(script, folder, steps, *more, **environment):
    overrides = (f"actor_rollout_ref.rollout.n={SAMPLES}", f"cobalt.online.turns={TURNS}", "trainer.test_freq=-1")
    done = train(folder, steps, *overrides, *more, script=script, **environment)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(400)
@pytest.mark.parametrize("method", ["grpo", "verpo"])
def test_a_recipe_trains_resumes_and_counts_its_cost(tmp_path: Path, method):
    write_data(tmp_path)
    script = f"scripts/train_{method}_online.sh"
    executor = "serve" if method == "grpo" else "local"
    train_online(script, tmp_path, FIRST_STEPS, EXECUTOR=executor)
    assert f"Setting global step to {FIRST_STEPS}" in train_online(script, tmp_path, ALL_STEPS, EXECUTOR=executor)

    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert [record["step"] for record in metrics] == [1, 2, 3]
    trajectories = PROBLEMS * SAMPLES
    for record in metrics:
        assert record["reward/infra"] == 0
        assert record["actor/grad_norm"] >= 0  # NaN is not
        assert trajectories < record["cost/responses"] < trajectories * TURNS  # some end early, some go on
        assert record["cost/rollout_programs_run"] > 0 and record["cost/reward_programs_run"] > 0
        assert record["cost/rollout_executor_cpu_s"] > 0 and record["cost/rollout_execution_wait_s"] >= 0
    assert any(record["actor/grad_norm"] > 0 for record in metrics)
    assert any(record["critic/advantages/max"] > 0 > record["critic/advantages/min"] for record in metrics)
    assert json.loads(training_manifest(tmp_path / "out").read_text())["config"]["cobalt"]["online"]["method"] == method

    dumped = [json.loads(line) for line in (tmp_path / "rollouts" / "1.jsonl").read_text().splitlines()]
    later = [row for row in dumped if "Here is the execution feedback:" in row["input"]]
    assert later and all("Here is the problem" in row["input"] for row in later)
    assert len(dumped) - len(later) >= trajectories
