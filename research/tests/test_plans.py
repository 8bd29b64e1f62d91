"""The studies of many policies: which commands they call, in which order, once each; here those only write it down."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = ("FAIL_ON", "HANG_ON", "HANG_TILL", "GPUS")
"""Variables for the recorders; the other knobs are flags."""
TRAIN = "cobalt train --log"
RAY = """#!/usr/bin/env bash
[[ $* != start* ]] || { echo "Ray runtime started." && exec sleep 60; }
"""
SERVE = """#!/usr/bin/env bash
echo "serve $*" >>"$CALLS"
[[ -z ${HANG_ON:-} || "serve $*" != *"$HANG_ON"* ]] || exec -a "$0" sleep 600
"""
PYTHON = """#!/usr/bin/env bash
[[ $* != *device_count* ]] || { echo "${GPUS:-8 1}"; exit; }
[[ $1 != -c || $* == *"import serve"* ]] || exec @REAL@ "$@"
[[ "$2 $3" != "research study" ]] || exec @REAL@ "$@"
echo "$*" >>"$CALLS"
[[ $* != *--services_fds* ]] || { echo start >&5 && read -r _ <&4; }
[[ -z ${FAIL_ON:-} || $* != *"$FAIL_ON"* ]] || exit 1
if [[ -n ${HANG_ON:-} && $* == *"$HANG_ON"* ]]; then
  [[ -n ${HANG_TILL:-} ]] || exec -a "$0" sleep 60
  for _ in {1..600}; do grep -qF -- "$HANG_TILL" "$CALLS" && break; sleep 0.1; done
fi
[[ $* != *"report cost"* ]] || echo '{"in_all": {"GPU-s": 445.5, "responses": 54720}}' >"${@: -1}"
"""


@pytest.fixture
def study(tmp_path):
    """A function that runs a study with recorders in place of programs: its outcome, and the calls of this run."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    texts = {"ray": RAY, "serve": SERVE, "python": PYTHON.replace("@REAL@", sys.executable)}
    for name, text in texts.items():
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)

    def run(name, *arguments, kill_at=None, signal_number=signal.SIGTERM, **knobs):
        calls = tmp_path / f"calls-{len(list(tmp_path.glob('calls-*')))}"  # who is left of an earlier run writes there
        calls.write_text("")
        stand_ins = {key: knobs.pop(key) for key in STAND_INS if key in knobs}
        inherited = {key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "EVALUATOR_ARGS")}
        environment = {**inherited, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHON": "python", **stand_ins}
        environment |= {"CALLS": str(calls), "RAY_TMPDIR": str(tmp_path)}
        knobs = {
            "output_dir": str(tmp_path / "run"),
            **({} if name == "minicoder" else {"size": "cpu", "gpus": ""}),
            **knobs,
        }
        flags = [word for flag, value in knobs.items() for word in (f"--{flag}", *value.split())]
        command = [sys.executable, "-m", "research", "study", name, *flags, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)
        if kill_at is not None:
            wait_for(lambda: kill_at in calls.read_text())
            process.send_signal(signal_number)
        output, errors = process.communicate(timeout=240)
        done = subprocess.CompletedProcess(command, process.returncode, output, errors)
        return done, [line.replace(f"{tmp_path}/run/", "") for line in calls.read_text().splitlines()]

    return run


def trainings(calls):
    """By the name of the policy."""
    found = [call for call in calls if TRAIN in call]
    by_name = {re.search(r"default_local_dir='([^']*)'", call)[1]: call for call in found}
    assert len(by_name) == len(found)
    return by_name


def at_work(folder):
    """The processes that hold a folder of results."""
    file = str(folder / "taken" / "at_work")
    found = psutil.process_iter(["open_files"])
    return [process.pid for process in found if file in [opened.path for opened in process.info["open_files"] or []]]


def one(calls, *parts):
    (call,) = [call for call in calls if all(part in call for part in parts)]
    return call


def test_each_arm_is_trained_as_what_it_is(study):
    arms = "cobalt single_turn ft_cobalt grpo_online verpo_online augmented other_reference"
    done, calls = study("paper", arms=arms, hacked="cobalt augmented", budget="gpu_seconds", reference="examples")
    assert done.returncode == 0, done.stderr
    trained = trainings(calls)
    found = {name[:-2]: re.search(r"\+recipe=(\w+).*data.train_files='(.*?)/", call) for name, call in trained.items()}
    assert {arm: match.groups() for arm, match in found.items()} == {
        "cobalt": ("multi_turn", "parquet-contexts-cobalt"),
        "single_turn": ("single_turn", "parquet-problems"),
        "ft_cobalt": ("multi_turn", "parquet-ft_cobalt-0.contexts"),
        "grpo_online": ("grpo_online", "parquet-problems"),
        "verpo_online": ("verpo_online", "parquet-problems"),
        "augmented": ("multi_turn", "parquet-contexts-swapped-0.3"),
        "other_reference": ("multi_turn", "parquet-contexts-other"),
    }
    for name, call in trained.items():
        assert "data.val_files='parquet-problems/test.parquet'" in call and "cobalt.seed=0" in call
        assert ("cobalt.budget={gpu_seconds: 445.5}" in call) == ("online" in name)

    # of the fine-tuned policy: trajectories, start, bill
    assert "--model single_turn-0/model" in one(calls, "run_single_turn", "-o ft_cobalt-0.train.turn0.jsonl")
    assert "model.path='single_turn-0/model'" in trained["ft_cobalt-0"]
    bill = one(calls, "report cost", "--output ft_cobalt-0.cost.json")
    assert "--collection ft_cobalt-0.train.turn0.jsonl" in bill and "--earlier single_turn-0.cost.json" in bill
    assert "--collection" not in one(calls, "report cost", "--output grpo_online-0.cost.json")

    assert "--model examples " in one(calls, "run_single_turn", "-o train-other.turn0.jsonl")
    assert "--input_file train-other.jsonl" in one(calls, "--output_file contexts-other.jsonl")
    wrong = one(calls, "--output_file contexts-swapped-0.3.jsonl")
    assert "--perturbed_file train-ptb-swapped.jsonl --perturbed_ratio 0.3" in wrong
    assert "train-ptb-swapped.jsonl" in one(calls, "report cost", "--output augmented-0.cost.json")

    report = one(calls, "research report --files")
    for kind in ("clean", "shifted", "control", "cost", "log"):
        assert f"Cobalt:{kind}=" in report and f"VeRPO-MT:{kind}=" in report
    perturbed = set(re.findall(r"--files | ([^:]+):perturbed=", report)) - {""}
    assert perturbed == {"base", "Cobalt", "Cobalt + perturbation"}


def test_the_bound_is_measured_along_trainings_and_in_fp32(study):
    done, calls = study("theory", arms="kl+1e-4 kl+1e-1", after="2 4 9", steps="6")
    assert done.returncode == 0, done.stderr
    for name, call in trainings(calls).items():
        assert f"kl_loss_coef={name[3:7]}" in call and "trainer.save_freq=2" in call
    trained = [f"kl+1e-{coefficient}-0-step-{step}" for coefficient in (4, 1) for step in (2, 4, 6)]
    policies = ["base", *trained]
    for name in policies:
        model = "assets/minicoder" if name == "base" else f"{name}/model"
        measured = one(calls, "theory measure", f"-o theory/{name}.jsonl")
        assert f"--policy {model} --reference assets/minicoder --contexts base.jsonl --own {name}.jsonl" in measured
        sampled = [one(calls, f"-o {name}.{part}.jsonl") for part in ("turn0", "turns")]
        assert all(f"--model {model} " in call and "--temperature 1 --top_p 1 --fp32" in call for call in sampled)
    merged = one(calls, "cobalt merge", "kl+1e-4-0-step-4/model")
    assert "--checkpoint_dir kl+1e-4-0 " in merged and merged.endswith("--step 4")
    assert "--temperature" not in one(calls, "-o train.turns.jsonl")
    measured = [call for call in calls if "theory measure" in call]
    order = [next(place for place, call in enumerate(measured) if f"/{name}.jsonl" in call) for name in trained]
    assert order == [3, 5, 1, 4, 6, 2], "the last steps of all trainings come first, then from the first on"
    assert one(calls, "theory report").endswith(" ".join(f"theory/{name}.jsonl" for name in policies) + " -o report")


def test_vllm_serves_each_policy_and_nothing_while_one_is_trained(study):
    knobs = {"engine": "vllm", "engine_args": "tensor_parallel_size=2 num_replicas=3", "arms": "cobalt single_turn"}
    done, calls = study("paper", **knobs)
    assert done.returncode == 0, done.stderr
    assert not [call for call in calls if "--engine" in call or "--batch_size" in call]
    served, models = "", []
    for call in calls:
        if "serve run" in call and "vllm_engine_actor" in call:
            assert not served and call.endswith(" tensor_parallel_size=2 num_replicas=3")
            served = re.search(r"model=(\S+)", call)[1]
            models.append(served)
        elif "serve.delete" in call:
            served = ""
        elif "run_single_turn" in call or "run_multi_turn" in call:
            assert f"--model {served} " in call
        elif TRAIN in call:
            assert not served
    assert models == ["assets/minicoder", "cobalt-0/model", "single_turn-0/model"]
    assert "--collection_gpus 6 " in one(calls, "report cost", "--output cobalt-0.cost.json")


def test_missing_gpus_are_told_before_anything_starts(study, tmp_path):
    done, calls = study("paper", size="gpu", GPUS="1 1", gpus="0 1", engine_args="tensor_parallel_size=2")
    assert (done.returncode, calls, list(tmp_path.glob("run*"))) == (3, [], [])
    assert "error: --preset one-gpu-vllm with --engine vllm needs 2 GPUs, and 1 are in --gpus 0" in done.stderr


def test_a_second_run_does_what_is_left(study, tmp_path):
    first, before = study("paper", FAIL_ON="single_turn-0.turns.jsonl --model")
    assert first.returncode == 1
    second, after = study("paper")
    assert second.returncode == 0, second.stderr
    assert list(trainings(before)) == ["cobalt-0", "single_turn-0"]
    assert list(trainings(after)) == ["ft_cobalt-0", "grpo_online-0"]
    finished = [call for call in before if "-o " in call and "single_turn-0.turns.jsonl" not in call]
    assert finished and not set(finished) & set(after)
    third, nothing = study("paper")
    assert third.returncode == 0
    assert [call.split()[0] for call in nothing] == ["-m"]
    assert "policy: 4 done, 0 left" in third.stdout


def test_a_failure_stops_only_what_needs_it_and_is_made_up_for(study, tmp_path):
    arms = "single_turn cobalt ft_cobalt grpo_online verpo_online"
    knobs = {"arms": arms, "budget": "responses", "gpus": "0 0 0"}  # the online arms then need cobalt
    slow = {"HANG_ON": "grpo_online-0/train.log", "HANG_TILL": "verpo_online-0/train.log"}
    first, before = study("paper", FAIL_ON="single_turn-0/train.log", **slow, **knobs)
    assert first.returncode == 1
    log = rf"{tmp_path}/run/logs/worker-[012].log"
    assert re.search(rf"^python -m research study paper: error: stopped early; see {log}\n$", first.stderr, re.M)
    assert set(trainings(before)) == {"single_turn-0", "cobalt-0", "grpo_online-0", "verpo_online-0"}
    logs = [(tmp_path / "run" / "logs" / f"worker-{place}.log").read_text() for place in range(3)]
    took = [re.findall("== study_paper-policy-([a-z_]+)_online-0: policy", log) for log in logs]
    assert sorted(took) == [[], ["grpo"], ["verpo"]]  # the third place has waited for cobalt
    second, after = study("paper", **knobs)
    assert second.returncode == 0, second.stderr
    assert set(trainings(after)) == {"single_turn-0", "ft_cobalt-0"}


@pytest.mark.parametrize(
    ("number", "at", "knobs"),
    [
        (signal.SIGTERM, "minicode generate", {}),
        (signal.SIGHUP, "cobalt-0.turns.jsonl --model", {"gpus": "0 0"}),
        (signal.SIGINT, "vllm_engine_actor:app", {"engine": "vllm"}),
    ],
)
def test_a_study_ends_with_its_commands_and_services_and_goes_on(study, tmp_path, number, at, knobs):
    done, _ = study("paper", arms="cobalt", HANG_ON=at, kill_at=at, signal_number=number, **knobs)
    assert done.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert not at_work(tmp_path / "run")
    wait_for(lambda: subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True).returncode == 1)
    done, calls = study("paper", arms="cobalt", **knobs)
    assert done.returncode == 0 and [call for call in calls if at in call]


def test_what_a_killed_study_has_left_is_not_disturbed(study, tmp_path):
    hanging = {"gpus": "0 0", "HANG_ON": "cobalt-0.turns.jsonl --model"}
    study("paper", kill_at="cobalt-0.turns.jsonl --model", signal_number=signal.SIGKILL, **hanging)
    left = at_work(tmp_path / "run")
    try:
        second, calls = study("paper", arms="kl+1")
        assert (second.returncode, trainings(calls)) == (2, {})
        assert f"is still at work in {tmp_path}/run\n" in second.stderr
    finally:
        for pid in left:
            with suppress(ProcessLookupError):  # the other worker may have ended
                os.killpg(pid, signal.SIGKILL)
    assert study("paper")[0].returncode == 0


def test_other_knobs_need_another_folder_but_for_arms_and_seeds(study, tmp_path):
    few, report = {"arms": "cobalt"}, tmp_path / "run/report/report.html"
    assert study("paper", **few)[0].returncode == 0
    report.parent.mkdir()
    report.touch()
    more, calls = study("paper", **few, seeds="0 1")
    assert more.returncode == 0 and not report.exists()  # it would refuse that of other seeds
    assert {policy[-1] for policy in trainings(calls)} == {"1"}
    for knobs in ({"steps": "5"}, {"engine": "vllm"}, {"max_tokens": "512"}):
        other, calls = study("paper", **few, **knobs)
        assert (other.returncode, calls) == (2, [])
        assert "was made with" in other.stderr and other.stderr.count("\n") == 1


def test_an_arm_with_a_value_changes_one_setting(study):
    arms = (
        "cobalt turns+5 cap+all kl+1e-2 lr+2e-04 group+4 group+16 clip+0.2 selection+min_variance stop+none"
        " temperature+1.4 trained_reference refreshed+1 refreshed+2"
    )
    done, calls = study("paper", arms=arms, train_samples="16", steps="4")
    assert done.returncode == 0, done.stderr
    trained = trainings(calls)
    assert "--num_turns 4 " in one(calls, "run_multi_turn", "-o train-turns-5.turns.jsonl")
    assert "--num_turns 5" in one(calls, "--output_file contexts-turns+5.jsonl")
    assert "--max_trajectories 16" in one(calls, "--output_file contexts-cap+all.jsonl")
    assert "kl_loss_coef=1e-2" in trained["kl+1e-2-0"]
    assert "optim.lr=2e-04" in trained["lr+2e-04-0"]
    # as many responses in a step
    assert "rollout.n=4 data.train_batch_size=32" in trained["group+4-0"]
    assert "rollout.n=16 data.train_batch_size=8" in trained["group+16-0"]
    # two updates in a step: in the first no ratio is clipped
    assert "clip_ratio_high=0.2" in trained["clip+0.2-0"] and "mini_batch_size=8" in trained["clip+0.2-0"]
    assert "--selection min_variance" in one(calls, "--output_file contexts-selection+min_variance.jsonl")
    assert "--stop_rule none" in one(calls, "--output_file contexts-stop+none.jsonl")
    for stage in ("run_single_turn", "run_multi_turn"):
        assert "--temperature 1.4" in one(calls, stage, "-o train-temperature-1.4.turn")
    assert "--model cobalt-0/model" in one(calls, "run_single_turn", "-o trained_reference-0.train.turn0.jsonl")
    assert "model.path" in trained["trained_reference-0"] and "cobalt-0/model" not in trained["trained_reference-0"]

    # refreshed contexts are those of the policy so far
    ends = (".1", ".2", ".3", "")
    assert [name for name in trained if "refreshed+1" in name] == [f"refreshed+1-0{end}" for end in ends]
    assert all("total_training_steps=2" in trained[f"refreshed+2-0{end}"] for end in (".1", ""))
    assert "parquet-contexts-cobalt/" in trained["refreshed+2-0.1"]
    assert "model.path='refreshed+2-0.1/model'" in trained["refreshed+2-0"]
    assert "--model refreshed+2-0.1/model" in one(calls, "run_single_turn", "-o refreshed+2-0.train.turn0.jsonl")
    assert "--earlier refreshed+2-0.1.cost.json" in one(calls, "report cost", "--output refreshed+2-0.cost.json")


@pytest.mark.parametrize(
    ("name", "knobs", "reason"),
    [
        ("paper", {"arms": "dpo"}, "no arm 'dpo'"),
        ("paper", {"arms": "ft_cobalt"}, "the arm ft_cobalt needs single_turn"),
        ("paper", {"arms": "grpo_online", "budget": "responses"}, "the arm grpo_online needs cobalt"),
        ("paper", {"arms": "other_reference", "reference": "nowhere"}, "the arm other_reference: --reference nowhere"),
        ("paper", {"model": "docs"}, "--model docs: this folder holds no model"),
        *(("hacking", {"arms": arm}, f"no arm '{arm}'") for arm in ("refreshed+0", "selection+best", "swapped+0.x")),
        ("hacking", {"arms": "cobalt cobalt"}, "--arms=('cobalt', 'cobalt'): names one twice"),
        ("paper", {"seeds": ""}, "--seeds=(): names none"),
        ("paper", {"engine_args": "dtype"}, "--engine_args dtype: give NAME=VALUE"),
        ("paper", {"engine_args": "num_replicas=0"}, "--engine_args num_replicas=0: give a number above 0"),
        ("hacking", {"overrides": "stepz"}, "no argument 'stepz'"),
    ],
)
def test_knobs_and_overrides_are_refused_before_anything_runs(study, tmp_path, name, knobs, reason):
    overrides = ["--", knobs["overrides"]] if "overrides" in knobs else []
    done, calls = study(name, *overrides, **({} if overrides else knobs))
    assert (done.returncode, calls, list(tmp_path.glob("run*"))) == (2, [], [])
    assert done.stderr.startswith(f"python -m research study {name}: error: {reason}")
    assert done.stderr.count("\n") == 1


def test_each_arm_against_hacking_has_its_contexts_and_settings(study):
    arms = "cobalt single_turn hidden_tests no_improvement penalty no_expected off_by_one+0.1 weak+penalty"
    done, calls = study("hacking", arms=arms, kind="truncated", penalty="0.25", weak_tests="0.5")
    assert done.returncode == 0, done.stderr
    trained = trainings(calls)
    assert "reward_kwargs.improvement=false" in trained["no_improvement-0"]
    assert "reward_kwargs.hard_coding=0.25" in trained["penalty-0"]
    for arm in ("cobalt", "penalty", "hidden_tests"):
        assert "reward_kwargs.improvement" not in trained[f"{arm}-0"]
    assert "--reward_tests hidden" in one(calls, "--output_file contexts-hidden_tests.jsonl")
    assert "--hide_expected" in one(calls, "--output_file contexts-no_expected.jsonl")
    wrong = one(calls, "--output_file contexts-off_by_one-0.1.jsonl")
    assert "--perturbed_file train-ptb-off_by_one.jsonl --perturbed_ratio 0.1" in wrong
    for_training = one(calls, "run_perturbation", "train.turn0")
    assert for_training.endswith("--kind off_by_one")
    measured = [call for call in calls if "run_perturbation" in call and call != for_training]
    assert len(measured) == 10 and all(call.endswith("--kind truncated") for call in measured)
    weak = [call for call in calls if "--output_file contexts-" in call and "--weak_tests" in call]
    assert len(weak) == 1 and "contexts-weak+penalty.jsonl" in weak[0] and "--weak_tests 0.5" in weak[0]
    assert "reward_kwargs.hard_coding=0.25" in trained["weak+penalty-0"]
    report = calls[-1]
    assert report.count(":log=") == 8 and "Cobalt + off_by_one+0.1:log=off_by_one+0.1-0/metrics.jsonl" in report


def test_minicoder_is_made_and_probed(study):
    done, calls = study("minicoder", size="small", seed="1", start="runs/clean")
    assert done.returncode == 0, done.stderr
    made, probed = calls
    assert "minicode pretrain" in made and "--seed 1 --start runs/clean --hidden_size 144" in made
    assert "minicode probe" in probed and "--num_turns 8 " in probed


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_paper_in_miniature_on_a_cpu_stopped_once(tmp_path):
    command = [sys.executable, "-m", "research", "study", "paper", "--size", "cpu", "--output_dir", str(tmp_path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **quiet)
    trained = tmp_path / "done" / "cobalt-0-train"
    wait_for(lambda: trained.exists() or first.poll() is not None, seconds=900)
    os.killpg(first.pid, signal.SIGINT)
    first.wait()
    before = trained.stat().st_mtime_ns

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert trained.stat().st_mtime_ns == before
    tables = json.loads((tmp_path / "report" / "report.json").read_text())["tables"]
    policies = ["base", "Cobalt", "single-turn GRPO", "single-turn GRPO + Cobalt", "GRPO-MT"]
    for key in ("pass1_clean", "pass1_shifted"):
        assert [row["run"] for row in tables[key]["rows"]] == policies
    bill = {row[""]: row for row in tables["bill"]["rows"]}
    assert bill["GPU-s: collection"]["Cobalt"] > 0 == bill["GPU-s: collection"]["GRPO-MT"]
    both = bill["GPU-s: earlier training"]["single-turn GRPO + Cobalt"]
    assert both == pytest.approx(bill["GPU-s in all"]["single-turn GRPO"])
