"""A process of fine-tuning on stored answers: veRL's own trainer, started by ``torch.distributed.run``.

Its one argument is the file of the resolved configuration.
"""

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from verl.trainer import sft_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.tracking import Tracking

from cobalt.records.training_run import append_metrics
from cobalt.training.checkpoints import UNFINISHED, remove_old_checkpoints, whole_checkpoint
from cobalt.training.processes import end_with_launcher
from cobalt.training.resume import CHECKPOINT
from cobalt.training.training_log import STEP_TIME


class RecordedTracking(Tracking):
    """veRL's logger, which also appends each call to ``metrics.jsonl``."""

    def __init__(self, *args: Any, config: Any, **kwargs: Any):
        super().__init__(*args, config=config, **kwargs)
        self._folder = config["trainer"]["default_local_dir"]

    def log(self, data: dict[str, Any], step: int, backend: Any = None) -> None:
        """Log as veRL does, and append one JSON object."""
        super().log(data, step, backend)
        append_metrics(self._folder, step, data)


class RftTrainer(sft_trainer.SFTTrainer):
    """veRL's, with its settings' seed, a step's seconds, every epoch after a resume, and few, whole checkpoints."""

    def __init__(self, config: Any):
        super().__init__(config)
        if self.resume_global_step and self.resume_global_step % self.steps_per_epoch == 0:
            # The loader's state says that all is read. It would give nothing, and the next epoch would be skipped.
            self._build_dataloader()
            self.ckpt_handler.train_dataloader = self.train_dataloader
        handler, save_checkpoint = self.ckpt_handler, self.ckpt_handler.save_checkpoint

        def save(step: int) -> None:
            folder = handler.default_local_dir
            with whole_checkpoint(handler, CHECKPOINT.format(step)) if self.rank == 0 else nullcontext():
                torch.distributed.barrier()  # the folder is there; veRL's own at the end: all ranks have saved
                handler.default_local_dir = str(Path(folder, UNFINISHED))
                save_checkpoint(step=step)
            handler.default_local_dir = folder
            if self.rank == 0:
                remove_old_checkpoints(folder, self.config.cobalt.keep_checkpoints, step)

        handler.save_checkpoint = save

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        self.train_sampler.seed = self.config.trainer.seed  # veRL does not read it

    def _build_engine(self) -> None:
        super()._build_engine()
        train_batch = self.training_client.train_batch

        def timed(data: Any) -> Any:
            started = time.monotonic()
            output = train_batch(data=data)
            if self.engine.is_mp_src_rank_with_outputs():
                tu.get(output, "metrics")[STEP_TIME] = time.monotonic() - started
            return output

        self.training_client.train_batch = timed


def main() -> None:
    """Train."""
    end_with_launcher()
    config = OmegaConf.load(sys.argv[1])
    if os.environ.get("VERL_PLATFORM") == "cpu":
        from cobalt.training import cpu

        cpu.register()
    module: Any = sft_trainer
    module.Tracking, module.SFTTrainer = RecordedTracking, RftTrainer
    sft_trainer.run_sft(config)


if __name__ == "__main__":
    main()
