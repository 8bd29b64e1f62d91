"""The flags of the studies, and what they are by default on GPUs and on two CPU cores."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from annotated_types import Ge
from typing_extensions import Self

from cobalt.commands.flags import CommandConfig, NotNegative, Positive, Share
from cobalt.errors import InputError

LEARNING_TURNS = 2  # after the first, in trajectories to learn from
CONTROL_TURNS = 3  # after the first, with another problem's feedback
USUAL_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class LoopConfig(CommandConfig):
    """What every training of MiniCoder on MiniCode needs."""

    output_dir: Path
    """Where everything is written. A relative path starts in the project's folder."""
    data_seed: int = 0
    """Seed of the problems, of sampling and of the perturbation."""
    model: str = "assets/minicoder"
    """The reference model and the policies' start."""
    train_problems: Positive = 1000
    """Problems to learn from."""
    dev_problems: Positive = 200
    """Problems to measure on."""
    train_samples: Positive = 8
    """Trajectories per problem to learn from."""
    dev_samples: Positive = 8
    """Trajectories per problem to measure on."""
    steps: Positive = 60
    """GRPO steps."""
    preset: str = "one-gpu"
    """Training preset: a file of verl/config/preset."""
    max_tokens: Positive = USUAL_TOKENS
    """Of a response, when collecting and when measuring."""
    engine: Literal["hf", "vllm"] = "hf"
    """What policies answer by: Hugging Face or vLLM."""
    batch_size: Positive = 512
    """Sequences that are sampled together, with the engine hf."""
    engine_args: tuple[str, ...] = ()
    """Arguments of the vLLM app, for example tensor_parallel_size=2 max_model_len=16384."""
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    """Hydra overrides for all trainings, NAME=VALUE, after `--`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for text in self.overrides:
            if not re.fullmatch(r"\+{0,2}[A-Za-z_][A-Za-z0-9_./@:-]*=.*|~[A-Za-z_].*", text, re.DOTALL):
                raise InputError(f"no argument '{text}': after -- come hydra overrides, NAME=VALUE; see --help")

    def unusual_answers(self) -> str:
        """Part of a folder's settings. Folders of earlier versions do not name the defaults."""
        engine = " ENGINE=vllm" if self.engine == "vllm" else ""
        return engine + (f" TOKENS={self.max_tokens}" if self.max_tokens != USUAL_TOKENS else "")


@dataclass(frozen=True, kw_only=True)
class StudyConfig(LoopConfig):
    """What every study of many policies needs."""

    marker: ClassVar[str]
    """Begins the names of the study's own files in ``done/``."""
    cpu: ClassVar[dict[str, Any]] = {}
    """The defaults of this study with ``--size cpu``, where they differ from ``SMALL``."""

    size: Literal["gpu", "cpu"] = "gpu"
    """Which defaults. gpu: one or more GPUs, hours. cpu: two cores, minutes; it shows that it works, no effect."""
    arms: tuple[str, ...] = ()
    """Ways to train; docs/paper.md names them all."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Training seeds. An arm with a seed is a policy."""
    reference: str = "assets/minicoder-small"
    """The reference model of the arm other_reference, a folder."""
    shifted_problems: Positive = 200
    """Problems of the shifted set, in the studies that measure on it."""
    turns: NotNegative = 8
    """Turns after the first when measuring."""
    kind: str = "swapped"
    """How tests are perturbed (run_perturbation.py --kind), for measuring and in the arm augmented."""
    count: Positive | None = None
    """Wrong tests per problem. Default: that of the kind."""
    perturbed_ratio: Share = 0.3
    """Share of perturbed contexts in the arm augmented."""
    penalty: float = 0.5
    """Of the arm penalty, where the dynamic check fires."""
    budget: Literal["gpu_seconds", "responses", "steps"] = "gpu_seconds"
    """What the online arms have the same of: GPU-seconds or responses in cobalt's whole bill with the same seed, or
    steps."""
    test_freq: Annotated[int, Ge(-1)] = 10
    """Steps between validations, which learning curves are made of. -1: none."""
    gpus: tuple[str, ...] = ()
    """Places to work in, for example 0 1 2: one policy at a time in each, with services of its own. A GPU may be named
    more than once; `0,1 2,3` are two GPUs each. Default: one policy after the other."""
    judge_model: str | None = None
    """A LiteLLM model that sorts hacking cases into categories (keys from the environment). Default: no judge."""
    plan: bool = False
    """Only say what is left to do and about how long it takes."""

    def text(self) -> str:
        """What a folder of results is known by. A study with other settings needs another folder."""
        return (
            f"DATA_SEED={self.data_seed} MODEL={self.model} REFERENCE={self.reference}"
            f" TRAIN={self.train_problems} x {self.train_samples} DEV={self.dev_problems} x {self.dev_samples}"
            f" TURNS={self.turns} RATIO={self.perturbed_ratio:g} STEPS={self.steps} BUDGET={self.budget}"
            f" PRESET={self.preset} BATCH={self.batch_size} KIND={self.kind} COUNT={self.count or ''}"
            f" PENALTY={self.penalty:g} JUDGE={self.judge_model or ''}{self.unusual_answers()}"
            f" OVERRIDES={' '.join(self.training_overrides())}"
        )

    def with_arms(self) -> Self:
        """With the arms that follow from other settings."""
        return self

    def training_overrides(self) -> tuple[str, ...]:
        """The hydra overrides of all trainings."""
        return self.overrides


SMALL: dict[str, Any] = {
    "size": "cpu",
    "seeds": (0,),
    "train_problems": 24,
    "dev_problems": 12,
    "shifted_problems": 12,
    "train_samples": 4,
    "dev_samples": 2,
    "turns": 2,
    "steps": 2,
    "preset": "cpu",
    "batch_size": 64,
    "budget": "steps",
    "test_freq": 2,
}
"""The defaults with ``--size cpu``."""
