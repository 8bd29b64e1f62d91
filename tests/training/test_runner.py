"""The trainer that the task runner starts: nothing is added to a finished run."""

from types import SimpleNamespace

import pytest

from cobalt.training import runner

TOTAL_STEPS = 4


class VerlTrainer:
    """Records what veRL would have done."""

    def __init__(self, trainer):
        self.config = SimpleNamespace(trainer=trainer)
        self.total_training_steps = TOTAL_STEPS
        self.train_dataset = SimpleNamespace()
        self.done = []

    def init_workers(self):
        self.done.append("init_workers")

    def fit(self):
        self.done.append("fit")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the trainer on a folder with a checkpoint of the given step (None: without); what veRL did."""
    monkeypatch.setattr(runner, "LOG_DELAY_S", 0)

    def run_from(step, guard=None, **settings):
        if step is not None:
            (tmp_path / f"global_step_{step}").mkdir()
            (tmp_path / "latest_checkpointed_iteration.txt").write_text(str(step))
        defaults = {"resume_mode": "auto", "resume_from_path": None, "val_only": False}
        config = SimpleNamespace(**{**defaults, "default_local_dir": str(tmp_path), **settings})
        trainer_class = type("Trainer", (VerlTrainer,), {})
        runner.extend_trainer(trainer_class, guard)
        trainer = trainer_class(config)
        trainer.init_workers()
        trainer.fit()
        return trainer

    return run_from


@pytest.mark.parametrize("step", [None, 3])
def test_an_unfinished_run_trains_under_guard(run, step):
    trainer = run(step, guard=print)
    assert trainer.done == ["init_workers", "fit"]
    assert trainer.train_dataset.on_batch_end is print


@pytest.mark.parametrize("step", [TOTAL_STEPS, 9])
def test_a_finished_run_is_left_alone_and_says_so(run, step, capsys):
    assert run(step).done == []
    assert f"finished already: checkpoint {step} of {TOTAL_STEPS} steps" in capsys.readouterr().out


def test_a_finished_run_by_path(run):
    assert run(None, resume_mode="resume_path", resume_from_path="elsewhere/global_step_4").done == []


@pytest.mark.parametrize("settings", [{"resume_mode": "disable"}, {"val_only": True}])
def test_a_finished_run_can_be_repeated_and_validated(run, settings):
    assert run(TOTAL_STEPS, **settings).done == ["init_workers", "fit"]
