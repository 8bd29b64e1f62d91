"""The benchmarks of a training step, and of its rollouts: what they refuse, ask for and make of the figures."""

import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from verl.utils.model import get_generation_config

from benchmarks import bench_rollout, bench_step
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


VLLM = """
import asyncio, os, subprocess, sys, types

class Settings:
    def __init__(self, **settings):
        self.given = settings

class Engine:
    @classmethod
    def from_engine_args(cls, args):
        made = cls()
        made.waits = 0.02 if "speculative_config" in args.given else 0.01
        core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(os.environ["CORES"], "a") as file:
            print(core.pid, args.given.get("attention_backend"), file=file)
        return made

    async def reset_prefix_cache(self): ...

    async def generate(self, prompt, sampling, request_id):
        await asyncio.sleep(self.waits * sampling.given["max_tokens"])
        yield types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=prompt["prompt_token_ids"])])

AsyncEngineArgs = SamplingParams = Settings
TokensPrompt = dict
for name in ("sampling_params", "v1", "v1.engine", "v1.engine.async_llm"):
    sys.modules[f"vllm.{name}"] = types.ModuleType(name)
sys.modules["vllm.sampling_params"].RequestOutputKind = types.SimpleNamespace(FINAL_ONLY=2)
sys.modules["vllm.v1.engine.async_llm"].AsyncLLM = Engine
"""


def test_engines_take_turns_with_a_steps_rollouts(tmp_path, monkeypatch, capsys):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text(VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CORES", str(tmp_path / "cores"))
    rows = [{"prompt": [{"role": "user", "content": "Print. " * (1 + number % 2 * 99)}]} for number in range(8)]
    pd.DataFrame(rows).to_parquet(tmp_path / "data")
    common = {"model": MODEL, "train_file": tmp_path / "data", "prompts": 2, "samples": 3, "max_tokens": 5}
    config = bench_rollout.RolloutBenchConfig(**common, max_prompt=60, rounds=1, output=tmp_path / "figures.json")
    bench_rollout.main(replace(config, contenders=("verl", "ngram-3", "group")))
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| verl", "| ngram-3", "| group"]
    cores = dict(line.split() for line in (tmp_path / "cores").read_text().splitlines())
    assert sorted(cores.values()) == ["CUSTOM", "None", "None"]
    deadline = time.monotonic() + 60
    while any(Path("/proc", pid, "exe").exists() for pid in cores):
        assert time.monotonic() < deadline, "what vLLM started outlives the command"
        time.sleep(0.05)
    assert float(lines[1].split(" | ")[-1].rstrip(" |")) < 1  # times as fast
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {len(figures[name]) for name in ("verl", "ngram-3")} == {1}
    assert figures["verl"][0]["longest"] < 60  # the long prompts are left out
    with pytest.raises(InputError, match="4 prompts of at most 60 tokens"):
        bench_rollout.rounds_of(replace(config, rounds=2))
    with pytest.raises(InputError, match="--contenders ngram: choose among verl, ids, ngram-K, v2 and group"):
        bench_rollout.main(replace(config, contenders=("ngram",)))
