"""The console of a training run: what is shown, what goes to the log, and how a failure ends it."""

import json
import os
import subprocess
import sys

import pytest
from omegaconf import OmegaConf
from online_parts import ROOT

from cobalt.errors import ABOVE, CobaltError, SetupError
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.training_run import hold_folder, set_lost_steps_aside
from cobalt.training.console import quiet_console

CONFIG = {
    "trainer": {"total_training_steps": 2, "resume_mode": "auto", "val_only": False},
    "data": {"train_batch_size": 4},
    "actor_rollout_ref": {"model": {"path": "some/model"}, "rollout": {"n": 8, "name": "hf"}},
}
ENGINE_LOG = f"""
(vLLMHttpServer pid=7) (EngineCore pid=9) ValueError: Free memory (1/9 GiB)
(vLLMHttpServer pid=7) RuntimeError: Engine core initialization failed. {ABOVE}.
"""


@pytest.fixture
def run(tmp_path, capfd, monkeypatch):
    """Trains, with ``body`` in the place of veRL. Gives what the console shows, on stdout and stderr, and the log."""

    def train(body, *overrides):
        config = OmegaConf.merge(CONFIG, {"trainer": {"default_local_dir": str(tmp_path)}})
        config.merge_with_dotlist(list(overrides))
        log = tmp_path / "logs/train.log"
        descriptors = [os.dup(stream) for stream in (1, 2)]
        with monkeypatch.context() as patch:
            patch.setattr(sys, "unraisablehook", sys.unraisablehook)
            for stream, name in enumerate(("stdout", "stderr"), 1):  # pytest's own go around the descriptors
                patch.setattr(sys, name, os.fdopen(stream, "w", closefd=False))
            try:
                with quiet_console(log, config):
                    print("(TaskRunner pid=1) noise")
                    os.system("echo noise of another process")
                    body()
                print("after the run")
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                for stream, descriptor in enumerate(descriptors, 1):
                    os.dup2(descriptor, stream)
                    os.close(descriptor)
        return (*capfd.readouterr(), log.read_text())

    return train


@pytest.fixture
def step(tmp_path):
    """Writes the metrics of a step."""

    def write(number, **metrics):
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": number, "timing_s/step": 2.5, **metrics}) + "\n")

    return write


@pytest.fixture
def two_steps(step):
    def train():
        step(1, **{"reward/total": -0.5, "reward/acc": 0.0, "rollout_corr/kl": 0.2})
        step(2, **{"reward/total": 0.5, "reward/acc": 0.25, "rollout_corr/kl": 1e-4})

    return train


def test_what_runs_a_bar_and_a_summary(run, two_steps, tmp_path):
    out, errors, log = run(two_steps)
    assert out.startswith("training some/model: 2 steps of 4 prompts with 8 responses each, hf rollouts\n")
    assert "2/2" in errors and "reward +0.500, solved 25.0%, 2.5 s/step, 00:00 left" in errors
    assert "-0.500, 0.500" in out and "0.000, 0.250" in out
    assert ["largest", "rollout_corr/kl", "2.0e-01,", "step", "1"] in map(str.split, out.splitlines())
    assert f"next: bash scripts/merge_checkpoint.sh {tmp_path} models/{tmp_path.name}\nafter the run\n" in out
    assert "noise" not in out + errors
    assert "pid=1) noise" in log and "noise of another process" in log


def test_before_the_first_step_the_bar_says_what_it_waits_for(run):
    """By what veRL has logged in this run."""
    _, errors, _ = run(lambda: print("INFO: all initialize finished, ready to fit", flush=True))
    assert "waiting for the first step" in errors
    _, errors, log = run(lambda: print("INFO: actor and ref model engine initialized", flush=True))
    assert "ready to fit" in log and "starting the engine of rollouts" in errors
    assert "loading the model" in errors and "first step" not in errors


@pytest.mark.parametrize(("seconds", "told"), [(0.2, False), (0.3, True)])
def test_a_training_that_waits_for_programs_says_so(run, step, seconds, told):
    out, _, _ = run(lambda: (step(1), step(2, **{"timing_s/judging": 2 * seconds})))
    assert (f"Steps waited {seconds} s for programs" in out) == told


@pytest.mark.parametrize(("norm", "told"), [(0.5, False), (float("nan"), True)])
def test_steps_whose_update_was_left_out_are_told(run, step, norm, told):
    out, _, _ = run(lambda: (step(1, **{"actor/grad_norm": 0.5}), step(2, **{"actor/grad_norm": norm})))
    assert ("steps without an update (gradient not finite)  2\n" in out) == ("without an update" in out) == told


def test_a_run_that_a_budget_ends_promises_no_time_and_metrics_of_an_earlier_run_are_not_its_steps(
    run, two_steps, monkeypatch
):
    """A script that goes on is not told what to run next."""
    monkeypatch.setenv("COBALT_SCRIPT", "1")
    out, errors, _ = run(two_steps, "cobalt.budget={responses: 100}")
    assert out.startswith("training some/model: ? steps of")
    assert "2/?" in errors and "2.5 s/step]" in errors and "left" not in errors
    assert "after the run" in out and "next:" not in out
    out, errors, _ = run(lambda: None)
    assert "none: the run was finished already" in out
    assert "s/step" not in out + errors


def test_a_run_that_only_validates_shows_what_it_measured(run, step, tmp_path):
    (tmp_path / "global_step_1").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    out, _, _ = run(lambda: (step(2), step(1, **{"val-core/taco/acc/mean@1": 0.25})), "trainer.val_only=true")
    assert ["val-core/taco/acc/mean@1", "0.250"] in map(str.split, out.splitlines())
    assert ["step", "1"] in map(str.split, out.splitlines()) and "finished already" not in out


def test_the_bar_shows_none_of_the_steps_that_a_crash_undid(run, step, tmp_path):
    (tmp_path / "global_step_1").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    torn = '{"step": 3, "timing'
    write_jsonl(tmp_path / "metrics.jsonl", [{"step": step, "timing_s/step": 9.0} for step in (1, 2)])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(torn)
    (tmp_path / "metrics.lost.jsonl").write_text('{"step": 9}\n' + torn)

    def resume():
        with hold_folder(tmp_path):
            set_lost_steps_aside(tmp_path, 1)
            step(2)

    out, errors, log = run(resume)
    assert "2/2" in errors and "seconds per step 2.5" in " ".join(out.split())
    assert "cobalt: steps 2 to 2 came after the checkpoint" in log
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.lost.jsonl", ("step",))] == [9, 2]


@pytest.mark.parametrize(
    ("error", "printed", "told"),
    [
        (SetupError("no service"), "", "no service (log: "),
        (OSError(28, "No space left"), "", "output: No space left; make room, then"),
        (ValueError("odd\nat length"), "", "ValueError: odd (log: "),
        (RuntimeError(ABOVE), ENGINE_LOG, "ValueError: Free memory (1/9 GiB) (log: "),
        (RuntimeError(ABOVE), "", f"RuntimeError: {ABOVE} (log: "),
    ],
)
def test_a_failure_is_one_line_that_names_the_log(run, two_steps, capfd, tmp_path, error, printed, told):
    def fail():
        two_steps()
        print(printed, flush=True)
        raise error

    with pytest.raises(CobaltError) as caught:
        run(fail)
    assert str(caught.value).startswith(told) and f"{tmp_path}/logs/train.log)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, SetupError) == isinstance(error, SetupError | OSError)
    out, errors = capfd.readouterr()
    assert errors.endswith("\n"), "the bar's line has not ended"
    assert "merge_checkpoint" not in out
    log = (tmp_path / "logs/train.log").read_text()
    assert ("Traceback" in log) == (not isinstance(error, SetupError))


END = """
import json, resource, sys
from pathlib import Path
from omegaconf import OmegaConf
from cobalt.training.console import quiet_console

class Late:
    def __del__(self): raise ValueError("too late")

limits = resource.getrlimit(resource.RLIMIT_FSIZE)
try:
    with quiet_console(Path(sys.argv[1]), OmegaConf.create(json.loads(sys.argv[2]))):
        print("noise")
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        raise ValueError("odd")
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    Late()
"""


def test_as_a_program_ends_a_log_without_room_hides_no_error_and_nothing_follows_the_error(tmp_path):
    """Coroutines of veRL's queue complain then, where its processes were killed. The log takes it."""
    config = {**CONFIG, "trainer": {**CONFIG["trainer"], "default_local_dir": str(tmp_path)}}
    command = [sys.executable, "-c", END, tmp_path / "train.log", json.dumps(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("cobalt.sandbox.errors.CobaltError: ValueError: odd (log: ")
    assert "too late" in (tmp_path / "train.log").read_text() and "too late" not in done.stderr
