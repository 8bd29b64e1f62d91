"""A process of preference optimisation: TRL's own trainer, started by ``torch.distributed.run``.

Its one argument is the file that ``cobalt dpo`` writes.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import convert_to_fp32
from datasets import load_from_disk
from transformers import AutoTokenizer, TrainerCallback
from trl.trainer.dpo_trainer import DPOTrainer

from cobalt.records.manifest import usual_modes, write_whole
from cobalt.records.training_run import TRACKER_NAME, append_metrics
from cobalt.training.dpo import CHECKPOINT, parsed
from cobalt.training.processes import end_with_launcher
from cobalt.training.training_log import STEP_TIME


class TokenPairs(DPOTrainer):
    """TRL's, on pairs that are tokenized already. TRL would render a conversation once more with each answer."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset

    def compute_ref_log_probs(self, model: Any, inputs: Any) -> Any:
        """TRL's, with the precision of training, for which accelerate has not wrapped the model yet."""

        def forward(**given: Any) -> Any:
            with self.accelerator.autocast():
                return convert_to_fp32(model(**given))

        return super().compute_ref_log_probs(forward, inputs)


class Record(TrainerCallback):
    """Metrics of each step, and the number of the last complete checkpoint, as of veRL.

    Raises ``FloatingPointError`` once a metric is not finite: Hugging Face's trainer would go on with a model of NaN.
    """

    def __init__(self, folder: Path):
        self._folder, self._begun = folder, time.monotonic()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.is_world_process_zero and "loss" in given["logs"]:  # else the run's sums at the end
            metrics = {f"train/{name}": value for name, value in given["logs"].items()}
            append_metrics(self._folder, state.global_step, {**metrics, STEP_TIME: time.monotonic() - self._begun})
            if lost := [name for name, value in metrics.items() if not math.isfinite(value)]:
                raise FloatingPointError(f"step {state.global_step}: not finite: {', '.join(lost)}")

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.is_world_process_zero:
            usual_modes(self._folder / CHECKPOINT.format(state.global_step))
            write_whole(self._folder / TRACKER_NAME, str(state.global_step))


def main() -> None:
    """Train."""
    end_with_launcher()
    torch.backends.cuda.enable_cudnn_sdp(False)  # its gradients can be NaN (engine.py)
    work = json.loads(Path(sys.argv[1]).read_text())
    pairs: Any = load_from_disk(work["pairs"])
    trainer = TokenPairs(
        work["model"],
        args=parsed(work["settings"], work["folder"]),
        train_dataset=pairs,
        processing_class=AutoTokenizer.from_pretrained(work["model"]),
        callbacks=[Record(Path(work["folder"]))],
    )
    trainer.train(resume_from_checkpoint=work["checkpoint"])


if __name__ == "__main__":
    main()
