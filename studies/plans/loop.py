"""The steps of training MiniCoder on MiniCode and measuring it, which the quickstart and the studies share.

PROBLEMS, TRAJECTORIES, CONTEXTS, START and NAME stand for files in the folder, without .jsonl. A policy is a model's
folder.
"""

import subprocess
from pathlib import Path

from studies.plans.places import Folder, Place
from studies.plans.settings import LoopConfig

Model = str | Path
WITHOUT_END = 1_000_000
"""Steps or epochs of a training that something else ends."""


class Loop(Place):
    """A place and the steps that can be done there."""

    def __init__(self, config: LoopConfig, folder: Folder, number: int | None = None, gpus: str | None = None) -> None:
        knobs = {"PRESET": config.preset, "ENGINE": config.engine, "ENGINE_ARGS": " ".join(config.engine_args)}
        super().__init__(folder, knobs, number, gpus if config.preset != "cpu" else None)
        self.config = config
        self.out = folder.path

    def file(self, name: str) -> Path:
        return self.out / f"{name}.jsonl"

    # Stages, one or more.

    def make_problems(self) -> None:
        """Write minicode_train and minicode_dev."""
        raw, seed = self.file("raw"), ("--seed", self.config.data_seed)
        sizes = ("--num_problems", self.config.train_problems, "--dev_size", self.config.dev_problems)
        generate = (self.python, "-m", "cobalt", "minicode", "generate", "--output_file")
        self.command_stage("problems", *generate, raw, *seed, *sizes)
        files = ("--input_file", raw, "--output_file", self.file("minicode"))
        self.command_stage("prepare", self.python, "preproc/preproc_taco.py", *files, *seed)

    def make_shifted_problems(self, size: int) -> None:
        """Write minicode_shifted."""
        raw, seed = self.file("raw-shifted"), ("--seed", self.config.data_seed)
        sizes = ("--num_problems", 0, "--dev_size", 0, "--shifted_size", size)
        generate = (self.python, "-m", "cobalt", "minicode", "generate", "--output_file")
        self.command_stage("shifted", *generate, raw, *seed, *sizes)
        files = ("--input_file", raw, "--output_file", self.file("minicode_shifted"))
        self.command_stage("prepare-shifted", self.python, "preproc/preproc_taco.py", *files, "--dev_size", 0, *seed)

    def roll_out(
        self, name: str, problems: str, policy: Model, first: int, samples: int, turns: int, *flags: str
    ) -> None:
        """Sample ``first`` programs per problem, NAME.turn0; then go on as ``repair_and_evaluate``."""
        self.stage(f"{name}-turn0", self.sample, problems, f"{name}.turn0", policy, first, *flags)
        self.repair_and_evaluate(name, f"{name}.turn0", policy, samples, turns, *flags)

    def repair_and_evaluate(self, name: str, start: str, policy: Model, samples: int, turns: int, *flags: str) -> None:
        """Sample the turns after START, NAME.turns; run the hidden tests, NAME."""
        self.stage(f"{name}-turns", self.repair, start, f"{name}.turns", policy, samples, turns, *flags)
        self.stage(f"{name}-hidden", self.evaluate, f"{name}.turns", name)

    # Single commands, for stages to run.

    def check_overrides(self, *overrides: str) -> None:
        """Training comes after minutes of other work, and would refuse them only then."""
        recipe = ("--config-dir", "verl/config", "+recipe=multi_turn", f"+preset={self.config.preset}")
        words = (self.python, "-m", "cobalt", "train", *recipe, *overrides, "--cfg", "job")
        self.call(*words, output=subprocess.DEVNULL)

    def sample(self, problems: str, name: str, policy: Model, samples: int, *flags: str) -> None:
        """First programs."""
        self._ask(policy, "run_single_turn_vllm.py", problems, name, "-n", samples, *flags)

    def repair(self, start: str, name: str, policy: Model, samples: int, turns: int, *flags: str) -> None:
        """The turns after them."""
        numbers = ("-n", samples, "--num_turns", turns)
        self._ask(policy, "run_multi_turn_vllm.py", start, name, *numbers, *flags, "--enable_thinking")

    def _ask(self, policy: Model, script: str, source: str, name: str, *flags: object) -> None:
        engine = ("--engine", "hf", "--batch_size", self.config.batch_size)
        if self.config.engine == "vllm":
            self.serve_model(policy)
            engine = ()
        files = ("-i", self.file(source), "-o", self.file(name), "--model", policy)
        limits = ("--max_tokens", self.config.max_tokens, "--seed", self.config.data_seed)
        self.run(script, *engine, *files, *flags, *limits)

    def evaluate(self, trajectories: str, name: str) -> None:
        """Hidden tests."""
        self.run("eval_multi_turn.py", "-i", self.file(trajectories), "-o", self.file(name))

    def cut_contexts(self, trajectories: str, name: str, *flags: str) -> None:
        """Partial contexts."""
        files = ("--input_file", self.file(trajectories), "--output_file", self.file(name))
        model = ("--model_name", self.config.model, "--seed", self.config.data_seed)
        self.run("preproc/process_multi_turn_taco.py", *files, *model, *flags)

    def make_parquet(self, data: str, train: str, validation: str) -> None:
        """The folder that veRL trains on and validates on, from two files of contexts."""
        files = ("--train_data_file", self.file(train), "--val_data_file", self.file(validation))
        self.run("preproc/verl_preproc_multi_turn.py", "--local_dir", self.out / data, *files)

    def single_turn_parquet(self, data: str) -> None:
        """The same of the problems themselves."""
        files = ("--train_data_file", self.file("minicode_train"), "--val_data_file", self.file("minicode_dev"))
        self.run("preproc/verl_preproc_single_turn.py", "--local_dir", self.out / data, *files)

    def train_policy(self, recipe: str, start: Model, name: str, train: str, validation: str, *limits: object) -> None:
        """Train with scripts/train_RECIPE.sh from ``start``.

        ``train`` and ``validation`` are folders of data. ``limits``: steps, seed, and hydra overrides.
        """
        self.stop_model()
        steps, seed, *overrides = limits
        knobs = {"MODEL": str(start), "PRESET": self.config.preset, "OUTPUT_DIR": str(self.out / name)}
        knobs["TRAIN_FILE"] = str(self.out / train / "train.parquet")
        knobs["VAL_FILE"] = str(self.out / validation / "test.parquet")
        usual = [f"trainer.total_training_steps={steps}", f"+data.seed={seed}", f"cobalt.seed={seed}"]
        usual += ["trainer.val_before_train=False", "trainer.test_freq=-1"]
        self.call("bash", f"scripts/train_{recipe}.sh", *usual, *overrides, knobs=knobs)

    def merge_policy(self, name: str, policy: Path) -> None:
        """The last checkpoint of a training as a policy. A model that is there is whole."""
        if not policy.is_dir():
            self.call("bash", "scripts/merge_checkpoint.sh", self.out / name, policy)
