"""The whole study on a host of two GPUs, with a recorder in place of every program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from research.real.problems import chosen

ROOT = Path(__file__).parents[2]
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
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
    HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Healthy).serve_forever()
if os.environ.get("FAIL_ON") and os.environ["FAIL_ON"] in " ".join(words):
    sys.exit(1)
if "-o" in words:
    source, out = (Path(words[words.index(flag) + 1]) for flag in ("-i", "-o"))
    out.write_text(source.read_text())
if "--local_dir" in words:
    folder = Path(words[words.index("--local_dir") + 1])
    folder.mkdir(exist_ok=True)
    (folder / "train.parquet").touch()
"""


@pytest.fixture
def study(tmp_path):
    """A function that runs it: its outcome, and the calls of this run, the GPU of each first."""
    data, recorder, calls = tmp_path / "data", tmp_path / "python", tmp_path / "calls"
    data.mkdir()
    (data / "useful.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(10)))
    recorder.write_text(RECORDER.format(python=sys.executable))
    recorder.chmod(0o755)
    (data / "test.jsonl").touch()

    def run(*arguments, **knobs):
        calls.write_text("")
        knobs = {
            "MODEL": "assets/minicoder",
            "DATA": data,
            "OUT": tmp_path / "out",
            "PYTHON": recorder,
            "CALLS": calls,
            **knobs,
        }
        command = ["bash", ROOT / "research/real/study.sh", *arguments]
        environment = {**os.environ, **{name: str(value) for name, value in knobs.items()}}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return done, [json.loads(line) for line in calls.read_text().splitlines()]

    return run


def of_script(calls, name):
    return [call for call in calls if name in " ".join(call)]


def test_all_arms_learn_from_what_all_servers_collected_and_a_second_run_collects_nothing(study, tmp_path):
    done, calls = study("--gpu_seconds", "350")
    assert done.returncode == 0, done.stderr
    assert sorted(call[0] for call in of_script(calls, "api_server")) == ["0", "0", "1", "1"]
    assert len((tmp_path / "data" / "collect.jsonl").read_text().splitlines()) == 10
    arms = of_script(calls, "study.py")
    assert {call[0] for call in arms} == {"0", "1"} and all(
        "--gpu_seconds 350 --arm" in " ".join(call) for call in arms
    )
    names = [" ".join(call[call.index("--arm") :]) for call in arms]
    assert len(names) == len(set(names)) == 8

    done, calls = study(ARMS="--arm base, --arm dpo --seed 4")
    assert done.returncode == 0 and len(calls) == len(of_script(calls, "study.py")) == 2


def test_a_failed_arm_stops_no_other_and_a_failed_collection_stops_all(study):
    done, calls = study(FAIL_ON="run_multi_turn_vllm.py")
    assert done.returncode == 1 and not of_script(calls, "preproc") + of_script(calls, "study.py")
    done, calls = study(FAIL_ON="--arm dpo", ARMS="--arm dpo, --arm base", GPUS="0", SIDE_BY_SIDE="1")
    assert "failed: --arm dpo" in done.stdout and len(of_script(calls, "study.py")) == 2


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
