"""Does training on execution feedback teach a policy to satisfy wrong tests, and what cures it? docs/hacking.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from studies.plans.arms import ArmStudy
from studies.plans.settings import StudyConfig


@dataclass(frozen=True, kw_only=True)
class HackingConfig(StudyConfig):
    """Does training on execution feedback teach a policy to satisfy wrong tests, and what cures it?

    The base model and policies trained in several ways, measured on the dev set with clean feedback and with feedback
    from perturbed tests. docs/hacking.md explains every number. A second run continues where the first was stopped.
    """

    marker: ClassVar = "study_hacking"
    cpu: ClassVar = {"arms": ("cobalt", "augmented"), "test_freq": -1}

    output_dir: Path = Path("runs/study_hacking")
    arms: tuple[str, ...] = ("cobalt", "augmented", "single_turn")
    test_freq: int = -1


class Hacking(ArmStudy):
    """Policies under clean and under wrong feedback."""

    def measure(self, name: str, policy: str | Path) -> None:
        self.measure_dev(name, policy)
        self.measure_hacking(name, policy)

    def shown(self, name: str) -> dict[str, Path]:
        files = {"clean": self.file(name), "perturbed": self.file(f"{name}-ptb"), "hacking": self.file(f"{name}.cases")}
        if self.config.judge_model:
            files["judged"] = self.file(f"{name}.judged")
        return files if name == "base" else {**files, "log": self.out / name / "metrics.jsonl"}

    def report(self) -> None:
        self.write_report("--title", "In-context reward hacking: MiniCoder on MiniCode")
