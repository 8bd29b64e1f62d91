"""The benchmark of whole steps computes responses of the length that it says."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from verl.utils.model import get_generation_config

from cobalt.errors import InputError, SetupError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_recipe

    yield bench_recipe
    sys.modules.pop("bench_recipe")


def test_a_response_ends_nowhere(bench, tmp_path):
    model = tmp_path / "minicoder"
    shutil.copytree(ROOT / "assets/minicoder", model)
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0}))
    for _ in range(2):  # a second run finds the folder of the first
        folder = bench.endless(model, tmp_path / "endless")
    assert {file.name for file in folder.iterdir()} == {file.name for file in model.iterdir()}
    read = get_generation_config(str(folder))  # as veRL's rollouts do
    assert (read.eos_token_id, read.pad_token_id) == (1048, 0)
    assert json.loads((model / "generation_config.json").read_text())["eos_token_id"] == 2


def test_shorter_responses_are_no_figures(bench, tmp_path):
    config = bench.RecipeBenchConfig(model=ROOT / "assets/minicoder", train_file=tmp_path, response=100)
    step = dict.fromkeys(bench.PHASES.values(), 1.0) | {"perf/mfu/actor": 0.1, "perf/max_memory_allocated_gb": 1.0}
    found = bench.figures(config, "ours", step | {"prompt_length/mean": 50.2, "response_length/mean": 100.0})
    assert (found["prompt"], found["response"]) == (50, 100)
    with pytest.raises(SetupError, match="responses had 17 tokens on average, not 100"):
        bench.figures(config, "ours", step | {"prompt_length/mean": 50.2, "response_length/mean": 17.1})


def test_files_that_are_missing_are_named(bench, tmp_path):
    for model, data in (("nowhere", "README.md"), ("assets/minicoder", "nowhere.parquet")):
        config = bench.RecipeBenchConfig(model=ROOT / model, train_file=ROOT / data, output_dir=tmp_path / "out")
        with pytest.raises(InputError, match=r"nowhere.*no such file"):
            bench.main(config)
    assert not (tmp_path / "out").exists()
