"""The studies of many policies: what each measures and reports.

research/results/paper-in-miniature.md, docs/hacking.md and research/theory/README.md explain them.
"""

import sys
from dataclasses import replace
from functools import partial
from math import gcd
from pathlib import Path
from typing import ClassVar, Literal, get_args

import tyro
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import Positive
from cobalt.perturbation import Kind
from research.plans.arms import Arm, ArmStudy, OneOrMore, StudyConfig
from research.plans.loop import CONTROL_TURNS, recipe_of
from research.plans.places import Item

Question = Literal["horizon", "cap", "selection", "kl", "lr", "group", "clip", "reference", "refresh", "stop"]


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


@dataclass(frozen=True, kw_only=True)
class PaperSweepConfig(StudyConfig):
    """The questions that the paper leaves open, a figure for each.

    Pass@1 on the dev set and on the shifted set, first program and last turn, over the values of one setting of Cobalt,
    all else as in `study paper`. In its folder, the default, what that study has made is not made again. Arms
    follow from the questions. The kind and share of wrong feedback: `python -m research study sweep-perturbation`.
    """

    marker: ClassVar = "sweep_paper"

    output_dir: Path = Path("runs/study_paper")
    questions: OneOrMore[Question] = get_args(Question)
    """horizon: turns of the trajectories that are learned from. cap: trajectories per problem. selection: which of
    them. kl: coefficient of the KL term. lr: learning rate. group: responses per prompt, as many in a step. clip: upper
    bound of the ratio, with two updates in a step. reference: who wrote the trajectories. refresh: steps after which
    the policy collects anew. stop: stop rule."""
    arms: tyro.conf.Suppress[tuple[str, ...]] = ()
    seeds: OneOrMore[int] = (0,)

    def with_arms(self) -> "PaperSweepConfig":
        """The arms of all questions, each once."""
        arms = [arm for question in self.questions for arm in self.cells(question)[1].values()]
        return replace(self, arms=tuple(dict.fromkeys(arms)))

    def cells(self, question: Question) -> tuple[str, dict[str, str]]:
        """The setting's name in the figure, and the arm of each value."""
        usual = recipe_of(self.preset).actor_rollout_ref
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
            case "lr":
                half, rate, double = (f"{usual.actor.optim.lr * k:.1e}".replace(".0e", "e") for k in (0.5, 1, 2))
                return "learning rate", {half: f"lr+{half}", rate: "cobalt", double: f"lr+{double}"}
            case "group":
                half, size, double = (str(int(usual.rollout.n * k)) for k in (0.5, 1, 2))
                return "responses per prompt (G)", {half: f"group+{half}", size: "cobalt", double: f"group+{double}"}
            case "clip":
                return "upper clip bound", {bound: f"clip+{bound}" for bound in ("0.2", "0.4", "10")}
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

    config_type = PaperSweepConfig
    config: PaperSweepConfig  # type: ignore[assignment]
    first = ("problems/minicode", "problems/shifted")

    def measure(self, name: str, policy: str | Path) -> None:
        self.measure_dev(name, policy)
        self.measure_shifted(name, policy)

    def report(self) -> None:
        for question in self.config.questions:
            title, cells = self.config.cells(question)
            policies = [(value, name) for value, arm in cells.items() for _, name in self.config.policies([arm])]
            points = [f"dev:{value}={self.file(name)}" for value, name in policies]
            points += [f"shifted:{value}={self.file(f'{name}-shifted')}" for value, name in policies]
            logs = [f"dev:{value}={self.out / name}/metrics.jsonl" for value, name in policies]
            turns = ["--turns", "0", str(self.config.turns), "--setting", title]
            output = ["--output_dir", self.out / "sweeps" / question]
            self.run("-m", "research", "report", "sweep", "--points", *points, "--logs", *logs, *turns, *output)
        self.tell(f"{sys.argv[0]}: done; {self.out}/sweeps")


@dataclass(frozen=True, kw_only=True)
class PerturbationSweepConfig(HackingConfig):
    """Which wrong feedback, and how much of it, keeps a policy from hacking?

    A cell for each kind of perturbation and share of perturbed contexts, beside Cobalt without any: `study
    hacking` with these arms, all measured under feedback of the same kind (--kind). Beside that study's report it draws
    Pass@1 at the last turn over the share, a line for each kind: sweeps/clean and sweeps/perturbed.
    """

    marker: ClassVar = "sweep_perturbation"
    cpu: ClassVar = {"test_freq": -1}

    output_dir: Path = Path("runs/sweep_perturbation")
    kinds: OneOrMore[Kind] = get_args(Kind)
    """Of perturbation in the contexts."""
    ratios: OneOrMore[str] = ("0.1", "0.3", "0.5")
    """Shares of perturbed contexts."""
    arms: tyro.conf.Suppress[tuple[str, ...]] = ()
    seeds: OneOrMore[int] = (0,)

    def with_arms(self) -> "PerturbationSweepConfig":
        """Cobalt, and the arms of all cells."""
        return replace(self, arms=("cobalt", *(f"{kind}+{ratio}" for kind in self.kinds for ratio in self.ratios)))


class PerturbationSweep(Hacking):
    """The hacking study with an arm for each cell."""

    config_type = PerturbationSweepConfig
    config: PerturbationSweepConfig  # type: ignore[assignment]

    def report(self) -> None:
        super().report()
        for feedback, ending in (("clean", ""), ("perturbed", "-ptb")):
            points = []
            for kind in self.config.kinds:
                for ratio, arm in [("0", "cobalt"), *((ratio, f"{kind}+{ratio}") for ratio in self.config.ratios)]:
                    names = [name for _, name in self.config.policies([arm])]
                    points += [f"{kind}:{ratio}={self.file(f'{name}{ending}')}" for name in names]
            setting = ["--setting", "share of perturbed contexts", "--output_dir", self.out / "sweeps" / feedback]
            self.run("-m", "research", "report", "sweep", "--feedback", feedback, "--points", *points, *setting)
        self.tell(f"{sys.argv[0]}: done; {self.out}/sweeps")
