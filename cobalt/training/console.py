"""The console of a training run: a bar with reward and seconds per step, and a summary at the end.

The hundreds of lines that Ray and veRL print go to a log.
"""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cobalt.cli.console import MUCH, print_next, print_summary, progress_bar
from cobalt.cli.entry import for_the_user
from cobalt.errors import ABOVE, CobaltError, root_cause
from cobalt.records.training_run import EDGE_STEPS, METRICS_FILE, edge_means, edge_steps, read_metrics, resumed_step
from cobalt.training.cluster import cause_of
from cobalt.training.preflight import total_steps
from cobalt.training.training_log import JUDGING, STEP_TIME

BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
"""Without tqdm's own rate: it would take the start-up for a step."""
REWARD, ACCURACY, UNSCORED = "reward/total", "reward/acc", "reward/infra"
GRADIENT = "actor/grad_norm"
STAGES = {
    "": "starting the workers, loading the model",
    "actor and ref model engine initialized": "starting the engine of rollouts",
    "ready to fit": "waiting for the first step",
}
"""What veRL 0.9.1 logs of its start, and what comes after."""
MEASURED = "val-core/"
"""What the names of a validation's scores begin with."""
MISMATCH = "rollout_corr/kl"
"""KL between the rollouts' policy and the trainer's. Large if vLLM does not have the policy's weights."""


@contextmanager
def quiet_console(log: Path, config: Any) -> Iterator[None]:
    """Everything that the body and its processes print goes to ``log``; the console shows a bar, then a summary.

    An error that is none of ours is written to the log and raised as ``CobaltError`` of one line. The descriptors stay
    redirected for what is printed when the program ends; ``sys.stdout`` and ``sys.stderr`` are the console's again.
    """
    folder, started = Path(config.trainer.default_local_dir), time.monotonic()
    steps, rollout = total_steps(config), config.actor_rollout_ref.rollout
    log.parent.mkdir(parents=True, exist_ok=True)
    print(
        f"training {config.actor_rollout_ref.model.path}: {steps or '?'} steps of {config.data.train_batch_size} "
        f"prompts with {rollout.n} responses each, {rollout.name} rollouts\noutput: {folder}\nlog:    {log}",
        flush=True,
    )
    console_out, console_err = (os.fdopen(os.dup(stream), "w") for stream in (1, 2))
    with open(log, "a") as file:
        of_this_run = file.tell()
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        begun = resumed_step(config.trainer)
        with steps_bar(folder / METRICS_FILE, log, begun, steps, console_err, _rewards) as timed:
            yield
    except CobaltError as error:
        if error.__cause__ is not None:
            with suppress(OSError):
                traceback.print_exc()
        raise type(error)(f"{error} (log: {log})") from error
    except Exception as error:
        from ray.exceptions import RayTaskError

        with suppress(OSError):  # a full disk has no room for a log, and is told all the same
            traceback.print_exc()
        cause = cause_of(error)  # without the traceback of its process
        if (known := for_the_user(cause)) is not None:
            raise type(known)(f"{known} (log: {log})") from error
        lines = str(cause).strip().splitlines() or [""]
        line = lines[-1] if isinstance(cause, RayTaskError) else f"{type(cause).__name__}: {lines[0]}"
        if ABOVE in line:
            line = root_cause(log.read_bytes()[of_this_run:].decode(errors="replace")) or line
        raise CobaltError(f"{line} (log: {log})") from error
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        sys.stdout, sys.stderr = console_out, console_err
        sys.unraisablehook = _to_log

    if config.trainer.val_only:
        measured = {record["step"]: record for record in read_metrics(folder / METRICS_FILE)}[begun]
        scores = {name: f"{value:.3f}" for name, value in measured.items() if name.startswith(MEASURED)}
        print_summary("Validation", {"step": begun, **scores, "output": folder, "log": log})
        return
    rows: dict[str, Any] = {"steps": len(timed) or "none: the run was finished already"}
    for name, title in ((REWARD, "reward"), (ACCURACY, "solved")):
        values = [record[name] for record in timed if name in record]
        if len(values) > 1:
            first, last = edge_means(values)
            steps = edge_steps(len(values))
            edge = "step" if steps == 1 else f"{steps} steps"
            rows[f"{title}, first and last {edge}"] = f"{first:.3f}, {last:.3f}"
        elif values:
            rows[title] = f"{values[0]:.3f}"
    if timed:
        rows["seconds per step"] = f"{sum(record[STEP_TIME] for record in timed) / len(timed):.1f}"
    mismatches = [(record[MISMATCH], int(record["step"])) for record in timed if MISMATCH in record]
    if mismatches:
        rows[f"largest {MISMATCH}"] = "{:.1e}, step {}".format(*max(mismatches))
    rows |= without_update(timed, GRADIENT)
    minutes = f"{(time.monotonic() - started) / 60:.1f}"
    print_summary("Training", {**rows, "minutes in all": minutes, "output": folder, "log": log})
    waited = sum(record.get(JUDGING, 0.0) for record in timed)
    if waited > MUCH * sum(record[STEP_TIME] for record in timed):
        print(
            f"Steps waited {waited / len(timed):.1f} s for programs, with nothing else to do: more cores, or a lower "
            "suite_cpu_limit_s for those that do not end, make this faster (docs/training.md)."
        )
    print_next(f"bash scripts/merge_checkpoint.sh {folder} models/{folder.name}")


def _to_log(unraisable: Any) -> None:
    """What coroutines that were waiting complain of as the program ends. The descriptor is the log's."""
    traceback.print_exception(unraisable.exc_value, file=sys.__stderr__)


def without_update(steps: Sequence[Mapping[str, float]], gradient: str) -> dict[str, str]:
    """A row of the summary if veRL left out updates, as it does where the norm ``gradient`` is not finite."""
    lost = [str(int(step["step"])) for step in steps if not math.isfinite(step.get(gradient, 0.0))]
    return {"steps without an update (gradient not finite)": ", ".join(lost)} if lost else {}


def _rewards(step: Mapping[str, float]) -> str:
    """The metrics of a step that the bar shows."""
    unscored = f", not scored {step[UNSCORED]:.0%}" if step.get(UNSCORED) else ""
    return f"reward {step.get(REWARD, math.nan):+.3f}, solved {step.get(ACCURACY, math.nan):.1%}{unscored}"


@contextmanager
def steps_bar(
    metrics: Path, log: Path, begun: int, steps: int | None, stream: Any, told: Callable[[Mapping[str, float]], str]
) -> Iterator[list[dict[str, float]]]:
    """A bar that follows the metrics, and the log before there are any, while the body runs. Gives the steps that this
    run adds to the metrics.

    ``begun``: the step that it goes on from; ``told``: what is shown of the last step, beside its seconds.
    """
    timed: list[dict[str, float]] = []
    known = metrics.read_bytes().rpartition(b"\n") if metrics.exists() else (b"", b"", b"")
    offset = len(known[0]) + len(known[1])  # a torn line is cut off later
    file_id = metrics.stat().st_ino if metrics.exists() else None
    logged = log.stat().st_size  # by runs before

    def look() -> None:
        nonlocal offset, file_id
        if metrics.exists():
            with open(metrics, "rb") as file:
                if file_id != (file_id := os.fstat(file.fileno()).st_ino):
                    offset = 0  # without the lost steps it is another file
                file.seek(offset)
                added, newline, _ = file.read().rpartition(b"\n")  # the last line may not be whole yet
            offset += len(added) + len(newline)
            records = map(json.loads, added.splitlines())
            timed.extend(record for record in records if STEP_TIME in record and record["step"] > begun)
        if timed:
            last = timed[-1]
            shown = f"{told(last)}, {last[STEP_TIME]:.1f} s/step"
            if bar.total:
                recent = [record[STEP_TIME] for record in timed[-EDGE_STEPS:]]
                left_s = (bar.total - last["step"]) * sum(recent) / len(recent)
                shown += f", {bar.format_interval(left_s)} left"
            bar.set_postfix_str(shown, refresh=False)
            bar.update(int(last["step"]) - bar.n)
        else:
            with open(log, "rb") as file:
                file.seek(logged)
                text = file.read().decode(errors="replace")
            bar.set_postfix_str([stage for line, stage in STAGES.items() if line in text][-1], refresh=False)

    with progress_bar(look, total=steps, bar_format=BAR, file=stream, delay=0) as bar:
        bar.set_postfix_str(STAGES[""])
        yield timed
