"""Ways to train MiniCoder on MiniCode, and the study of many of them."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from annotated_types import Ge
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from cobalt.bandit.builder import Selection, StopRule
from cobalt.cli.flags import NotNegative, Positive, Share
from cobalt.errors import InputError
from cobalt.perturbation import Kind
from cobalt.records.identity import refuse_missing_model
from research.plans.loop import (
    LEARNING_TURNS,
    WITHOUT_END,
    Loop,
    LoopConfig,
    Model,
    recipe_of,
    refuse_missing_gpus,
)
from research.plans.places import Folder, Item, work_through

USUAL_S = {("gpu", "offline"): 100, ("gpu", "policy"): 400, ("cpu", "offline"): 40, ("cpu", "policy"): 150}
"""Seconds of an item as long as none is done. One at a time on an H200, with the engine hf: trajectories to learn from
100, a training 240, merging 14, measuring a set 64. On two CPU cores: 40, and 85, 7, 25."""

Value = TypeVar("Value")


def named_once(values: tuple[Value, ...]) -> tuple[Value, ...]:
    if not values:
        raise ValueError("names none")
    if len(set(values)) < len(values):
        raise ValueError("names one twice")
    return values


OneOrMore = Annotated[tuple[Value, ...], AfterValidator(named_once)]


@dataclass(frozen=True, kw_only=True)
class StudyConfig(LoopConfig):
    """What every study of many policies needs."""

    marker: ClassVar[str]
    """Begins the names of the study's own files in ``done/``."""
    cpu: ClassVar[dict[str, Any]] = {}
    """The defaults of this study with ``--size cpu``, where they differ from ``SMALL``."""

    size: Literal["gpu", "cpu"] = "gpu"
    """Which defaults. gpu: one or more GPUs, hours. cpu: two cores, minutes; it shows that it works, no effect."""
    arms: OneOrMore[str] = ()
    """Ways to train; research/results/paper-in-miniature.md names them all."""
    seeds: OneOrMore[int] = (0, 1, 2)
    """Training seeds. An arm with a seed is a policy."""
    reference: str | None = None
    """The reference model of the arm other_reference, a folder (`study minicoder --size small --seed 1` makes one)."""
    shifted_problems: Positive = 200
    """Problems of the shifted set, in the studies that measure on it."""
    turns: NotNegative = 8
    """Turns after the first when measuring."""
    kind: Kind = "swapped"
    """How tests are perturbed (run_perturbation.py --kind), for measuring and in the arm augmented."""
    perturbed_ratio: Share = 0.3
    """Share of perturbed contexts in the arm augmented."""
    penalty: float = 0.5
    """Of the arm penalty, where the dynamic check fires."""
    weak_tests: Share = 1.0
    """Share of the problems whose reward comes from a single test, in the arms weak+ARM."""
    budget: Literal["gpu_seconds", "responses", "steps"] = "gpu_seconds"
    """What the online arms have the same of: GPU-seconds or responses in cobalt's whole bill with the same seed, or
    steps."""
    test_freq: Annotated[int, Ge(-1)] = 10
    """Steps between validations, which learning curves are made of. -1: none."""
    gpus: tuple[str, ...] = ()
    """Places to work in, for example 0 1 2: one policy at a time in each, with services of its own. A GPU may be named
    more than once; `0,1 2,3` are two GPUs each. Default: one policy after the other."""
    plan: bool = False
    """Only say what is left to do and about how long it takes."""

    def text(self) -> str:
        """What a folder of results is known by. A study with other settings needs another folder."""
        free = {"output_dir", "size", "arms", "seeds", "shifted_problems", "test_freq", "engine_args", "gpus", "plan"}
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(StudyConfig)}
        kept = {name: value for name, value in kept.items() if name not in free}
        return json.dumps({**kept, "overrides": self.training_overrides()})

    def training_overrides(self) -> tuple[str, ...]:
        """The hydra overrides of all trainings."""
        return self.overrides

    def policies(self, arms: Sequence[str] | None = None) -> list[tuple[str, str]]:
        """Arm and name of each policy, of ``arms`` if they are given."""
        return [(arm, f"{arm}-{seed}") for arm in (self.arms if arms is None else arms) for seed in self.seeds]


SMALL: dict[str, Any] = {
    "size": "cpu", "seeds": (0,), "turns": 2, "steps": 2, "preset": "cpu", "engine": "hf", "batch_size": 64,
    "train_problems": 24, "dev_problems": 12, "shifted_problems": 12, "train_samples": 4, "dev_samples": 2,
    "budget": "steps", "test_freq": 2,
}  # fmt: skip
"""The defaults with ``--size cpu``."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """A way to train. With a training seed it is a policy, ARM-SEED."""

    label: str = ""
    """In reports. Default: Cobalt and the name."""
    name: str = ""
    recipe: str = "grpo_multi_turn"
    trajectories: str = "train"
    """That it learns from, unless ``collector`` collects them."""
    contexts: str = "contexts-cobalt"
    """Cut from the trajectories with ``flags``."""
    flags: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Hydra overrides."""
    kind: str = ""
    """Of wrong feedback, in a share ``ratio`` of the contexts."""
    ratio: str = ""
    start: str = ""
    """The arm whose policy it starts from. Default: the reference model."""
    collector: str = ""
    """The arm whose policy collects for it. Default: the reference model has collected ``trajectories``."""
    every: int = WITHOUT_END
    """Steps from one collection to the next."""

    @property
    def is_online(self) -> bool:
        return self.recipe.endswith("_online")


def arm_of(name: str, config: StudyConfig) -> Arm:
    """The arm of this name. Raises ``InputError``. research/results/paper-in-miniature.md says what each is for."""
    first, _, value = name.partition("+")
    reward, contexts = "+reward.custom_reward_function.reward_kwargs", f"contexts-{name}"
    recipe = recipe_of(config.preset)
    prompts = recipe.data.train_batch_size
    mini_batch = "actor_rollout_ref.actor.ppo_mini_batch_size"
    named = {
        "cobalt": Arm("Cobalt"),
        "single_turn": Arm("single-turn GRPO", recipe="grpo_single_turn"),
        "grpo_online": Arm("GRPO-MT", recipe="grpo_online"),
        "verpo_online": Arm("VeRPO-MT", recipe="verpo_online"),
        "ft_cobalt": Arm("single-turn GRPO + Cobalt", start="single_turn", collector="single_turn"),
        "other_reference": Arm("Cobalt, other reference", trajectories="train-other", contexts="contexts-other"),
        "augmented": Arm("Cobalt + perturbation", kind=config.kind, ratio=f"{config.perturbed_ratio:g}"),
        "trained_reference": Arm(collector="cobalt"),
        # Against hacking.
        "hidden_tests": Arm("Cobalt, hidden tests only", contexts=contexts, flags=("--reward_tests", "hidden")),
        "no_improvement": Arm("Cobalt, no improvement", settings=(f"{reward}.improvement=false",)),
        "penalty": Arm("Cobalt, penalty", settings=(f"{reward}.hard_coding={config.penalty:g}",)),
        "no_expected": Arm("Cobalt, no expected output", contexts=contexts, flags=("--hide_expected",)),
    }
    with_value = {}
    if value in get_args(Selection):
        with_value["selection"] = Arm(contexts=contexts, flags=("--selection", value))
    if value in get_args(StopRule):
        with_value["stop"] = Arm(contexts=contexts, flags=("--stop_rule", value))
    if re.fullmatch(r"\d+(\.\d+)?(e-\d+)?", value):
        clip = f"actor_rollout_ref.actor.clip_ratio_high={value}"
        with_value["kl"] = Arm(settings=(f"actor_rollout_ref.actor.kl_loss_coef={value}",))
        with_value["lr"] = Arm(settings=(f"actor_rollout_ref.actor.optim.lr={value}",))
        with_value["clip"] = Arm(settings=(clip, f"{mini_batch}={prompts // 2}"))
        with_value["temperature"] = Arm(trajectories=f"train-temperature-{value}", contexts=contexts)
    most = str(config.train_samples) if value == "all" else value
    if most.isdecimal() and most[0] != "0":
        with_value["cap"] = Arm(contexts=contexts, flags=("--max_trajectories", most))
    if value.isdecimal() and value[0] != "0":
        as_many = prompts * recipe.actor_rollout_ref.rollout.n // int(value)  # responses in a step
        sizes = (f"data.train_batch_size={as_many}", f"{mini_batch}={as_many}")
        with_value["group"] = Arm(settings=(f"actor_rollout_ref.rollout.n={value}", *sizes))
        with_value["turns"] = Arm(trajectories=f"train-turns-{value}", contexts=contexts, flags=("--num_turns", value))
        with_value["refreshed"] = Arm(every=int(value))
    if first == "weak" and (arm := arm_of(value, config)).recipe == "grpo_multi_turn":
        flags = (*arm.flags, "--weak_tests", f"{config.weak_tests:g}")
        return replace(arm, name=name, label=f"{arm.label}, weak tests", contexts=contexts, flags=flags)
    if name in named:
        arm = named[name]
    elif first in with_value:
        arm = with_value[first]
    elif first in get_args(Kind) and re.fullmatch(r"0\.\d+", value):
        arm = Arm(f"Cobalt + {name}", kind=first, ratio=value)
    else:
        raise InputError(f"no arm '{name}'; research/results/paper-in-miniature.md names them")
    if arm.kind:
        arm = replace(arm, contexts=f"contexts-{arm.kind}-{arm.ratio}")
    return replace(arm, name=name, label=arm.label or f"Cobalt, {name}")


class ArmStudy(Loop):
    """Policies of several arms, each trained, billed and measured. A study says what it measures and reports."""

    config_type: ClassVar[type[StudyConfig]]
    config: StudyConfig  # type: ignore[assignment]
    first: ClassVar[tuple[str, ...]] = ("problems/minicode", "offline/base")
    """What comes before all policies."""

    def measure(self, name: str, policy: Model) -> None:
        """Everything that the report shows of a policy."""
        raise NotImplementedError

    def report(self) -> None:
        """Write the report, and say where."""
        raise NotImplementedError

    def write_report(self, shown: Callable[[str], dict[str, Path]], *flags: str) -> None:
        """Tables and figures of the base and of all policies, whose files ``shown`` gives by what they are."""
        policies = [(arm_of(arm, self.config).label, name) for arm, name in self.config.policies()]
        named = [("base", "base"), *policies]
        files = [f"{label}:{kind}={file}" for label, name in named for kind, file in shown(name).items()]
        shutil.rmtree(self.out / "report", ignore_errors=True)  # the report command refuses one of other arms or seeds
        words = ("--output_dir", self.out / "report", "--baseline", "base", *flags)
        self.run("-m", "research", "report", "--files", *files, *words)
        self.tell(f"{sys.argv[0]}: done; open {self.out}/report/report.html")

    # What there is to do, and in which order.

    @classmethod
    def items(cls, config: StudyConfig) -> list[Item]:
        """The work for these arms and seeds. Raises ``InputError``."""
        problems = tuple(item for item in cls.first if item.startswith("problems/"))
        # What is made before the policies, and what that needs. Policies that need a later one come last.
        offline = {item: problems if item.startswith("offline/") else () for item in cls.first}
        wrong: dict[str, tuple[str, ...]] = {}
        policies: dict[str, Item] = {}
        later: list[Item] = []
        for arm in (arm_of(name, config) for name in config.arms):
            needs = [*problems]
            if arm.trajectories == "train-other" and not Path(config.reference or "").is_dir():
                raise InputError(f"the arm {arm.name}: --reference {config.reference} is no folder")
            if arm.recipe == "grpo_multi_turn" and not arm.collector:
                needs.append(f"offline/{arm.trajectories}")
                offline[needs[-1]] = problems
            if arm.kind:
                needs.append(f"offline/train-ptb-{arm.kind}")
                wrong[needs[-1]] = (*problems, "offline/train")
            # the arm whose policy or bill it needs
            needed = "cobalt" if arm.is_online and config.budget != "steps" else arm.collector or arm.start
            if needed and needed not in config.arms:
                raise InputError(f"the arm {arm.name} needs {needed}: add it to --arms")
            for seed in config.seeds:
                earlier = f"policy/{needed}-{seed}" if needed else ""
                work = partial(cls.policy, arm=arm, seed=seed)
                item = Item("policy", f"{arm.name}-{seed}", work, (*needs, earlier))
                if earlier in ("", *policies):
                    policies[item.id] = item
                else:
                    later.append(item)
        made = {"problems": cls.problems, "offline": cls.offline}
        before = [(*item.split("/"), needs) for item, needs in {**offline, **wrong}.items()]
        prepared = [Item(kind, name, partial(made[kind], name=name), needs) for kind, name, needs in before]
        return [*prepared, *policies.values(), *later]

    @classmethod
    def more_items(cls, config: StudyConfig) -> list[Item]:
        """Work after that, which the plan leaves out."""
        return []

    # The items.

    def problems(self, name: str) -> None:
        """minicode: minicode_train and minicode_dev. shifted: minicode_shifted."""
        self.make_problems(self.config.shifted_problems if name == "shifted" else 0)

    def offline(self, name: str) -> None:
        """The base policy's measurement, or trajectories to learn from."""
        model, value = self.config.model, name.split("-", 2)[-1]
        if name == "base":
            self.measure("base", model)
        elif name == "train-other":
            self.collect(name, str(self.config.reference))
        elif name.startswith("train-ptb-"):
            self.mislead("train", model, self.config.train_samples, LEARNING_TURNS, value, f"ptb-{value}")
        elif name.startswith("train-turns-"):
            self.collect(name, model, int(value) - 1)
        elif name.startswith("train-temperature-"):
            self.collect(name, model, LEARNING_TURNS, "--temperature", value)
        else:
            self.collect(name, model)

    def policy(self, arm: Arm, seed: int) -> None:
        """Train and measure a policy."""
        name = self.train(arm, seed)
        self.measure(name, self.out / name / "model")

    def train(self, arm: Arm, seed: int) -> str:
        """The policy's name. It is trained in as many rounds as it collects anew."""
        name, steps = f"{arm.name}-{seed}", self.config.steps
        start, collector = (other and f"{other}-{seed}" for other in (arm.start, arm.collector))
        rounds = 0
        while steps > arm.every:
            rounds += 1
            self.learn(f"{name}.{rounds}", arm, start, collector, arm.every, seed)
            start = collector = f"{name}.{rounds}"
            steps -= arm.every
        self.learn(name, arm, start, collector, steps, seed)
        return name

    def learn(self, name: str, arm: Arm, start: str, collector: str, steps: int, seed: int) -> None:
        """Train NAME from the policy ``start`` (none: the reference model) on what ``collector`` has collected."""
        config, trajectories, data = self.config, "", "problems"
        if collector:
            trajectories, data = f"{name}.train", f"{name}.contexts"
            self.collect(trajectories, self.out / collector / "model")
        elif arm.recipe == "grpo_multi_turn":
            trajectories, data = arm.trajectories, arm.contexts
        with self.folder.alone[data]:  # the first place makes it while the others wait, and find it done
            if trajectories:
                flags = arm.flags
                if arm.kind:
                    wrong = str(self.file(f"train-ptb-{arm.kind}"))
                    flags += ("--perturbed_file", wrong, "--perturbed_ratio", arm.ratio)
                self.cut_contexts(data, trajectories, data, *flags)
                self.make_parquet(f"parquet-{data}", "multi_turn", data, data)  # its test.parquet is not used
        with self.folder.alone["parquet-problems"]:
            self.make_parquet("parquet-problems", "single_turn", "minicode_train", "minicode_dev")

        limits = [f"trainer.total_epochs={WITHOUT_END}", f"trainer.test_freq={config.test_freq}"]
        if config.test_freq >= 0:
            limits.append("trainer.val_before_train=True")
        if arm.is_online and config.budget != "steps":
            steps = WITHOUT_END
            bill = json.loads((self.out / f"cobalt-{seed}.cost.json").read_text())["in_all"]
            spent = bill["GPU-s" if config.budget == "gpu_seconds" else config.budget]
            limits.append(f"cobalt.budget={{{config.budget}: {spent}}}")
        files = (name, f"parquet-{data}", "parquet-problems")
        model = self.out / start / "model" if start else config.model
        overrides = (*limits, *arm.settings, *config.training_overrides())
        self.stage(f"{name}-train", self.train_policy, arm.recipe, model, *files, steps, seed, *overrides)
        self.stage(f"{name}-cost", self.count_cost, name, start, trajectories, arm.kind)
        self.stage(f"{name}-merge", self.merge_policy, name, self.out / name / "model")

    def collect(self, trajectories: str, policy: Model, turns: int = LEARNING_TURNS, *flags: str) -> None:
        """Trajectories to learn from."""
        samples = self.config.train_samples
        self.roll_out(trajectories, "minicode_train", policy, samples, samples, turns, *flags)

    def count_cost(self, name: str, start: str, trajectories: str, kind: str) -> None:
        """NAME.cost.json. What the policy learns from is part of it, and the bill of the policy that it starts from."""
        files: list[object] = []
        if trajectories:
            parts = (self.file(f"{trajectories}{part}") for part in (".turn0", ".turns", ""))
            files += ["--collection_gpus", self.config.engine_gpus(), "--collection", *parts]
        if kind:
            files += [self.file(f"train-ptb-{kind}.turns"), self.file(f"train-ptb-{kind}")]
        if start:
            files += ["--earlier", self.out / f"{start}.cost.json"]
        words = ("-m", "research", "report", "cost", "--training", self.out / name)
        self.run(*words, *files, "--output", self.out / f"{name}.cost.json")

    def perturb(self, stage: str, problems: str, name: str, kind: str) -> None:
        """The fully specified problems, with wrong public tests."""
        files = ("--input_file", self.file(problems), "--output_file", self.file(name))
        words = (*files, "--seed", self.config.data_seed, "--kind", kind)
        self.script_stage(stage, "preproc/run_perturbation.py", *words)

    def mislead(self, name: str, policy: Model, samples: int, turns: int, kind: str, ending: str) -> None:
        """NAME-ENDING: the turns after NAME.turn0 once more, under perturbed feedback."""
        wrong = f"{name}-{ending}"
        self.perturb(f"{wrong}-turn0", f"{name}.turn0", f"{wrong}.turn0", kind)
        self.repair_and_evaluate(wrong, f"{wrong}.turn0", policy, samples, turns, "--feedback_tests", "perturbed")

    # What studies measure.

    def measure_dev(self, name: str, policy: Model, *flags: str) -> None:
        """NAME: the dev set."""
        samples = self.config.dev_samples
        self.roll_out(name, "minicode_dev", policy, samples, samples, self.config.turns, *flags)

    def measure_shifted(self, name: str, policy: Model) -> None:
        """NAME-shifted."""
        samples, turns = self.config.dev_samples, self.config.turns
        self.repair_and_evaluate(f"{name}-shifted", "minicode_shifted", policy, samples, turns, "--from_scratch")

    def measure_hacking(self, name: str, policy: Model) -> None:
        """After ``measure_dev``: NAME-ptb and NAME.cases."""
        config, cases = self.config, self.file(f"{name}.cases")
        with self.folder.alone["dev-ptb"]:
            self.perturb("dev-ptb", "minicode_dev", "dev-ptb", config.kind)
        self.mislead(name, policy, config.dev_samples, config.turns, config.kind, "ptb")
        files = ["--data_file", self.file("dev-ptb"), "-i", self.file(f"{name}-ptb"), "-o", cases]
        seed = ("--dynamic", "--seed", config.data_seed)
        self.script_stage(f"{name}-cases", "extract_turn_level_errors.py", *files, *seed)


def tell_plan(items: Sequence[Item], config: StudyConfig, folder: Folder) -> None:
    """What is done, what is left, and about how long that takes. An item takes as long as the longest that is done."""
    trainings = sum(item.kind == "policy" for item in items)
    print(
        f"{sys.argv[0]}: {trainings} trainings of {config.steps} steps (online ones: --budget {config.budget});"
        f" {config.train_problems * config.train_samples} trajectories in each collection;"
        f" {config.dev_problems * config.dev_samples * (config.turns + 1)} programs to measure a policy once"
    )
    spent_s = left_s = 0
    for kind in ("offline", "policy"):
        markers = [folder.done(item.marker(config.marker)) for item in items if item.kind == kind]
        took = [int(marker.read_text()) for marker in markers if marker.exists()]
        each_s = max(took, default=0) or USUAL_S[config.size, kind]
        spent_s += sum(took)
        left_s += (len(markers) - len(took)) * each_s
        print(f"  {kind}: {len(took)} done, {len(markers) - len(took)} left, about {each_s} s each")
    places = len(config.gpus) or 1
    devices = len({gpu for place in config.gpus or ("0",) for gpu in place.split(",")})
    print(
        f"  worked so far: {spent_s // 60} min; left: about {left_s // 60} min, with {places} at a time"
        f" {left_s // places // 60} min, {left_s // places * devices // 60} GPU-minutes, or more where policies share"
        " a GPU",
        flush=True,
    )


def run_arms(study: type[ArmStudy], config: StudyConfig) -> None:
    """Tell the plan, do what is left of it, write the report."""
    refuse_missing_model(config.model, "--model ")
    folder = Folder(config.output_dir)
    items = study.items(config)
    tell_plan(items, config, folder)
    if config.plan:
        return
    refuse_missing_gpus(config, config.gpus)
    folder.keep_settings(config.text())
    front = study(config, folder)
    if overrides := config.training_overrides():
        front.stage("overrides", front.check_overrides, *overrides)
    places = [partial(study, config, folder, number, gpus) for number, gpus in enumerate(config.gpus)]
    work_through([*items, *study.more_items(config)], config.marker, folder, places or [lambda: front])
    front.report()
