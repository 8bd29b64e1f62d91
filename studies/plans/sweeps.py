"""Pass@1 over the values of one setting of Cobalt, a figure for each question. docs/paper.md, docs/hacking.md."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import tyro

from studies.plans.arms import ArmStudy
from studies.plans.hacking import Hacking, HackingConfig
from studies.plans.settings import StudyConfig

Question = Literal["horizon", "cap", "selection", "kl", "reference", "refresh", "stop"]


@dataclass(frozen=True, kw_only=True)
class PaperSweepConfig(StudyConfig):
    """The questions that the paper leaves open, a figure for each.

    Pass@1 on the dev set and on the shifted set, first program and last turn, over the values of one setting of Cobalt,
    all else as in `cobalt study paper`. In its folder, the default, what that study has made is not made again. Arms
    follow from the questions. The kind and share of wrong feedback: `cobalt study sweep-perturbation`.
    """

    marker: ClassVar = "sweep_paper"

    output_dir: Path = Path("runs/study_paper")
    questions: tuple[Question, ...] = ("horizon", "cap", "selection", "kl", "reference", "refresh", "stop")
    """horizon: turns of the trajectories that are learned from. cap: trajectories per problem. selection: which of
    them. kl: coefficient of the KL term. reference: who wrote the trajectories. refresh: steps after which the policy
    collects anew. stop: stop rule."""
    arms: tyro.conf.Suppress[tuple[str, ...]] = ()
    seeds: tuple[int, ...] = (0,)

    def with_arms(self) -> "PaperSweepConfig":
        """The arms of all questions, each once."""
        arms = [arm for question in self.questions for arm in self.cells(question)[1].values()]
        return replace(self, arms=tuple(dict.fromkeys(arms)))

    def cells(self, question: Question) -> tuple[str, dict[str, str]]:
        """The setting's name in the figure, and the arm of each value."""
        match question:
            case "horizon":
                cells = {"1": "turns+1", "2": "turns+2", "3": "cobalt", "5": "turns+5"}
                return "turns learned from", cells
            case "cap":
                caps = [str(m) for m in (1, 2, 4, 8) if m < self.train_samples]
                return "trajectories per problem (m)", {m: f"cap+{m}" for m in (*caps, "all")}
            case "selection":
                cells = {"largest variance": "cobalt", "at random": "selection+random"}
                return "trajectories selected", {**cells, "smallest variance": "selection+min_variance"}
            case "kl":
                return "KL coefficient", {value: f"kl+{value}" for value in ("0", "1e-4", "1e-3", "1e-2", "1e-1")}
            case "reference":
                cells = {"own": "cobalt", "own, T 1.0": "temperature+1.0", "own, T 1.4": "temperature+1.4"}
                return "reference model", {**cells, "other": "other_reference", "trained": "trained_reference"}
            case "refresh":
                every = [steps for steps in (self.steps // 2, self.steps // 4) if steps]
                return "steps between collections", {"never": "cobalt", **{f"{n}": f"refreshed+{n}" for n in every}}
            case "stop":
                return "stop rule", {"released": "cobalt", "solved": "stop+solved", "none": "stop+none"}


class PaperSweep(ArmStudy):
    """Policies on both sets, one for each value of a setting."""

    config: PaperSweepConfig  # type: ignore[assignment]
    first = ("problems/minicode", "problems/shifted")

    def measure(self, name: str, policy: str | Path) -> None:
        self.measure_dev(name, policy)
        self.measure_shifted(name, policy)

    def report(self) -> None:
        for question in self.config.questions:
            title, cells = self.config.cells(question)
            policies = [(value, f"{arm}-{seed}") for value, arm in cells.items() for seed in self.config.seeds]
            points = [f"dev:{value}={self.file(name)}" for value, name in policies]
            points += [f"shifted:{value}={self.file(f'{name}-shifted')}" for value, name in policies]
            logs = [f"dev:{value}={self.out / name}/metrics.jsonl" for value, name in policies]
            turns = ["--turns", "0", str(self.config.turns), "--setting", title]
            output = ["--output_dir", self.out / "sweeps" / question]
            self.run("-m", "cobalt", "report", "sweep", "--points", *points, "--logs", *logs, *turns, *output)
        self.tell(f"{sys.argv[0]}: done; {self.out}/sweeps")


@dataclass(frozen=True, kw_only=True)
class PerturbationSweepConfig(HackingConfig):
    """Which wrong feedback, and how much of it, keeps a policy from hacking?

    A cell for each kind of perturbation and share of perturbed contexts, beside Cobalt without any: `cobalt study
    hacking` with these arms, all measured under feedback of the same kind (--kind). Beside that study's report it draws
    Pass@1 at the last turn over the share, a line for each kind: sweeps/clean and sweeps/perturbed.
    """

    marker: ClassVar = "sweep_perturbation"
    cpu: ClassVar = {"test_freq": -1}

    output_dir: Path = Path("runs/sweep_perturbation")
    kinds: tuple[str, ...] = ("swapped", "off_by_one", "other_problem", "truncated", "inconsistent")
    """Of perturbation in the contexts."""
    ratios: tuple[str, ...] = ("0.1", "0.3", "0.5")
    """Shares of perturbed contexts."""
    arms: tyro.conf.Suppress[tuple[str, ...]] = ()
    seeds: tuple[int, ...] = (0,)

    def with_arms(self) -> "PerturbationSweepConfig":
        """Cobalt, and the arms of all cells."""
        return replace(self, arms=("cobalt", *(f"{kind}+{ratio}" for kind in self.kinds for ratio in self.ratios)))


class PerturbationSweep(Hacking):
    """The hacking study with an arm for each cell."""

    config: PerturbationSweepConfig  # type: ignore[assignment]

    def report(self) -> None:
        super().report()
        for feedback, ending in (("clean", ""), ("perturbed", "-ptb")):
            points = []
            for kind in self.config.kinds:
                for ratio, arm in [("0", "cobalt"), *((ratio, f"{kind}+{ratio}") for ratio in self.config.ratios)]:
                    names = [f"{arm}-{seed}{ending}" for seed in self.config.seeds]
                    points += [f"{kind}:{ratio}={self.file(name)}" for name in names]
            setting = ["--setting", "share of perturbed contexts", "--output_dir", self.out / "sweeps" / feedback]
            self.run("-m", "cobalt", "report", "sweep", "--feedback", feedback, "--points", *points, *setting)
        self.tell(f"{sys.argv[0]}: done; {self.out}/sweeps")
