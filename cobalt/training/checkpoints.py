"""How a checkpoint comes into a training folder, and which stay: the last ones, and the best by validation.

veRL's own limit knows nothing of validation, forgets the checkpoints before a resume, and leaves parts of folders.
"""

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from cobalt.records.jsonl import naming
from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, read_metrics, saved_steps
from cobalt.training.training_log import VALIDATION

REMOVED = ".removed"
UNFINISHED = "checkpoint.unfinished"
"""Folder of a checkpoint while it is saved."""
ROOM_BYTES = 2**20
"""For the metrics of a step."""
VALIDATION_LOSS = "val/loss"
"""Of fine-tuning."""


@contextmanager
def whole_checkpoint(trainer: Any, name: str) -> Iterator[Path]:
    """What veRL saves in the body appears in the training folder whole or not at all, as does the tracker.

    ``trainer``: that section of the configuration; ``name``: of the checkpoint, whose folder this gives. Raises
    ``OSError`` where the disk is full then, also if nothing but the step's metrics would have no room.
    """
    folder = Path(trainer.default_local_dir)
    partial, checkpoint = folder / UNFINISHED, folder / name
    shutil.rmtree(partial, ignore_errors=True)  # of a training that was killed here
    partial.mkdir()
    trainer.default_local_dir = str(partial)
    try:
        try:
            yield checkpoint
        finally:
            refuse_full(folder)  # of which torch's error says nothing
        if checkpoint.exists():  # of a course that a resume left
            os.replace(checkpoint, partial / REMOVED)
        os.replace(partial / name, checkpoint)
        os.replace(partial / TRACKER_NAME, folder / TRACKER_NAME)
    finally:
        trainer.default_local_dir = str(folder)
        shutil.rmtree(partial, ignore_errors=True)


def refuse_full(folder: Path) -> None:
    """Raise ``OSError`` if the disk of ``folder`` is full."""
    with naming(folder), tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())


def remove_old_checkpoints(folder: str | Path, keep: int | None, step: int) -> None:
    """Leave the last ``keep`` checkpoints up to ``step``, the best by validation, and the one that a resume takes.

    None: all stay. Later ones are of another course that a resume left, and stay, too.
    """
    folder = Path(folder)
    for left in folder.glob(f"*{REMOVED}"):  # by a training that was killed here
        shutil.rmtree(left)
    saved = {number: path for number, path in saved_steps(folder).items() if number <= step}
    if keep is None or len(saved) <= keep:
        return
    kept = {*sorted(saved)[-keep:], int((folder / TRACKER_NAME).read_text())}
    validated = {number: score for number, score in validation_scores(folder).items() if number in saved}
    if validated:
        kept.add(max(validated, key=lambda number: (validated[number], number)))
    for number in saved.keys() - kept:
        gone = saved[number].with_name(saved[number].name + REMOVED)
        os.replace(saved[number], gone)  # at once: no half of a checkpoint is taken for one
        shutil.rmtree(gone)


def validation_scores(folder: Path) -> dict[int, float]:
    """By step, of those that have been validated: the share that passes, or the loss with its sign turned.

    Left out are those of which nothing could be scored.
    """
    scores = {}
    for metrics in read_metrics(folder / METRICS_FILE):
        shares = [value for name, value in metrics.items() if VALIDATION.fullmatch(name)]
        if shares or VALIDATION_LOSS in metrics:
            scores[int(metrics["step"])] = mean(shares) if shares else -metrics[VALIDATION_LOSS]
    return {step: score for step, score in scores.items() if math.isfinite(score)}
