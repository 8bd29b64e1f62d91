"""The paper's bound, measured on policies with KL coefficients over three decades. docs/theory.md."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from cobalt.commands.flags import Positive
from studies.plans.arms import ArmStudy
from studies.plans.places import Item
from studies.plans.settings import StudyConfig


@dataclass(frozen=True, kw_only=True)
class TheoryConfig(StudyConfig):
    """The paper's bound, measured.

    MiniCoder is trained by Cobalt on MiniCode with KL coefficients over three decades. Each policy, and those that a
    training passes through, is held against the reference: J beside J_step, KL and total variation by turn, what a
    failed program costs later. docs/theory.md says how. A second run continues where the first was stopped.
    """

    marker: ClassVar = "study_theory"
    cpu: ClassVar = {"arms": ("kl+1e-3", "kl+1e-1"), "along": ("kl+1e-3",), "every": 1, "test_freq": -1}

    output_dir: Path = Path("runs/study_theory")
    arms: tuple[str, ...] = ("kl+1e-4", "kl+1e-3", "kl+1e-2", "kl+1e-1")
    along: tuple[str, ...] = ("kl+1e-4",)
    """Arms whose policies are also measured along their training."""
    every: Positive = 20
    """Training steps between these. --plan leaves them out."""
    seeds: tuple[int, ...] = (0,)
    turns: int = 4
    test_freq: int = -1

    def training_overrides(self) -> tuple[str, ...]:
        return (f"trainer.save_freq={self.every}", *self.overrides)


class Theory(ArmStudy):
    """Policies beside the reference model."""

    config: TheoryConfig  # type: ignore[assignment]
    measured_against = ("offline/base",)

    def measure(self, name: str, policy: str | Path) -> None:
        self.measure_dev(name, policy, "--temperature", "1", "--top_p", "1")  # as training and `theory measure` sample
        self.stage(f"{name}-theory", self.compare, name, policy)

    def compare(self, name: str, policy: str | Path) -> None:
        """theory/NAME: the policy and the reference on the contexts of its trajectories."""
        self.stop_model()
        config = self.config
        models = ["--policy", policy, "--reference", config.model]
        files = ["--contexts", self.file("base"), "--own", self.file(name), "-o", self.file(f"theory/{name}")]
        limits = ["--max_tokens", str(config.max_tokens), "--seed", str(config.data_seed)]
        batch = ["--batch_size", str(config.batch_size)]
        self.run("-m", "cobalt", "theory", "measure", *models, *files, "--enable_thinking", *limits, *batch)

    @staticmethod
    def steps_along(arm: str, config: TheoryConfig) -> range:
        """The steps after which a policy of this arm is also measured."""
        return range(config.every, config.steps, config.every) if arm in config.along else range(0)

    @classmethod
    def more_items(cls, config: StudyConfig) -> list[Item]:
        assert isinstance(config, TheoryConfig)
        return [
            Item(
                "checkpoint",
                f"{arm}-{seed}-step-{step}",
                partial(cls.checkpoint, policy=f"{arm}-{seed}", step=step),
                (f"policy/{arm}-{seed}",),
            )
            for arm in config.arms
            for seed in config.seeds
            for step in cls.steps_along(arm, config)
        ]

    def checkpoint(self, policy: str, step: int) -> None:
        """Measure what the policy was after so many steps."""
        name = f"{policy}-step-{step}"
        model = self.out / name / "model"
        merge = ["bash", "scripts/merge_checkpoint.sh", self.out / policy, model, "--step", str(step)]
        self.command_stage(f"{name}-merge", *merge)
        self.measure(name, model)

    def report(self) -> None:
        names = ["base"]
        for name, arm in ((f"{arm}-{seed}", arm) for arm in self.config.arms for seed in self.config.seeds):
            names += [*(f"{name}-step-{step}" for step in self.steps_along(arm, self.config)), name]
        files = [self.file(f"theory/{name}") for name in names]
        self.run("-m", "cobalt", "theory", "report", "-i", *files, "-o", self.out / "report")
        self.tell(f"{sys.argv[0]}: done; {self.out}/report/report.md and the figures beside it")
