"""``cobalt watch``: the curves of runs that have ended and of one that trains."""

import math
from contextlib import ExitStack

import pytest

from cobalt.errors import InputError
from cobalt.records.training_run import append_metrics, hold_folder, read_metrics
from cobalt.training import watch as watch_module
from cobalt.training.watch import WatchConfig, curve, watch


def test_an_ended_run_shows_the_curves_that_it_logs_and_returns(tmp_path, capsys):
    for step in range(1, 13):
        metrics = {
            "reward/total": step / 10 if step > 1 else math.nan,
            "reward/infra": 0.0,
            "timing_s/step": 2.5,
            "other": 1.0,
        }
        append_metrics(tmp_path, step, metrics | ({"val-core/code/acc/mean@1": 0.125} if step % 6 == 0 else {}))
    watch(WatchConfig(run=tmp_path / "metrics.jsonl"))
    shown = " ".join(capsys.readouterr().out.split())  # a long path moves words to the next line
    assert "step 12" in shown and "reward 1.2" in shown and "seconds per step 2.5" in shown
    assert "validation: solved 0.125" in shown and "steps 6 to 12; last 2: 0.125" in shown
    assert "steps 2 to 12; last 10: 0.75" in shown
    assert "not scored" not in shown, "nothing was lost"


def test_a_run_that_trains_is_followed_to_its_end(tmp_path, monkeypatch):
    """Before its first step there is no file, and its last line may be half written for a while."""
    seen, steps = [], iter((1, 2))
    monkeypatch.setattr(watch_module, "picture", lambda _folder, steps: seen.append(len(steps)) or "")

    def go_on(seconds):
        assert seconds == 0.5
        if (step := next(steps, None)) is None:
            training.close()
            return
        with open(tmp_path / "metrics.jsonl", "w") as file:
            file.write('{"step": 1}\n' + '{"step": 2, "rew'[: 16 * (step - 1)])

    monkeypatch.setattr("time.sleep", go_on)
    with ExitStack() as training:
        training.enter_context(hold_folder(tmp_path))
        with pytest.raises(InputError, match="line 2"):  # it was killed while it wrote
            watch(WatchConfig(run=tmp_path, every_s=0.5))
    assert seen == [1]


def test_a_folder_that_is_none_or_without_metrics_is_told(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: no such folder"):
        watch(WatchConfig(run=tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"metrics\.jsonl: no such file"):
        watch(WatchConfig(run=tmp_path))
    with pytest.raises(InputError, match="no such folder; take the OUTPUT_DIR of a training, or its metrics"):
        watch(WatchConfig(run=_touched(tmp_path / "other.jsonl")))
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="no step has ended"):
        watch(WatchConfig(run=tmp_path))


def test_a_training_that_goes_on_cuts_off_a_torn_line(tmp_path):
    append_metrics(tmp_path, 1, {"reward/total": 1.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "rew')
    with hold_folder(tmp_path):
        append_metrics(tmp_path, 2, {"reward/total": 2.0})
    assert [row["reward/total"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1.0, 2.0]


def _touched(path):
    path.touch()
    return path


@pytest.mark.parametrize("values", [[1.0], [0.0, 1.0], [math.sin(i / 9) for i in range(200)], [2.0] * 5])
def test_a_curve_has_a_dot_in_each_column_and_its_range_at_its_left(values):
    lines = curve(values, width=10, height=3)
    assert [len(line) for line in lines] == [20] * 3
    dots = [[ord(character) - 0x2800 for character in line[10:]] for line in lines]
    for column in range(10):
        both = dots[0][column] | dots[1][column] | dots[2][column]
        assert both & 0x47 and both & 0xB8, "left and right"
    assert float(lines[-1][:9]) == pytest.approx(min(values), abs=0.1)
    assert float(lines[0][:9]) == pytest.approx(max(values), abs=0.1)
