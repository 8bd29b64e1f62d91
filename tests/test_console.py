"""What a person sees of a command besides its errors: the summary and the bar."""

import threading
from itertools import count

import pytest

from cobalt.cli import console
from cobalt.cli.console import print_summary, progress_bar


def test_a_summary_rounds_folds_no_path_and_tells_this_run_from_all(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/folder" * 30
    print_summary(f"Of {path}", {"output": path, "turns": 12345, "cost_usd": None}, {"executor_cpu_s": 0.09266159})
    lines = [f"Of {path}", f"  output          {path}", "  turns           12,345"]
    assert capsys.readouterr().out.splitlines() == [*lines, "this run alone:", "  executor_cpu_s  0.0927"]


def test_a_bar_of_what_is_refused_at_once_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="bad row"), progress_bar(total=3):
        raise ValueError("bad row")
    assert capsys.readouterr().err == ""


def test_a_bars_time_goes_on_while_nothing_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LOG_INTERVAL_S", 0.01)
    enough, looks = threading.Event(), count(1)

    def look() -> None:
        bar.set_postfix_str(f"waiting {bar.n}", refresh=False)
        if next(looks) > 5:
            enough.set()

    with progress_bar(look, total=3) as bar:
        enough.wait()
        bar.update(3)
    *before, last, end = capsys.readouterr().err.replace("\n", "\r\n").split("\r")
    assert sum("0/3" in line and "waiting 0" in line for line in before) > 3
    assert "3/3" in last and "waiting 3" in last and end == "\n"
