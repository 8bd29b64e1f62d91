"""What a person sees of a training run: what runs, a bar with reward and seconds per step, a summary.

The rest, hundreds of lines of Ray's and veRL's, goes to a log.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cobalt.cli.console import print_summary, progress_bar
from cobalt.errors import CobaltError
from cobalt.records.training_run import EDGE_STEPS, METRICS_FILE, edge_means, edge_steps
from cobalt.training.preflight import total_steps

REFRESH_S = 1.0
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
"""Without tqdm's own rate, which would count the start as a step's."""
REWARD, ACCURACY, UNSCORED, SECONDS = "reward/total", "reward/acc", "reward/infra", "timing_s/step"
Metrics = Mapping[str, float]


@contextmanager
def quiet_console(log: Path, config: Any) -> Iterator[None]:
    """Everything that the body and its processes print goes to ``log``; the console shows a bar, then a summary.

    An error that is none of ours is written to the log and raised as ``CobaltError`` of one line. The descriptors stay
    redirected for what is printed when the program ends; ``sys.stdout`` and ``sys.stderr`` are the console's again.
    """
    folder, started = Path(config.trainer.default_local_dir), time.monotonic()
    steps = total_steps(config)
    log.parent.mkdir(parents=True, exist_ok=True)
    print(_announcement(config, steps, log), flush=True)
    console_out, console_err = (os.fdopen(os.dup(stream), "w") for stream in (1, 2))
    with open(log, "a") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    watched = MetricsWatch(folder / METRICS_FILE)
    try:
        with _bar(watched, steps, console_err):
            yield
    except CobaltError as error:
        raise type(error)(f"{error} (log: {log})") from error
    except Exception as error:
        traceback.print_exc()
        raise CobaltError(f"{_one_line(error)} (log: {log})") from error
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = console_out, console_err
    print_summary("Training", _summary(watched.records, folder, time.monotonic() - started, log))
    print(f"next: bash scripts/merge_checkpoint.sh {folder} models/{folder.name}")


class MetricsWatch:
    """The records that a run adds to its metrics file."""

    def __init__(self, path: Path):
        self._path, self._offset = path, path.stat().st_size if path.exists() else 0
        self.records: list[Metrics] = []

    def read(self) -> None:
        """Take in the whole lines that were added since the last call."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            added, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(added) + len(newline)
        self.records += [json.loads(line) for line in added.splitlines()]


@contextmanager
def _bar(watched: MetricsWatch, steps: int | None, stream: Any) -> Iterator[None]:
    """A bar that follows the metrics while the body runs."""
    ended = threading.Event()
    with progress_bar(total=steps, bar_format=BAR, file=stream) as bar:
        bar.set_postfix_str("starting the workers, loading the model")

        def follow() -> None:
            while not ended.wait(max(REFRESH_S, bar.mininterval)):
                _show(bar, watched)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()
            _show(bar, watched)
            bar.refresh()


def _show(bar: Any, watched: MetricsWatch) -> None:
    watched.read()
    timed = [record for record in watched.records if SECONDS in record]
    if not timed:
        bar.refresh()  # the time goes on
        return
    last = timed[-1]
    unscored = f", not scored {last[UNSCORED]:.0%}" if last.get(UNSCORED) else ""
    shown = f"reward {last.get(REWARD, float('nan')):+.3f}, solved {last.get(ACCURACY, float('nan')):.1%}{unscored}"
    shown += f", {last[SECONDS]:.1f} s/step"
    if bar.total:
        recent = [record[SECONDS] for record in timed[-EDGE_STEPS:]]
        shown += f", {bar.format_interval((bar.total - last['step']) * sum(recent) / len(recent))} left"
    bar.set_postfix_str(shown, refresh=False)
    if not bar.update(int(last["step"]) - bar.n):
        bar.refresh()


def _announcement(config: Any, steps: int | None, log: Path) -> str:
    data, rollout = config.data, config.actor_rollout_ref.rollout
    return (
        f"training {config.actor_rollout_ref.model.path}: {steps or '?'} steps of {data.train_batch_size} prompts with "
        f"{rollout.n} responses each, {rollout.name} rollouts\n"
        f"output: {config.trainer.default_local_dir}\nlog:    {log}"
    )


def _summary(records: list[Metrics], folder: Path, seconds: float, log: Path) -> dict[str, Any]:
    timed = [record for record in records if SECONDS in record]
    rows: dict[str, Any] = {"steps": len(timed) or "none: the run was finished already"}
    for name, title in ((REWARD, "reward, first and last {} steps"), (ACCURACY, "solved, first and last {} steps")):
        if values := [record[name] for record in timed if name in record]:
            first, last = edge_means(values)
            rows[title.format(edge_steps(len(values)))] = f"{first:.3f}, {last:.3f}"
    if timed:
        rows["seconds per step"] = f"{sum(record[SECONDS] for record in timed) / len(timed):.1f}"
    return {**rows, "minutes in all": f"{seconds / 60:.1f}", "output": folder, "log": log}


def _one_line(error: BaseException) -> str:
    """The cause of an error that may come from another process, without its traceback."""
    from ray.exceptions import RayTaskError

    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if isinstance(error, RayTaskError) else f"{type(error).__name__}: {lines[0]}"
