"""Training on stored answers in processes of ``torch.distributed.run``, recorded and shown as that of ``cobalt train``.

A worker is a module that takes one argument, the file of its settings. It appends to ``metrics.jsonl`` and names
complete checkpoints as veRL does, in ``latest_checkpointed_iteration.txt``.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cobalt.cli.console import print_next, print_summary
from cobalt.cli.entry import for_the_user
from cobalt.errors import CobaltError, raised_in
from cobalt.records import Manifest
from cobalt.records.training_run import METRICS_FILE, hold_folder, set_lost_steps_aside
from cobalt.sandbox.inside.kernel import die_with_parent
from cobalt.training.checkpoints import refuse_full
from cobalt.training.cluster import KILLED, logger_variables
from cobalt.training.console import steps_bar, without_update
from cobalt.training.training_log import STEP_TIME

LOG_FILE = "train.log"
LOSS, GRADIENT = "train/loss", "train/grad_norm"
_KILLED = re.compile(r"Signal \d+ .* received by PID (\d+)")
"""Of ``torch.distributed.run``. The processes that are left fail later, and name the network."""


def train_in_processes(
    manifest: Manifest,
    begun: int,
    steps: int,
    worker: str,
    settings: str,
    processes: int,
    variables: Mapping[str, str],
    log: Path | None,
) -> None:
    """Run ``worker`` in so many processes until step ``steps``, and tell of it. Raises ``CobaltError``, and
    ``OSError`` where the disk is full.

    ``begun``: the step that it goes on from; ``settings``: the text of its file; ``variables``: more of its
    environment; ``log``: what the processes print, by default ``train.log`` in the folder.
    """
    folder = manifest.output
    log = log or folder / LOG_FILE
    with hold_folder(folder), tempfile.NamedTemporaryFile("w", suffix=".settings") as file:
        set_lost_steps_aside(folder, begun)
        manifest.start()
        file.write(settings)
        file.flush()
        log.parent.mkdir(parents=True, exist_ok=True)
        print(f"training: {steps} steps\noutput: {folder}\nlog:    {log}", flush=True)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        command = ["setpriv", "--pdeathsig", "KILL", *launcher, "-m", worker, file.name]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **logger_variables(folder), **variables}
        with open(log, "ab") as output, steps_bar(folder / METRICS_FILE, log, begun, steps, sys.stderr, _loss) as timed:
            before = output.tell()  # of earlier runs
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if code:
            refuse_full(folder)
            printed = log.read_bytes()[before:].decode(errors="replace")
            failure = f"training failed: {last_error(printed)} (log: {log})"
            raise for_the_user(RuntimeError(failure)) or CobaltError(failure)
        manifest.counts["steps"] = steps
        manifest.done()
    shown: dict[str, Any] = {"steps": len(timed)}
    if timed:
        shown["loss, first and last step"] = f"{timed[0][LOSS]:.4f}, {timed[-1][LOSS]:.4f}"
        shown["seconds per step"] = f"{sum(step[STEP_TIME] for step in timed) / len(timed):.1f}"
    print_summary("Training", {**shown, **without_update(timed, GRADIENT), "output": folder, "log": log})
    print_next(f"bash scripts/merge_checkpoint.sh {folder} models/{folder.name}")


def end_with_launcher() -> None:
    """For a worker: otherwise it would write into a folder that a second run has taken over."""
    die_with_parent(os.getppid())


def last_error(printed: str) -> str:
    """Who was killed first, or the line that names a worker's exception."""
    if killed := _KILLED.search(printed.rpartition("Root Cause")[2]):
        return KILLED.format(f"process {killed[1]} (a worker)")
    return next((line for line in reversed(raised_in(printed)) if "ChildFailedError" not in line), "no error is named")


def _loss(step: Mapping[str, float]) -> str:
    return f"loss {step.get(LOSS, math.nan):.4f}"
