"""The console of a training run: what is shown, what goes to the log, and how a failure ends it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cobalt.errors import ABOVE
from cobalt.records import read_jsonl

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, sys
from pathlib import Path
from omegaconf import OmegaConf
from cobalt.errors import SetupError
from cobalt.training.console import quiet_console

folder, body, *overrides = sys.argv[1:]
folder = Path(folder)
config = OmegaConf.create({
    "trainer": {"default_local_dir": str(folder), "total_training_steps": 2, "resume_mode": "auto",
                "val_only": False},
    "data": {"train_batch_size": 4},
    "actor_rollout_ref": {"model": {"path": "some/model"}, "rollout": {"n": 8, "name": "hf"}},
})
config.merge_with_dotlist(overrides)

def step(number, **metrics):
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": number, "timing_s/step": 2.5, **metrics}) + "\\n")

with quiet_console(folder / "logs" / "train.log", config):
    print("(TaskRunner pid=1) noise")
    os.system("echo noise of another process")
    exec(body)
print("after the run")
"""
ENGINE_LOG = f"""
(vLLMHttpServer pid=7) (EngineCore pid=9) ValueError: Free memory (1/9 GiB)
(vLLMHttpServer pid=7) RuntimeError: Engine core initialization failed. {ABOVE}.
"""
STEPS = """
step(1, **{'reward/total': -0.5, 'reward/acc': 0.0, 'rollout_corr/kl': 0.2})
step(2, **{'reward/total': 0.5, 'reward/acc': 0.25, 'rollout_corr/kl': 1e-4})
"""


def run(folder, body, *overrides):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, body, *overrides], cwd=ROOT, capture_output=True, text=True
    )
    return done, (folder / "logs" / "train.log").read_text()


def test_what_runs_a_bar_and_a_summary(tmp_path):
    done, log = run(tmp_path, STEPS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training some/model: 2 steps of 4 prompts with 8 responses each, hf rollouts\n")
    assert "2/2" in done.stderr and "reward +0.500, solved 25.0%, 2.5 s/step, 00:00 left" in done.stderr
    assert "-0.500, 0.500" in done.stdout and "0.000, 0.250" in done.stdout
    assert ["largest", "rollout_corr/kl", "2.0e-01,", "step", "1"] in map(str.split, done.stdout.splitlines())
    assert f"next: bash scripts/merge_checkpoint.sh {tmp_path} models/{tmp_path.name}\nafter the run\n" in done.stdout
    assert "noise" not in done.stdout + done.stderr
    assert "pid=1) noise" in log and "noise of another process" in log


def test_what_a_program_complains_of_as_it_ends_goes_to_the_log(tmp_path):
    """As coroutines of veRL's queue do where its processes were killed: nothing follows the one line of an error."""
    late = "class Late:\n    def __del__(self): raise ValueError('too late')\nkept = Late()\nraise SetupError('no Ray')"
    done, log = run(tmp_path, late)
    assert "too late" in log and "too late" not in done.stderr


def test_before_the_first_step_the_bar_says_what_it_waits_for(tmp_path):
    """By what veRL has logged in this run."""
    started = "print('INFO: all initialize finished, ready to fit', flush=True)"
    assert "waiting for the first step" in run(tmp_path, started)[0].stderr
    done, log = run(tmp_path, "print('INFO: actor and ref model engine initialized', flush=True)")
    assert "ready to fit" in log and "starting the engine of rollouts" in done.stderr
    assert "loading the model" in done.stderr and "first step" not in done.stderr


@pytest.mark.parametrize(("seconds", "told"), [(0.2, False), (0.3, True)])
def test_a_training_that_waits_for_programs_says_so(tmp_path, seconds, told):
    done, _ = run(tmp_path, f"step(1); step(2, **{{'timing_s/judging': 2 * {seconds}}})")
    assert (f"Steps waited {seconds} s for programs" in done.stdout) == told


def test_steps_whose_update_was_left_out_are_told(tmp_path):
    done, _ = run(tmp_path, "step(1, **{'actor/grad_norm': 0.5}); step(2, **{'actor/grad_norm': float('nan')})")
    assert "steps without an update (gradient not finite)  2\n" in done.stdout
    assert "without an update" not in run(tmp_path / "other", "step(1, **{'actor/grad_norm': 0.5})")[0].stdout


def test_a_run_that_a_budget_ends_promises_no_time_and_metrics_of_an_earlier_run_are_not_its_steps(
    tmp_path, monkeypatch
):
    """A script that goes on is not told what to run next."""
    monkeypatch.setenv("COBALT_SCRIPT", "1")
    done, _ = run(tmp_path, STEPS, "cobalt.budget={responses: 100}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training some/model: ? steps of")
    assert "2/?" in done.stderr and "2.5 s/step]" in done.stderr and "left" not in done.stderr
    assert "after the run" in done.stdout and "next:" not in done.stdout
    done, _ = run(tmp_path, "pass")
    assert "none: the run was finished already" in done.stdout
    assert "s/step" not in done.stdout + done.stderr


def test_a_run_that_only_validates_shows_what_it_measured(tmp_path):
    (tmp_path / "global_step_1").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    measures = "step(2); step(1, **{'val-core/taco/acc/mean@1': 0.25})"
    done, _ = run(tmp_path, measures, "trainer.val_only=true")
    assert ["val-core/taco/acc/mean@1", "0.250"] in map(str.split, done.stdout.splitlines())
    assert ["step", "1"] in map(str.split, done.stdout.splitlines()) and "finished already" not in done.stdout


def test_the_bar_shows_none_of_the_steps_that_a_crash_undid(tmp_path):
    (tmp_path / "global_step_1").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    lost = [{"step": step, "timing_s/step": 9.0} for step in (1, 2)]
    torn = '{"step": 3, "timing'
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lost) + torn)
    (tmp_path / "metrics.lost.jsonl").write_text('{"step": 9}\n' + torn)
    resume = "from cobalt.records.training_run import hold_folder, set_lost_steps_aside"
    with_resume = f"{resume}\nwith hold_folder(folder): set_lost_steps_aside(folder, 1); step(2)"
    done, log = run(tmp_path, with_resume)
    assert done.returncode == 0, done.stderr
    assert "2/2" in done.stderr and "seconds per step 2.5" in " ".join(done.stdout.split())
    assert "cobalt: steps 2 to 2 came after the checkpoint" in log
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.lost.jsonl", ("step",))] == [9, 2]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise SetupError('no service')", "SetupError: no service (log: "),
        (f"{STEPS}\nraise OSError(28, 'No space left')", "SetupError: output: No space left; make room, then"),
        (f"{STEPS}\nraise ValueError('odd\\nat length')", "CobaltError: ValueError: odd (log: "),
        (
            f"print({ENGINE_LOG!r})\nraise RuntimeError({ABOVE!r})",
            "CobaltError: ValueError: Free memory (1/9 GiB) (log: ",
        ),
        (f"raise RuntimeError({ABOVE!r})", f"CobaltError: RuntimeError: {ABOVE} (log: "),
    ],
)
def test_a_failure_is_one_line_that_names_the_log(tmp_path, body, told):
    done, log = run(tmp_path, body)
    assert done.returncode == 1 and "]Traceback" not in done.stderr, "the bar's line has not ended"
    assert done.stderr.splitlines()[-1].startswith(f"cobalt.sandbox.errors.{told}") and "train.log" in done.stderr
    assert "merge_checkpoint" not in done.stdout
    assert ("Traceback" in log) == ("SetupError" not in body)


def test_a_log_without_room_hides_no_error(tmp_path):
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    done, _ = run(tmp_path, f"{full}; raise ValueError('odd')")
    assert done.stderr.splitlines()[-1].startswith("cobalt.sandbox.errors.CobaltError: ValueError: odd (log: ")
