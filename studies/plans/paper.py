"""The paper in miniature: every way of training that the paper compares, in one report. docs/paper.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from studies.plans.arms import ArmStudy
from studies.plans.settings import CONTROL_TURNS, StudyConfig


@dataclass(frozen=True, kw_only=True)
class PaperConfig(StudyConfig):
    """The paper in miniature: from nothing to one report.

    MiniCoder on MiniCode, trained in every way that the paper compares on turns 0 to 2, measured at turns 0 to 8: on
    the dev set, on the shifted set, under another problem's feedback, and under wrong feedback. docs/paper.md explains
    it. A second run continues where the first was stopped.
    """

    marker: ClassVar = "study_paper"
    cpu: ClassVar = {
        "arms": ("cobalt", "single_turn", "ft_cobalt", "grpo_online"),
        "hacked": (),
        "gpus": ("0", "0"),
    }

    output_dir: Path = Path("runs/study_paper")
    arms: tuple[str, ...] = (
        "cobalt",
        "single_turn",
        "ft_cobalt",
        "grpo_online",
        "verpo_online",
        "augmented",
        "other_reference",
    )
    hacked: tuple[str, ...] = ("cobalt", "augmented")
    """Arms that are measured under wrong feedback, the base with them."""


class Paper(ArmStudy):
    """Policies on both sets, under another problem's feedback, and some under wrong feedback."""

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
        self.write_report("--method", "Cobalt", *pairs, "--title", title)
