"""The studies of many policies: what each measures and reports.

research/results/paper-in-miniature.md, docs/hacking.md and research/theory/README.md explain them.
"""

import sys
from functools import partial
from math import gcd
from pathlib import Path
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import Positive
from research.plans.arms import Arm, ArmStudy, OneOrMore, StudyConfig
from research.plans.loop import CONTROL_TURNS
from research.plans.places import Item


@dataclass(frozen=True, kw_only=True)
class PaperConfig(StudyConfig):
    """The paper in miniature: from nothing to one report.

    MiniCoder on MiniCode, trained in every way that the paper compares on turns 0 to 2, measured at turns 0 to 8: on
    the dev set, on the shifted set, under another problem's feedback, and under wrong feedback.
    research/results/paper-in-miniature.md explains it. A second run continues where the first was stopped.
    """

    marker: ClassVar = "study_paper"
    cpu: ClassVar = {"arms": ("cobalt", "single_turn", "ft_cobalt", "grpo_online"), "hacked": (), "gpus": ("0", "0")}

    output_dir: Path = Path("runs/study_paper")
    arms: OneOrMore[str] = (
        "cobalt", "single_turn", "ft_cobalt", "grpo_online", "verpo_online", "augmented", "other_reference",
    )  # fmt: skip
    hacked: tuple[str, ...] = ("cobalt", "augmented")
    """Arms that are measured under wrong feedback, the base with them."""


class Paper(ArmStudy):
    """Policies on both sets, under another problem's feedback, and some under wrong feedback."""

    config_type = PaperConfig
    config: PaperConfig  # type: ignore[assignment]
    first = ("problems/minicode", "problems/shifted", "offline/base")

    def is_hacked(self, name: str) -> bool:
        """Whether the policy is measured under wrong feedback."""
        return bool(self.config.hacked) and name.rpartition("-")[0] in ("", *self.config.hacked)  # "": the base

    def measure(self, name: str, policy: str | Path) -> None:
        control_turns = min(self.config.turns, CONTROL_TURNS)
        self.measure_dev(name, policy)
        self.measure_shifted(name, policy)
        other = ("--feedback_from", "other_problem")
        self.repair_and_evaluate(f"{name}-control", f"{name}.turn0", policy, 1, control_turns, *other)
        if self.is_hacked(name):
            self.measure_hacking(name, policy)

    def shown(self, name: str) -> dict[str, Path]:
        files = {"clean": self.file(name)}
        files |= {ending: self.file(f"{name}-{ending}") for ending in ("shifted", "control")}
        if self.is_hacked(name):
            files |= {"perturbed": self.file(f"{name}-ptb"), "hacking": self.file(f"{name}.cases")}
        if name != "base":
            files |= {"cost": self.out / f"{name}.cost.json", "log": self.out / name / "metrics.jsonl"}
        return files

    def report(self) -> None:
        title = "The paper in miniature: MiniCoder on MiniCode"
        both_online = {"grpo_online", "verpo_online"} <= set(self.config.arms)
        pairs = ("--pairs", "GRPO-MT=VeRPO-MT") if both_online else ()
        self.write_report(self.shown, "--method", "Cobalt", *pairs, "--title", title)


@dataclass(frozen=True, kw_only=True)
class HackingConfig(StudyConfig):
    """Does training on execution feedback teach a policy to satisfy wrong tests, and what cures it?

    The base model and policies trained in several ways, measured on the dev set with clean feedback and with feedback
    from perturbed tests. docs/hacking.md explains every number. A second run continues where the first was stopped.
    """

    marker: ClassVar = "study_hacking"
    cpu: ClassVar = {"arms": ("cobalt", "augmented"), "test_freq": -1}

    output_dir: Path = Path("runs/study_hacking")
    arms: OneOrMore[str] = ("cobalt", "augmented", "single_turn")
    test_freq: int = -1


class Hacking(ArmStudy):
    """Policies under clean and under wrong feedback."""

    config_type = HackingConfig

    def measure(self, name: str, policy: str | Path) -> None:
        self.measure_dev(name, policy)
        self.measure_hacking(name, policy)

    def shown(self, name: str) -> dict[str, Path]:
        files = {"clean": self.file(name), "perturbed": self.file(f"{name}-ptb"), "hacking": self.file(f"{name}.cases")}
        return files if name == "base" else {**files, "log": self.out / name / "metrics.jsonl"}

    def report(self) -> None:
        self.write_report(self.shown, "--title", "In-context reward hacking: MiniCoder on MiniCode")


@dataclass(frozen=True, kw_only=True)
class TheoryConfig(StudyConfig):
    """The paper's bound, measured.

    MiniCoder is trained by Cobalt on MiniCode. The policies that a training passes through are held against the
    reference: J beside J_step, KL and total variation by turn, what a failed program costs later, and how the gap grows
    with the distance and the turns. research/theory/README.md says how. Trainings run on CPU cores, N_GPUS workers
    each; a GPU answers for the policies if there is one. A second run continues where the first was stopped.
    """

    marker: ClassVar = "study_theory"
    cpu: ClassVar = {"after": (1,), "test_freq": -1}

    output_dir: Path = Path("runs/study_theory")
    arms: OneOrMore[str] = ("cobalt",)
    steps: Positive = 20
    after: tuple[Positive, ...] = (1, 2, 5, 10)
    """Steps after which a training's policy is measured, beside the last. --plan leaves measuring out."""
    preset: str = "cpu"
    engine: Literal["hf", "vllm"] = "hf"
    dev_samples: Positive = 4
    test_freq: int = -1

    def training_overrides(self) -> tuple[str, ...]:
        saving = f"trainer.save_freq={gcd(*self.measured_steps())}", "cobalt.keep_checkpoints=null"
        return (*saving, *self.overrides)

    def measured_steps(self) -> list[int]:
        """The last one is included."""
        return sorted({*(step for step in self.after if step < self.steps), self.steps})


class Theory(ArmStudy):
    """Policies beside the reference model."""

    config_type = TheoryConfig
    config: TheoryConfig  # type: ignore[assignment]

    def measure(self, name: str, policy: str | Path) -> None:
        # as training and `theory measure` sample
        precision = ("--fp32",) if self.config.engine == "hf" else ()
        self.measure_dev(name, policy, "--temperature", "1", "--top_p", "1", *precision)
        self.stage(f"{name}-theory", self.compare, name, policy)

    def compare(self, name: str, policy: str | Path) -> None:
        """theory/NAME: the policy and the reference on the contexts of its trajectories."""
        self.stop_model()
        config = self.config
        models = ["--policy", policy, "--reference", config.model]
        files = ["--contexts", self.file("base"), "--own", self.file(name), "-o", self.file(f"theory/{name}")]
        limits = ["--max_tokens", config.max_tokens, "--seed", config.data_seed, "--batch_size", config.batch_size]
        self.run("-m", "research", "theory", "measure", *models, *files, "--enable_thinking", *limits)

    def policy(self, arm: Arm, seed: int) -> None:
        """Train only: what is measured are the checkpoints."""
        self.train(arm, seed)

    @classmethod
    def more_items(cls, config: StudyConfig) -> list[Item]:
        """Of all trainings the last step first, where the gap is largest; then from the first on."""
        assert isinstance(config, TheoryConfig)
        items = []
        *earlier, last = config.measured_steps()
        for step in (last, *earlier):
            for _, name in config.policies():
                work = partial(cls.checkpoint, policy=name, step=step)
                needs = (f"policy/{name}", "offline/base")
                items.append(Item("checkpoint", f"{name}-step-{step}", work, needs))
        return items

    def checkpoint(self, policy: str, step: int) -> None:
        """Measure what the policy was after so many steps."""
        name = f"{policy}-step-{step}"
        model = self.out / name / "model"
        merge = ["bash", "scripts/merge_checkpoint.sh", self.out / policy, model, "--step", str(step)]
        self.stage(f"{name}-merge", self.call, *merge, title=" ".join(map(str, merge)))
        self.measure(name, model)

    def report(self) -> None:
        steps = self.config.measured_steps()
        names = ["base", *(f"{name}-step-{step}" for _, name in self.config.policies() for step in steps)]
        files = [self.file(f"theory/{name}") for name in names]
        self.run("-m", "research", "theory", "report", "-i", *files, "-o", self.out / "report")
        self.tell(f"{sys.argv[0]}: done; {self.out}/report/report.md and the figures beside it")
