"""What the log of a training says of learning, and of its cost for each example."""

import re
from dataclasses import dataclass, fields
from pathlib import Path

from cobalt.rewards import RewardParts
from cobalt.training.training_log import SAVE_TIME, STEP_TIME, VALIDATION, TrainingLog, read_training_log

REWARD_PARTS = (*(f"reward/{part.name}" for part in fields(RewardParts)), "reward/pass_rate")
TURN_MEASURES = ("solved", "kept", "broken", "repaired", "repeated")
"""Of ``turn_T/<name>``: shares of the responses that follow T programs."""


@dataclass(frozen=True)
class LearningLog(TrainingLog):
    """With the number of examples, and the curves."""

    @property
    def batch_size(self) -> int:
        """Prompts (training examples) per step."""
        return self.config["data"]["train_batch_size"]

    @property
    def turns(self) -> set[int]:
        """Numbers of programs that responses of this training follow."""
        found = (re.fullmatch(r"turn_(\d+)/solved", name) for metrics in self.steps.values() for name in metrics)
        return {int(match[1]) for match in found if match}

    def validations(self) -> list[tuple[float, float]]:
        """(GPU-seconds of the steps so far, as in ``gpu_seconds``; share of responses that pass all tests)."""
        pairs, spent = [], 0.0
        for step, metrics in sorted(self.steps.items()):
            spent += (metrics.get(STEP_TIME, 0.0) - metrics.get(SAVE_TIME, 0.0)) * self.gpus_of(step)
            pairs += [(spent, value) for name, value in metrics.items() if VALIDATION.fullmatch(name)]
        return pairs

    @property
    def examples(self) -> int:
        """Training examples (prompts with all their samples) of the timed steps."""
        return self.timed_steps * self.batch_size


def read_learning_log(path: Path) -> LearningLog:
    """As ``read_training_log`` reads it."""
    return LearningLog(**vars(read_training_log(path)))
