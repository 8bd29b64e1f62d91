"""The steps of training MiniCoder on MiniCode and measuring it, and the quickstart, which is all of them once.

PROBLEMS, TRAJECTORIES, CONTEXTS, START and NAME stand for files in the folder, without .jsonl. A policy is a model's
folder.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Literal

import tyro
from omegaconf import OmegaConf
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, Positive
from cobalt.errors import InputError, SetupError
from cobalt.training.settings import CPU_BACKEND
from research.minicode import wording
from research.plans.places import Folder, Place

Model = str | Path
LEARNING_TURNS = 2  # after the first, in trajectories to learn from
CONTROL_TURNS = 3  # after the first, with another problem's feedback
LOOK_FOR_GPUS = """
import importlib.util, torch
print(torch.cuda.device_count(), int(importlib.util.find_spec("vllm") is not None))
"""
ENGINE_SIZES = ("tensor_parallel_size", "num_replicas")
"""Arguments of the vLLM app whose product is its number of GPUs."""
WITHOUT_END = 1_000_000
"""Steps or epochs of a training that something else ends."""


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
    preset: str = "one-gpu-vllm"
    """Training preset: a file of verl/config/preset."""
    max_tokens: Positive = 256
    """Of a response, when collecting and when measuring."""
    engine: Literal["hf", "vllm"] = "vllm"
    """What policies answer by: Hugging Face or vLLM. Default: vLLM, with --size cpu hf."""
    batch_size: Positive = 512
    """Sequences that are sampled together, with the engine hf."""
    engine_args: tuple[str, ...] = ()
    """Arguments of the vLLM app, for example tensor_parallel_size=2 max_model_len=16384."""
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    """Hydra overrides for all trainings, NAME=VALUE, after `--`."""

    def __post_init__(self) -> None:
        for text in self.overrides:
            if not re.fullmatch(r"\+{0,2}[A-Za-z_][A-Za-z0-9_./@:-]*=.*|~[A-Za-z_].*", text, re.DOTALL):
                raise InputError(f"no argument '{text}': after -- come hydra overrides, NAME=VALUE; see --help")
        for text in self.engine_args:
            name, _, value = text.partition("=")
            if not name or not value:
                raise InputError(f"--engine_args {text}: give NAME=VALUE")
            if name in ENGINE_SIZES and not (value.isdecimal() and int(value)):
                raise InputError(f"--engine_args {text}: give a number above 0")

    def engine_gpus(self) -> int:
        """GPUs of the vLLM app; 1 with Hugging Face's engine."""
        sizes = dict(argument.split("=", 1) for argument in self.engine_args)
        return prod(int(sizes.get(name, 1)) for name in ENGINE_SIZES)


@cache
def recipe_of(preset: str) -> Any:
    """The settings of a training with this preset, of a file in ``verl/config/preset``."""
    files = ("recipe/grpo.yaml", f"preset/{preset}.yaml")
    return OmegaConf.merge(*(OmegaConf.load(Path("verl/config") / file) for file in files))


def refuse_missing_gpus(config: LoopConfig, places: Sequence[str] = ()) -> None:
    """Raise ``SetupError`` where a place lacks vLLM or the GPUs that policies are trained on and answer from.

    ``places``: the GPUs of each; none is this machine as it is. Ray would wait for GPUs without a word.
    """
    answers, trains = config.engine == "vllm", recipe_of(config.preset).cobalt.backend != CPU_BACKEND
    if not (answers or trains) or (os.environ.get("RAY_ADDRESS") and not places):  # that cluster may have them
        return
    needed = config.engine_gpus() if answers else 1
    for gpus in dict.fromkeys(places or (None,)):
        environment = os.environ | ({} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus})
        words = [os.environ.get("PYTHON", sys.executable), "-c", LOOK_FOR_GPUS]
        looked = subprocess.run(words, env=environment, capture_output=True, text=True)
        if looked.returncode:
            raise SetupError(f"torch cannot be imported: {looked.stderr.strip().splitlines()[-1]}")
        found, has_vllm = map(int, looked.stdout.split())
        here = "on this machine" if gpus is None else f"in --gpus {gpus}"
        if found < needed:
            told = f"--preset {config.preset} with --engine {config.engine} needs {needed} GPUs, and {found} are {here}"
            raise SetupError(f"{told}; --preset cpu with --engine hf needs none")
        if answers and not has_vllm:
            raise SetupError("--engine vllm, and vllm is not installed: scripts/setup_gpu.sh installs it")


class Loop(Place):
    """A place and the steps that can be done there. What ends on ``stage`` is done once in the folder."""

    def __init__(self, config: LoopConfig, folder: Folder, number: int | None = None, gpus: str | None = None) -> None:
        knobs = {"PRESET": config.preset, "ENGINE": config.engine, "ENGINE_ARGS": " ".join(config.engine_args)}
        super().__init__(folder, knobs, number, gpus)
        self.config = config
        self.out = folder.path

    def file(self, name: str) -> Path:
        return self.out / f"{name}.jsonl"

    def make_problems(self, shifted: int = 0) -> None:
        """Write minicode_train and minicode_dev; or minicode_shifted, if a number of ``shifted`` problems is given."""
        seed = ("--seed", self.config.data_seed)
        raw, prepared = self.file("raw"), self.file("minicode")
        sizes = ["--num_problems", self.config.train_problems, "--dev_size", self.config.dev_problems]
        generating, preparing, without_dev = "problems", "prepare", ()
        if shifted:
            raw, prepared = self.file("raw-shifted"), self.file("minicode_shifted")
            sizes = ["--num_problems", 0, "--dev_size", 0, "--shifted_size", shifted]
            generating, preparing, without_dev = "shifted", "prepare-shifted", ("--dev_size", 0)
        generate = ("-m", "research", "minicode", "generate", "--output_file", raw)
        self.script_stage(generating, *generate, *seed, *sizes)
        files = ("--input_file", raw, "--output_file", prepared, "--prompts", wording.NAME)
        self.script_stage(preparing, "preproc/preproc_taco.py", *files, *without_dev, *seed)

    def roll_out(
        self, name: str, problems: str, policy: Model, first: int, samples: int, turns: int, *flags: str
    ) -> None:
        """Sample ``first`` programs per problem, NAME.turn0; then go on as ``repair_and_evaluate``."""
        start, words = f"{name}.turn0", ("-n", first, *flags)
        self.stage(f"{name}-turn0", self.sample, policy, "run_single_turn_vllm.py", problems, start, *words)
        self.repair_and_evaluate(name, start, policy, samples, turns, *flags)

    def repair_and_evaluate(self, name: str, start: str, policy: Model, samples: int, turns: int, *flags: str) -> None:
        """Sample the turns after START, NAME.turns; run the hidden tests, NAME."""
        words = ("-n", samples, "--num_turns", turns, *flags, "--enable_thinking")
        self.stage(f"{name}-turns", self.sample, policy, "run_multi_turn_vllm.py", start, f"{name}.turns", *words)
        files = ("-i", self.file(f"{name}.turns"), "-o", self.file(name))
        self.script_stage(f"{name}-hidden", "eval_multi_turn.py", *files)

    def sample(self, policy: Model, script: str, source: str, name: str, *flags: object) -> None:
        """Ask a policy."""
        engine = ("--engine", "hf", "--batch_size", self.config.batch_size)
        if self.config.engine == "vllm":
            self.serve_model(policy)
            engine = ()
        files = ("-i", self.file(source), "-o", self.file(name), "--model", policy)
        limits = ("--max_tokens", self.config.max_tokens, "--seed", self.config.data_seed)
        self.run(script, *engine, *files, *flags, *limits)

    def cut_contexts(self, stage: str, trajectories: str, name: str, *flags: str) -> None:
        """Partial contexts."""
        files = ("--input_file", self.file(trajectories), "--output_file", self.file(name))
        model = ("--model_name", self.config.model, "--seed", self.config.data_seed)
        self.script_stage(stage, "preproc/process_multi_turn_taco.py", *files, *model, *flags)

    def make_parquet(self, data: str, kind: str, train: str, validation: str) -> None:
        """The folder that veRL trains on and validates on, from two files of contexts or of problems (``kind``)."""
        files = ("--train_data_file", self.file(train), "--val_data_file", self.file(validation))
        self.script_stage(data, f"preproc/verl_preproc_{kind}.py", "--local_dir", self.out / data, *files)

    def check_overrides(self, *overrides: str) -> None:
        """Training comes after minutes of other work, and would refuse them only then."""
        recipe = ("--config-dir", "verl/config", "+recipe=multi_turn", f"+preset={self.config.preset}")
        words = (self.python, "-m", "cobalt", "train", *recipe, *overrides, "--cfg", "job")
        self.call(*words, output=subprocess.DEVNULL)

    def train_policy(
        self, recipe: str, start: Model, name: str, train: str, validation: str, steps: int, seed: int, *overrides: str
    ) -> None:
        """Train with scripts/train_RECIPE.sh from ``start``. ``train`` and ``validation`` are folders of data."""
        self.stop_model()
        knobs = {"MODEL": str(start), "PRESET": self.config.preset, "OUTPUT_DIR": str(self.out / name)}
        knobs["TRAIN_FILE"] = str(self.out / train / "train.parquet")
        knobs["VAL_FILE"] = str(self.out / validation / "test.parquet")
        if self.config.preset == "cpu":
            knobs["CUDA_VISIBLE_DEVICES"] = ""  # veRL would take a GPU that it sees
        usual = [f"trainer.total_training_steps={steps}", f"+data.seed={seed}", f"cobalt.seed={seed}"]
        usual += ["trainer.val_before_train=False", "trainer.test_freq=-1"]
        self.call("bash", f"scripts/train_{recipe}.sh", *usual, *overrides, knobs=knobs)

    def merge_policy(self, name: str, policy: Path) -> None:
        """The last checkpoint of a training as a policy. A model that is there is whole."""
        if not policy.is_dir():
            self.call("bash", "scripts/merge_checkpoint.sh", self.out / name, policy)
