"""Which checkpoints of a training stay: the last ones, and the best by validation.

veRL's own limit knows nothing of validation, forgets the checkpoints before a resume, and leaves parts of folders.
"""

import os
import shutil
from pathlib import Path
from statistics import mean

from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, read_metrics, saved_steps
from cobalt.training.training_log import VALIDATION

REMOVED = ".removed"
VALIDATION_LOSS = "val/loss"
"""Of fine-tuning."""


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
    """By step, of those that have been validated: the share that passes, or the loss with its sign turned."""
    scores = {}
    for metrics in read_metrics(folder / METRICS_FILE):
        shares = [value for name, value in metrics.items() if VALIDATION.fullmatch(name)]
        if shares or VALIDATION_LOSS in metrics:
            scores[int(metrics["step"])] = mean(shares) if shares else -metrics[VALIDATION_LOSS]
    return scores
