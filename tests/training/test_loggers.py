"""LOGGER: what Weights & Biases and TensorBoard leave on disk without a network, beside our own metrics file."""

import time
from importlib.util import find_spec

import pytest
import verl.utils.tracking as verl_tracking

from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.training.patches.tracking import write_metrics


@pytest.fixture
def track(tmp_path, monkeypatch):
    """Logs two steps as the trainer does."""
    monkeypatch.setattr(verl_tracking, "Tracking", verl_tracking.Tracking)  # put back afterwards
    write_metrics(verl_tracking)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "tensorboard"))

    def run(backend):
        config = {"trainer": {"default_local_dir": str(tmp_path)}}
        tracking = verl_tracking.Tracking("cobalt", "run", default_backend=["console", backend], config=config)
        for step in (1, 2):
            tracking.log({"reward/total": step / 4}, step=step)
        return tracking

    yield run
    assert [record["reward/total"] for record in read_metrics(tmp_path / METRICS_FILE)] == [0.25, 0.5]


def test_weights_and_biases_offline(track, tmp_path):
    tracking = track("wandb")
    tracking.logger["wandb"].finish()
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    (binary,) = run.glob("*.wandb")
    deadline = time.monotonic() + 60  # a process of its own writes the file
    while b"reward/total" not in binary.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert b"reward/total" in binary.read_bytes()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
def test_tensorboard(track, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracking = track("tensorboard")
    tracking.logger["tensorboard"].finish()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.value for event in events.Scalars("reward/total")] == [0.25, 0.5]
