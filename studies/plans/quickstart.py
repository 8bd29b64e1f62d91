"""The whole loop in minutes, which scripts/quickstart.sh runs: its flags are the knobs there."""

from pathlib import Path

from pydantic.dataclasses import dataclass

from studies.plans.loop import CONTROL_TURNS, LEARNING_TURNS, Loop, LoopConfig
from studies.plans.places import Folder

MEASURED_TURNS = 8  # after the first
BASE_FIRST_PROGRAMS = 16


@dataclass(frozen=True, kw_only=True)
class QuickstartConfig(LoopConfig):
    """The whole loop: problems, trajectories, partial contexts, GRPO, Pass@1 per turn before and after."""

    train_seed: int
    """Seed of training."""

    def text(self) -> str:
        """What a folder of results is known by."""
        return (
            f"SEED={self.data_seed} TRAIN_SEED={self.train_seed} MODEL={self.model} PRESET={self.preset}"
            f" STEPS={self.steps} TRAIN={self.train_problems} x {self.train_samples}"
            f" DEV={self.dev_problems} x {self.dev_samples} BATCH={self.batch_size}{self.unusual_answers()}"
            f" OVERRIDES={' '.join(self.overrides)}"
        )


def run_quickstart(config: QuickstartConfig) -> None:
    """Every stage that is not done in the folder, and the report."""
    folder = Folder(config.output_dir)
    folder.keep_settings(config.text())
    loop = Loop(config, folder)

    def measure(name: str, policy: str | Path, first_programs: int) -> None:
        """On the dev set, and the control with one sample."""
        loop.roll_out(name, "minicode_dev", policy, first_programs, config.dev_samples, MEASURED_TURNS)
        other = ("--feedback_from", "other_problem")
        loop.repair_and_evaluate(f"{name}-control", f"{name}.turn0", policy, 1, CONTROL_TURNS, *other)

    if config.overrides:
        loop.stage("overrides", loop.check_overrides, *config.overrides)
    with loop.services():
        loop.make_problems()

        # Offline: the reference model's trajectories, cut into partial contexts.
        samples = config.train_samples
        loop.roll_out("train", "minicode_train", config.model, samples, samples, LEARNING_TURNS)
        loop.cut_contexts("contexts", "train", "contexts")
        measure("base", config.model, BASE_FIRST_PROGRAMS)

        # Online: GRPO completes each partial trajectory with one program.
        loop.cut_contexts("val-contexts", "base", "val_contexts", "--is_test")
        loop.make_parquet("parquet", "multi_turn", "contexts", "val_contexts")
        training = ("training", "parquet", "parquet", config.steps, config.train_seed)
        loop.stage("train", loop.train_policy, "grpo_multi_turn", config.model, *training, *config.overrides)
        loop.stage("merge", loop.merge_policy, "training", loop.out / "model")
        measure("trained", loop.out / "model", config.dev_samples)

    runs = ["--base", loop.file("base"), "--trained", loop.file("trained")]
    runs += ["--base_first_turn", loop.file("base.turn0")]
    runs += ["--base_control", loop.file("base-control"), "--trained_control", loop.file("trained-control")]
    loop.run("-m", "cobalt", "report", "loop", *runs, "--output", loop.out / "result")
    loop.tell(f"quickstart.sh: done; {loop.out}/result.{{md,json,png}} hold this table and its curve")
