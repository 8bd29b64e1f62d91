"""The benchmark of a training step: what it refuses, how it lengthens a step, and what it makes of the metrics."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from verl.utils.model import get_generation_config

from benchmarks import bench_step
from cobalt.errors import InputError, SetupError
from cobalt.prompts import prompt_tokens
from cobalt.records import write_jsonl

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "assets/minicoder"
POLICY = "actor_rollout_ref"


def make_config(folder, **changes):
    return bench_step.StepBenchConfig(**{"model": MODEL, "train_file": folder / "data", "gpus": 1, **changes})


def metrics_of_a_step(response, **seconds):
    step = dict.fromkeys([*bench_step.PHASES.values(), "perf/mfu/actor", bench_step.MEMORY], 1.0)
    return {**step, "prompt_length/mean": 50.2, "response_length/mean": response, **seconds}


def test_files_that_are_missing_are_named(tmp_path):
    for model, data in (("nowhere", "README.md"), ("assets/minicoder", "nowhere.parquet")):
        config = make_config(tmp_path, model=ROOT / model, train_file=ROOT / data, output_dir=tmp_path / "out")
        with pytest.raises(InputError, match=r"nowhere.*no such file"):
            bench_step.main(config)
    assert not (tmp_path / "out").exists()


def test_a_response_of_a_whole_step_ends_nowhere(tmp_path):
    model = tmp_path / "minicoder"
    shutil.copytree(MODEL, model)
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0}))
    for _ in range(2):  # a second run finds the folder of the first
        folder = bench_step.endless(model, tmp_path / "endless")
    assert {file.name for file in folder.iterdir()} == {file.name for file in model.iterdir()}
    read = get_generation_config(str(folder))  # as veRL's rollouts do
    assert (read.eos_token_id, read.pad_token_id) == (1048, 0)
    assert json.loads((model / "generation_config.json").read_text())["eos_token_id"] == 2


def test_prompts_are_lengthened_and_differ(tmp_path, minicoder):
    rows = [{"prompt": [{"role": "user", "content": f"Print {number}."}]} for number in range(9)]
    pd.DataFrame(rows).to_parquet(tmp_path / "data")
    made = bench_step.long_prompts(make_config(tmp_path, prompt=400, prompts=2, steps=3))
    texts = [prompt[-1]["content"] for prompt in made["prompt"]]
    assert len(set(texts)) == 6 and all(text.endswith(f"Print {number}.") for number, text in enumerate(texts))
    assert all(300 < len(prompt_tokens(minicoder, prompt)) <= 420 for prompt in made["prompt"])


@pytest.mark.parametrize("settings", ["ours", "verl-triton"])
def test_a_run_has_the_settings_asked_for_and_its_first_step_does_not_count(tmp_path, monkeypatch, settings):
    commands = []

    def run(command, env, **_options):
        commands.append(command)
        write_jsonl(Path(env["OUTPUT_DIR"], "metrics.jsonl"), [{"step": n, "timing_s/step": n} for n in (1, 2, 3)])
        return SimpleNamespace(returncode=len(commands) - 1)

    monkeypatch.setattr(subprocess, "run", run)
    folder = tmp_path / "run"
    folder.mkdir()
    arguments = make_config(tmp_path, overrides=("a=1",)), settings, MODEL, tmp_path / "data", folder
    assert [step["step"] for step in bench_step.train(*arguments)] == [2, 3]
    assert commands[0][-1] == "a=1"
    backend = f"{POLICY}.model.fused_kernel_options.impl_backend=triton"
    own = {"cobalt.share_prompts=false", "cobalt.loss_weights=tokens", backend}
    assert own & set(commands[0]) == (set() if settings == "ours" else own)
    with pytest.raises(SetupError, match=f"settings '{settings}' ended with 1: see .*run.log"):
        bench_step.train(*arguments)


def test_shorter_responses_are_no_figures(tmp_path):
    config = make_config(tmp_path, response=100)
    assert bench_step.figures(config, metrics_of_a_step(100.0))["prompt tokens"] == 50
    with pytest.raises(SetupError, match="responses had 17 tokens on average, not 100"):
        bench_step.figures(config, metrics_of_a_step(17.1))


def test_the_table_compares_ours_with_the_best_of_the_others(tmp_path):
    config = make_config(tmp_path, response=100)
    steps = {"ours": (2.0, 3.0, 2.5), "verl-torch": (9.0,), "verl-triton": (5.0,)}
    update = bench_step.PHASES["update"]
    results = {
        name: [bench_step.figures(config, metrics_of_a_step(100.0, **{update: value})) for value in values]
        for name, values in steps.items()
    }
    (row,) = [line for line in bench_step.table(results).splitlines() if line.startswith("| update |")]
    assert row == "| update | 2.5 [2, 3] | 9 [9, 9] | 5 [5, 5] | 2.00 |"
