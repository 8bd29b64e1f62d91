"""What the recipes start: services and stages, here as commands that only write down how they were called."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.serving.service_check import parse_evaluator_args, refuse_other_verdicts

ROOT = Path(__file__).parents[2]
RUNNING = {"checker": "exact", "cpu_limit_s": 4.0, "memory_limit_mb": 1024}

RECORDER = r"""#!/usr/bin/env bash
if [[ $* == start*--head* ]]; then
  mkdir -p "$RAY_TMPDIR/ray"
  echo -n "192.0.2.1:$(sed 's/.* --port \([0-9]*\) .*/\1/' <<<"$*")" >"$RAY_TMPDIR/ray/ray_current_cluster"
fi
echo "$(basename "$0") $*" >>"$CALLS"
case "$*" in
  start*--head*) exec sleep 60 ;;
  status) ! grep -q "^ray start" "$CALLS" || echo " 1 node_0" ;;
esac
"""
PYTHON = """#!/usr/bin/env bash
[[ $2 != studies ]] || exec @REAL@ "$@"
[[ $2 != *socket* && $* != *--arguments_only* ]] || exec @REAL@ "$@"
echo "python $*" >>"$CALLS"
[[ $* != *--cluster_only* ]] || exit $CLUSTER_CHECK
(($(grep -c "^python -m cobalt service check --evaluator_args" "$CALLS") == 1)) || exit 0
echo "cobalt service check: error: $COMPLAINT" >&2
exit $FIRST_CHECK
"""


def run_bash(folder, *command, first_check=3, **environment):
    """Run bash with recorders in place of programs; its exit code, stderr and the commands called."""
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    for name, text in {"ray": RECORDER, "serve": RECORDER, "python": PYTHON.replace("@REAL@", sys.executable)}.items():
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)
    calls = folder / "calls"
    calls.write_text("")
    inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "EVALUATOR_ARGS")}
    environment = {
        **inherited,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHON": "python",
        "CALLS": str(calls),
        "FIRST_CHECK": str(first_check),
        "CLUSTER_CHECK": "0",
        "RAY_TMPDIR": str(folder),
        "COMPLAINT": "an evaluator is running with checker=exact, not lcb",
        **environment,
    }
    done = subprocess.run(["bash", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, calls.read_text().splitlines()


def start_services(folder, **environment):
    """Source the library, start and stop."""
    script = "set -euo pipefail; source scripts/lib/services.sh; trap stop_services EXIT; start_services"
    return run_bash(folder, "-c", f"{script} {folder}/logs", **environment)


def find(calls, prefix):
    (call,) = [call for call in calls if call.startswith(prefix)]
    return call.split()


def test_an_evaluator_in_a_ray_of_our_own_reserves_nothing(tmp_path):
    code, errors, calls = start_services(tmp_path)
    assert code == 0, errors
    assert find(calls, "serve run")[-1] == "num_cpus=0"
    assert "--num-cpus" not in find(calls, "ray start")


def test_the_users_reservation_wins(tmp_path):
    code, _, calls = start_services(tmp_path, EVALUATOR_ARGS="workers=2 num_cpus=2")
    assert code == 0
    assert find(calls, "serve run")[-3:] == ["num_cpus=0", "workers=2", "num_cpus=2"]


@pytest.mark.parametrize("gpus", [1, 4])
def test_logical_cpus_do_for_verl_beside_any_evaluator(tmp_path, gpus):
    code, _, calls = start_services(tmp_path, PRESET="cpu", N_GPUS=str(gpus))
    assert code == 0
    start = find(calls, "ray start")
    assert start[start.index("--num-gpus") + 1] == str(gpus)
    evaluators, task_runner, asynchronous_reward = len(os.sched_getaffinity(0)), 1, 1
    assert int(start[start.index("--num-cpus") + 1]) >= gpus + evaluators + task_runner + asynchronous_reward


def test_a_cluster_of_the_users_is_used_as_it_is(tmp_path):
    code, _, calls = start_services(tmp_path, RAY_ADDRESS="127.0.0.1:1")
    assert code == 0
    assert not [call for call in calls if call.startswith("ray start")]
    assert "num_cpus=0" not in find(calls, "serve run")
    assert 'serve.delete("evaluator")' in calls[-1]


def test_an_evaluator_with_other_settings_is_refused(tmp_path):
    arguments = {"RAY_ADDRESS": "127.0.0.1:1", "EVALUATOR_ARGS": "checker=lcb"}
    code, errors, calls = start_services(tmp_path, first_check=2, **arguments)
    assert (code, errors) == (2, "cobalt service check: error: an evaluator is running with checker=exact, not lcb\n")
    assert not [call for call in calls if call.startswith("serve")]
    assert "--evaluator_args checker=lcb" in calls[1]


def test_nothing_is_started_beside_a_cluster_that_does_not_answer(tmp_path):
    code, _, calls = start_services(tmp_path, RAY_ADDRESS="127.0.0.1:1", CLUSTER_CHECK="3")
    assert code == 3
    assert calls == ["python -m cobalt service check --cluster_only"]


def test_the_address_of_a_stopped_cluster_is_forgotten(tmp_path):
    assert start_services(tmp_path)[0] == 0
    assert not (tmp_path / "ray" / "ray_current_cluster").exists()


def test_the_address_of_another_cluster_is_kept(tmp_path):
    address = tmp_path / "ray" / "ray_current_cluster"
    address.parent.mkdir()
    address.write_text("192.0.2.1:6379")
    assert start_services(tmp_path, RAY_ADDRESS="127.0.0.1:1")[0] == 0
    assert address.read_text() == "192.0.2.1:6379"


def test_other_verdicts_are_named():
    with pytest.raises(InputError, match=r"checker=exact, not lcb, cpu_limit_s=4\.0, not 9\.0"):
        refuse_other_verdicts(RUNNING, parse_evaluator_args("checker=lcb cpu_limit_s=9 workers=3"))


@pytest.mark.parametrize("arguments", ["", "workers=3 num_cpus=0", "checker=exact cpu_limit_s=4 replicas=2"])
def test_what_does_not_change_verdicts_may_differ(arguments):
    refuse_other_verdicts(RUNNING, parse_evaluator_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("wrokers=2", "wrokers: no such setting; there are max_body_mb, .*, workers"),
        ("replicas=1 workers=two", "workers=two: Input should be a valid integer"),
        ("checker", "checker=: checker must be one of exact, "),
        ("checker=absent.py:close", "absent.py:close: no such file"),
        ("cpu_limit_s=much", "cpu_limit_s=much: Input should be a valid number"),
    ],
)
def test_arguments_that_the_app_would_not_take_are_refused_before_anything_starts(tmp_path, arguments, told):
    code, errors, calls = start_services(tmp_path, EVALUATOR_ARGS=arguments)
    assert (code, calls) == (2, [])
    (line,) = errors.splitlines()
    assert re.match(f"cobalt service check: error: (EVALUATOR_ARGS: )?{told}", line)
    assert not (tmp_path / "logs").exists()


KNOBS = {
    "quickstart": "SEED=0 TRAIN_SEED=0 MODEL=assets/minicoder PRESET=cpu STEPS=60 TRAIN=120 x 8 DEV=96 x 3 BATCH=128"
    " OVERRIDES=a=1 b=2",
}
"""The text that a folder of results is known by: with another one, folders that exist could not be continued."""


def run_recipe(name, folder, **knobs):
    return run_bash(folder, f"scripts/{name}.sh", "a=1", "b=2", SETUP="0", RUN=str(folder / "run"), **knobs)


@pytest.mark.parametrize("name", KNOBS)
def test_a_second_run_repeats_no_stage(name, tmp_path):
    code, errors, calls = run_recipe(name, tmp_path)
    assert code == 0, errors
    assert find(calls, "python -m cobalt minicode generate")
    code, errors, calls = run_recipe(name, tmp_path)
    assert code == 0, errors
    (report,) = [call for call in calls if call.startswith("python") and "service check" not in call]
    assert "report" in report


@pytest.mark.parametrize("name", KNOBS)
def test_a_folder_of_results_is_known_by_its_knobs(name, tmp_path):
    (tmp_path / "run" / "done").mkdir(parents=True)
    (tmp_path / "run" / "settings").write_text(KNOBS[name] + "\n")
    assert run_recipe(name, tmp_path)[0] == 0
    code, errors, calls = run_recipe(name, tmp_path, STEPS="7")
    assert (code, calls) == (2, [])
    assert errors.startswith(f"{name}.sh: error: {tmp_path}/run was made with '{KNOBS[name]}'")
