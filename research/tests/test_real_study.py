"""The whole study on a host of two GPUs, with a recorder in place of every program."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cobalt.errors import InputError
from research.plans.places import StageError
from research.real import problems
from research.real.problems import chosen

ROOT = Path(__file__).parents[2]
WITHOUT_OPTIMIZER = "checkpoint.save_contents=[model]"
RECORDER = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

words = sys.argv[1:]
if words[0] == "-c":
    sys.path.insert(0, os.getcwd())
    sys.argv = words[:1] + words[2:]
    exec(words[1])
    sys.exit()
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps([os.environ.get("CUDA_VISIBLE_DEVICES", ""), *words]) + "\\n")
if "vllm.entrypoints.openai.api_server" in words:
    if "NO_MEMORY" in os.environ:
        sys.exit("(EngineCore pid=2) ValueError: Free memory\\n(APIServer pid=1) RuntimeError: See root cause above")
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
    HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Healthy).serve_forever()
if os.environ.get("FAIL_ON") and os.environ["FAIL_ON"] in " ".join(words):
    sys.exit(1)
if "-o" in words:
    source, out = (Path(words[words.index(flag) + 1]) for flag in ("-i", "-o"))
    rows = source.read_text().splitlines(keepends=True)
    killed = os.environ.get("KILL_ON", "\\n") in " ".join(words)
    out.write_text("".join(rows[:1] if killed else rows))
    if killed:
        os.kill(os.getpid(), 9)
if words[:3] == ["-m", "cobalt", "rft"]:
    (folder,) = (word.partition("=")[2].strip("'") for word in words if word.startswith("trainer.default_local_dir="))
    Path(folder, "global_step_3").mkdir(parents=True)
if "--local_dir" in words:
    folder = Path(words[words.index("--local_dir") + 1])
    folder.mkdir(exist_ok=True)
    (folder / "train.parquet").touch()
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs a command: its outcome, and what it called Python with, the GPU of each call first."""
    recorder, calls = tmp_path / "python", tmp_path / "calls"
    recorder.write_text(RECORDER.format(python=sys.executable))
    recorder.chmod(0o755)
    (tmp_path / "data").mkdir()

    def run(*command, **knobs):
        calls.write_text("")
        behind_proxy = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}  # servers here are not
        knobs = {"PYTHON": recorder, "CALLS": calls, **behind_proxy, **knobs}
        environment = {**os.environ, **{name: str(value) for name, value in knobs.items()}}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
        return done, [json.loads(line) for line in calls.read_text().splitlines()]

    return run


@pytest.fixture
def study(run, tmp_path):
    data = tmp_path / "data"
    (data / "useful.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(10)))
    (data / "test.jsonl").touch()
    usual = {"MODEL": "assets/minicoder", "DATA": data, "OUT": tmp_path / "out"}
    return lambda *arguments, **knobs: run("bash", "research/real/study.sh", *arguments, **{**usual, **knobs})


def of_script(calls, name):
    return [call for call in calls if name in " ".join(call)]


def test_all_arms_learn_from_what_all_servers_collected_and_a_second_run_collects_nothing(study, tmp_path):
    done, calls = study("--gpu_seconds", "350")
    assert done.returncode == 0, done.stderr
    assert sorted(call[0] for call in of_script(calls, "api_server")) == ["0", "0", "1", "1"]
    assert len((tmp_path / "data" / "collect.jsonl").read_text().splitlines()) == 10
    judging = [call for name in ("run_multi_turn_vllm", "eval_multi_turn") for call in of_script(calls, name)]
    sandboxes = {int(call[call.index("--executor_args") + 1].removeprefix("workers=")) for call in judging}
    assert len(judging) == 8 and sandboxes == {max(1, len(os.sched_getaffinity(0)) // 4)}, (
        "all parts together have one for each core"
    )
    arms = of_script(calls, "study.py")
    assert {call[0] for call in arms} == {"0", "1"} and all(
        "--gpu_seconds 350 --arm" in " ".join(call) for call in arms
    )
    assert all(call[call.index("--executor_args") + 1].startswith("workers=") for call in arms)
    names = [" ".join(call[call.index("--arm") :]) for call in arms]
    assert len(names) == len(set(names)) == 8

    done, calls = study(ARMS="--arm base, --arm dpo --seed 4")
    assert done.returncode == 0 and len(calls) == len(of_script(calls, "study.py")) == 2


def test_a_failed_arm_stops_no_other_and_a_failed_collection_stops_all(study):
    done, calls = study(FAIL_ON="run_multi_turn_vllm.py")
    assert done.returncode == 1 and not of_script(calls, "preproc") + of_script(calls, "study.py")
    done, calls = study(FAIL_ON="--arm dpo", ARMS="--arm dpo, --arm base", GPUS="0", SIDE_BY_SIDE="1")
    assert done.returncode == 1 and done.stderr == "failed: --arm dpo\n" and len(of_script(calls, "study.py")) == 2


@pytest.mark.parametrize("script", ["run_multi_turn_vllm.py", "eval_multi_turn.py", "--for dpo"])
def test_a_study_killed_within_a_stage_goes_on_with_all_conversations(study, tmp_path, script):
    assert study(KILL_ON=script, ARMS=",")[0].returncode != 0
    done, _ = study(ARMS=",")
    assert done.returncode == 0, done.stderr
    for name in ("collect", "contexts", "rft", "dpo"):
        assert len((tmp_path / "data" / f"{name}.jsonl").read_text().splitlines()) == 10


def test_of_an_arms_checkpoints_the_merged_model_stays(run, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    for name in ("rft", "dev"):
        (data / f"{name}.jsonl").touch()
    arm = [sys.executable, "research/real/study.py", "--arm", "rft", "--data", data, "--out", out, "--ask", "dev"]
    done, calls = run(*arm, "--model", "assets/minicoder")
    assert done.returncode == 0, done.stderr
    assert not (out / "rft-0" / "training" / "global_step_3").exists()
    training, merge = (call for call in calls if call[1:3] == ["-m", "cobalt"])
    assert (training[3], merge[3]) == ("rft", "merge") and {"trainer.save_freq=-1", WITHOUT_OPTIMIZER} <= {*training}
    again, calls = run(*arm, "--model", "assets/minicoder")
    assert again.returncode == 0 and not calls


def test_an_arm_is_asked_and_judged_as_its_flags_say(run, tmp_path):
    data, out, limits = tmp_path / "data", tmp_path / "out", "workers=2 cpu_limit_s=1"
    for name in ("test", "perturbed"):
        (data / f"{name}.jsonl").touch()
    arm = [sys.executable, "research/real/study.py", "--arm", "base", "--data", data, "--out", out]
    arm += ["--model", "assets/minicoder", "--samples", "3", "--executor_args", limits]
    failed, _ = run(*arm, NO_MEMORY=1)
    log = out / "base-0" / "logs" / "vllm.log"
    assert failed.returncode == 3
    assert failed.stderr.endswith(f"study.py: error: vLLM did not start: ValueError: Free memory (log: {log})\n")
    done, calls = run(*arm)
    assert done.returncode == 0, done.stderr
    asked = of_script(calls, "run_multi_turn_vllm.py")
    assert [call[call.index("-n") + 1] for call in asked] == ["3", "2"]
    judging = [*asked, *of_script(calls, "eval_multi_turn.py")]
    assert [call[call.index("--executor_args") + 1] for call in judging] == [limits] * 4


@pytest.mark.parametrize("missing", ["dev.jsonl", "rft.jsonl", "model"])
def test_an_arm_without_its_files_is_one_line(run, tmp_path, missing):
    for name in {"rft.jsonl", "dev.jsonl", "model"} - {missing}:
        (tmp_path / "data" / name).touch()
    arm = ["--arm", "rft", "--data", tmp_path / "data", "--out", tmp_path / "out", "--ask", "dev"]
    done, calls = run(sys.executable, "research/real/study.py", *arm, "--model", tmp_path / "data" / "model")
    assert done.returncode == 2 and not calls and not (tmp_path / "out").exists()
    assert done.stderr == f"study.py: error: {tmp_path / 'data' / missing}: no such file or folder\n"


def test_what_is_missing_is_one_line(study, tmp_path):
    for knobs, told in (({"MODEL": "nope"}, "MODEL=nope: no such folder"), ({"DATA": tmp_path}, "has no useful.jsonl")):
        done, calls = study(**knobs)
        assert (done.returncode, calls) == (2, []) and told in done.stderr and done.stderr.count("\n") == 1
    assert "SIDE_BY_SIDE=3" in study("--help")[0].stdout


@pytest.mark.parametrize(("size", "learned"), [("0.5b", 679), ("1.5b", 1139)])
def test_settings_are_chosen_on_problems_that_nothing_learns_from(size, learned):
    found = chosen(size)
    useful, dev, test = (set(found[name]) for name in ("useful", "dev", "test"))
    assert (len(useful), len(dev), len(test)) == (learned, 400, 893)
    assert not useful & dev and not test & (useful | dev)
    assert len({id_.partition("-")[0] for id_ in dev}) > 3  # of several sources


def test_the_shared_sets_are_imported_from_their_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "SETS", {"useful": ("train",)})
    tests = {"fn_name": "twice", "inputs": [str(n) for n in range(8)], "outputs": [str(2 * n) for n in range(8)]}
    row = {"id": "a-1", "difficulty": "mbpp", "source": "mbpp", "starter_code": "def twice(n):"}
    row |= {"question": "Write a function that gives twice the number that it is given, as a number."}
    row |= {"input_output": json.dumps(tests), "solutions": ["def twice(n): return 2 * n"]}
    archive = tmp_path / "problems.tar.xz"
    for rows, name in (([row], "train.jsonl"), ([], "train.jsonl"), ([row], "other.jsonl")):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(tmp_path / name, name)
        if name == "other.jsonl":
            with pytest.raises(InputError, match=r"--problems .*problems.tar.xz: .*train.jsonl"):
                problems.imported(archive, tmp_path / "data", "")
        elif rows:
            folder = problems.imported(archive, tmp_path / "data", "workers=1")
            (found,) = map(json.loads, (folder / "train.jsonl").read_text().splitlines())
            assert found["id"] == "a-1" and found["hidden_test_cases"]
        else:
            with pytest.raises(StageError, match=r"train\.jsonl has failed with 2"):
                problems.imported(archive, tmp_path / "data", "")
    (tmp_path / "folder" / "train.jsonl").mkdir(parents=True)
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(tmp_path / "folder" / "train.jsonl", "train.jsonl")
    with pytest.raises(InputError, match=r"problems.tar.xz: train.jsonl is no file"):
        problems.imported(archive, tmp_path / "data", "")
    whole = archive.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"none"):
        archive.write_bytes(damaged)
        with pytest.raises(InputError, match=r"--problems .*problems.tar.xz: "):
            problems.imported(archive, tmp_path / "data", "")
