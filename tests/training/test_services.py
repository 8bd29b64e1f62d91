"""What the recipes start, here as commands that only write down how they were called or wait, and how that ends.

One training writes in a folder, and none outlives the recipe that started it.
"""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import wait_for

from cobalt.errors import InputError, SetupError
from cobalt.records.training_run import hold_folder
from cobalt.serving.service_check import parse_evaluator_args, refuse_other_verdicts
from cobalt.training import launch
from cobalt.training.hydra_main import started_services

ROOT = Path(__file__).parents[2]
USERS_RAY = {"RAY_ADDRESS": "127.0.0.1:1"}

RECORDER = r"""#!/usr/bin/env bash
if [[ $* == start*--head* ]]; then
  mkdir -p "$RAY_TMPDIR/ray"
  echo -n "192.0.2.1:$(sed 's/.* --port \([0-9]*\) .*/\1/' <<<"$*")" >"$RAY_TMPDIR/ray/ray_current_cluster"
fi
echo "$(basename "$0") $*" >>"$CALLS"
case "$*" in
  start*--head*) [[ -z ${RAY_FAILS:-} ]] || exit 1
    echo "Ray runtime started." && exec sleep 60 ;;
esac
"""
PYTHON = """#!/usr/bin/env bash
if [[ $* == *--services_fds* ]]; then # a training
  [[ -z ${REFUSES:-} ]] || exit 2
  echo "start ${LIMITS:-}" >&5
  read -r address <&4
  [[ $address != exit* ]] || exit "${address#exit }"
  echo "training at $address" >>"$CALLS"
fi
[[ $2 != *free_port* && $* != *--arguments_only* ]] || exec @REAL@ "$@"
echo "python $*" >>"$CALLS"
[[ $* != *--cluster_only* ]] || exit $CLUSTER_CHECK
grep -q "^ray start" "$CALLS" && exit
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
    done = subprocess.run(["bash", *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr, calls.read_text().splitlines()


def start_services(folder, **environment):
    """Source the library, start and stop."""
    script = "set -euo pipefail; source scripts/lib/services.sh; trap stop_services EXIT; start_services"
    return run_bash(folder, "-c", f"{script} {folder}/logs", **environment)


def find(calls, prefix):
    (call,) = [call for call in calls if call.startswith(prefix)]
    return call.split()


@pytest.fixture(scope="module", params=[("cpu", "workers=2 num_cpus=2"), ("paper-qwen3", "")])
def own_ray(request, tmp_path_factory):
    """Started with a preset, 4 GPUs and arguments of the evaluator, by a Python that is not the active one's."""
    preset, arguments = request.param
    folder = tmp_path_factory.mktemp("services")
    places = {"PYTHON": f"{folder}/bin/python", "PATH": "/bin:/usr/bin"}
    code, errors, calls = start_services(folder, PRESET=preset, N_GPUS="4", EVALUATOR_ARGS=arguments, **places)
    assert code == 0, errors
    return SimpleNamespace(preset=preset, arguments=arguments.split(), folder=folder, calls=calls)


def test_an_evaluator_in_a_ray_of_our_own_reserves_nothing_but_what_the_user_wants(own_ray):
    given = own_ray.arguments
    assert find(own_ray.calls, "serve run")[-1 - len(given) :] == ["num_cpus=0", *given]
    assert not (own_ray.folder / "ray" / "ray_current_cluster").exists()  # the address of the stopped cluster


def test_ray_is_that_of_the_interpreter_whichever_environment_is_active(own_ray):
    assert [call.split()[:2] for call in own_ray.calls[:3]] == [["ray", "start"], ["serve", "start"], ["serve", "run"]]


def test_logical_cpus_do_for_verl_beside_any_evaluator(own_ray):
    start = find(own_ray.calls, "ray start")
    if own_ray.preset == "cpu":
        assert start[start.index("--num-gpus") + 1] == "4"
    evaluators, with_gpus, others = len(os.sched_getaffinity(0)), 3 * 4, 2
    assert int(start[start.index("--num-cpus") + 1]) >= evaluators + with_gpus + others


def test_a_ray_that_does_not_start_is_not_taken_for_the_one_before_it(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ray.log").write_text("Ray runtime started.\n")
    code, errors, calls = start_services(tmp_path, RAY_FAILS="1")
    assert (code, errors) == (3, f"Ray did not start: see {tmp_path}/logs/ray.log\n")
    assert not [call for call in calls if call.startswith("serve")]


def test_a_cluster_of_the_users_is_used_as_it_is_and_its_address_is_kept(tmp_path):
    address = tmp_path / "ray" / "ray_current_cluster"
    address.parent.mkdir()
    address.write_text("192.0.2.1:6379")
    code, _, calls = start_services(tmp_path, **USERS_RAY)
    assert code == 0
    assert not [call for call in calls if call.startswith("ray start")]
    assert "num_cpus=0" not in find(calls, "serve run")
    assert 'serve.delete("evaluator")' in calls[-1]
    assert address.read_text() == "192.0.2.1:6379"


def test_nothing_is_started_beside_an_evaluator_with_other_settings_or_a_cluster_that_does_not_answer(tmp_path):
    code, errors, calls = start_services(tmp_path, first_check=2, EVALUATOR_ARGS="checker=lcb", **USERS_RAY)
    assert (code, errors) == (2, "cobalt service check: error: an evaluator is running with checker=exact, not lcb\n")
    assert not [call for call in calls if call.startswith("serve")]
    assert "--evaluator_args checker=lcb" in calls[1]
    code, _, calls = start_services(tmp_path, CLUSTER_CHECK="3", **USERS_RAY)
    assert (code, calls) == (3, ["python -m cobalt service check --cluster_only"])


def test_other_verdicts_are_named_and_what_does_not_change_them_may_differ():
    running = {"checker": "exact", "cpu_limit_s": 4.0, "memory_limit_mb": 1024}
    for arguments in ("", "workers=3 num_cpus=0", "checker=exact cpu_limit_s=4 replicas=2"):
        refuse_other_verdicts(running, parse_evaluator_args(arguments))
    with pytest.raises(InputError, match=r"checker=exact, not lcb, cpu_limit_s=4\.0, not 9\.0"):
        refuse_other_verdicts(running, parse_evaluator_args("checker=lcb cpu_limit_s=9 workers=3"))


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
def test_arguments_that_the_app_would_not_take_are_refused(arguments, told):
    with pytest.raises(InputError, match=f"^(EVALUATOR_ARGS: )?{told}"):
        parse_evaluator_args(arguments)


def test_nothing_is_started_with_such_arguments(tmp_path):
    code, errors, calls = start_services(tmp_path, EVALUATOR_ARGS="wrokers=2")
    assert (code, calls) == (2, [])
    (line,) = errors.splitlines()
    assert line.startswith("cobalt service check: error: EVALUATOR_ARGS: wrokers: no such setting; there are ")
    assert not (tmp_path / "logs").exists()


def test_the_quickstart_runs_the_pipeline_and_trains_once(tmp_path):
    run = tmp_path / "my & run"

    def quickstart():
        code, errors, calls = run_bash(tmp_path, "scripts/quickstart.sh", "a=1", SETUP="0", RUN=str(run), STEPS="7")
        assert code == 0, errors
        return [call for call in calls if call.startswith("python") and "service check" not in call]

    calls = quickstart()
    stages = ["preproc_taco", "run_single_turn", "run_multi_turn", "eval_multi_turn"]
    stages += ["run_single_turn", "run_multi_turn", "eval_multi_turn", "process_multi_turn", "process_multi_turn"]
    stages += ["verl_preproc_multi_turn", "cobalt train --log", "cobalt merge"]
    stages += ["run_single_turn", "run_multi_turn", "eval_multi_turn"]
    assert [stage in call for stage, call in zip(stages, calls, strict=True)] == [True] * len(stages)
    (training,) = [call for call in calls if "train --log" in call]
    assert "trainer.total_training_steps=7" in training and training.endswith("a=1")
    assert [f"--model {run}/model " in call for call in calls[-3:]] == [True, True, False]
    (run / "model").mkdir()
    assert [call for call in quickstart() if "train" in call.split() or "merge" in call.split()] == []


PROGRAM = """#!/usr/bin/env bash
case "$(basename "$0") $*" in
  python*free_port*) exec @REAL@ "$@" ;;
  ray*--head*) what=ray && echo "Ray runtime started." ;;
  *train*--log*) what=training && echo start >&5 && read -r _ <&4 ;;
  *) exit ;;
esac
echo $$ >"$FOLDER/$what.pid.new"
mv "$FOLDER/$what.pid.new" "$FOLDER/$what.pid"
exec sleep 60
"""
"""In place of Ray and Python: Ray and the training say their process and wait."""


def start_recipe(folder):
    """With programs that only wait."""
    for name in ("ray", "python"):
        (folder / name).write_text(PROGRAM.replace("@REAL@", sys.executable))
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": "python", "FOLDER": str(folder)}
    environment |= {"PRESET": "cpu", "EXECUTOR": "local", "OUTPUT_DIR": str(folder / "out")}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    command = ["bash", "scripts/train_grpo_multi_turn.sh"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **streams)


def is_alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def running(tmp_path):
    recipe = start_recipe(tmp_path)
    files = [tmp_path / "ray.pid", tmp_path / "training.pid"]
    wait_for(lambda: all(file.exists() for file in files))
    pids = [int(file.read_text()) for file in files]
    yield recipe, pids
    recipe.kill()
    recipe.communicate()
    for pid in filter(is_alive, pids):
        os.kill(pid, signal.SIGKILL)


def test_a_second_training_in_a_folder_names_the_first(tmp_path):
    refusal = pytest.raises(InputError, match=rf"process {os.getpid()} on \S+ is training")
    with hold_folder(tmp_path), refusal, hold_folder(tmp_path):
        pytest.fail("it trains")


@pytest.mark.parametrize(("answer", "code"), [("exit 3", 3), ("", None), ("127.0.0.1:1", 0)])
def test_a_recipe_is_asked_for_its_services(monkeypatch, answer, code):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (questions, asks), (answers, writes) = os.pipe(), os.pipe()
    os.write(writes, f"{answer}\n".encode())
    os.close(writes)
    outcome = {3: pytest.raises(SystemExit, match="3"), None: pytest.raises(SetupError, match="the recipe ended")}
    with outcome.get(code, nullcontext()):
        started_services(answers, asks, {"cpu_limit_s": 2.0, "max_threads": 4})
    assert os.read(questions, 99) == b"start cpu_limit_s=2.0 max_threads=4\n"
    os.close(questions)
    assert os.environ.get("RAY_ADDRESS") == (answer if code == 0 else None)


def test_a_recipe_that_has_ended_is_asked_in_vain(monkeypatch):
    (questions, asks), (answers, writes) = os.pipe(), os.pipe()
    os.close(questions)
    os.close(writes)
    with pytest.raises(SetupError, match="the recipe ended"):
        started_services(answers, asks, {})


@pytest.mark.parametrize("executor", ["local", "serve"])
@pytest.mark.parametrize(("broken", "code", "told"), [("", 0, ""), ("REFUSES", 2, ""), ("RAY_FAILS", 3, "Ray did not")])
def test_a_recipe_starts_ray_once_all_is_checked(tmp_path, executor, broken, code, told):
    settings = {"EXECUTOR": executor, "OUTPUT_DIR": str(tmp_path / "out"), **({broken: "1"} if broken else {})}
    ended, errors, calls = run_bash(tmp_path, "scripts/train_grpo_multi_turn.sh", **settings)
    assert (ended, errors.count("\n")) == (code, bool(told)) and errors.startswith(told)
    started = [call.split() for call in calls if call.startswith("ray start")]
    assert len(started) == (broken != "REFUSES")
    addresses = [call.rpartition(" ")[2] for call in calls if call.startswith("training at ")]
    assert addresses == [f"127.0.0.1:{call[call.index('--port') + 1]}" for call in started if not broken]


def test_the_evaluator_has_the_limits_that_the_configuration_gives_programs(tmp_path):
    settings = {"LIMITS": "cpu_limit_s=2.0", "EVALUATOR_ARGS": "workers=3", "OUTPUT_DIR": str(tmp_path / "out")}
    code, _, calls = run_bash(tmp_path, "scripts/train_grpo_multi_turn.sh", **settings)
    (started,) = [call for call in calls if call.startswith("serve run")]
    assert (code, started.endswith(" cpu_limit_s=2.0 workers=3")) == (0, True)
    settings |= {"EVALUATOR_ARGS": "workers=3 cpu_limit_s=2.0", "OUTPUT_DIR": str(tmp_path / "again")}
    code, errors, calls = run_bash(tmp_path, "scripts/train_grpo_multi_turn.sh", **settings)
    (started,) = [call for call in calls if call.startswith("serve run")]
    assert (code, started.count("cpu_limit_s=")) == (0, 1), errors  # the app takes no name twice


def test_nothing_is_started_where_the_folder_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "checked", lambda *_: (None, SimpleNamespace(output=tmp_path)))
    with hold_folder(tmp_path), pytest.raises(InputError, match="is training in this folder"):
        launch.train(None, start_services=lambda _limits: pytest.fail("it starts"))


def test_ray_and_the_training_end_with_a_killed_recipe(tmp_path, running):
    recipe, pids = running
    recipe.kill()
    wait_for(lambda: not any(map(is_alive, pids)))
    with hold_folder(tmp_path / "out"):
        pass
