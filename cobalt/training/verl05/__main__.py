"""``python -m cobalt.training.verl05``: the released recipes on the paper's veRL. ``--help`` shows how."""

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from cobalt.cli.entry import exit_codes
from cobalt.errors import InputError, SetupError
from cobalt.training.settings import PAPER, VERL

HELP = """\
python -m cobalt.training.verl05: the released recipes on the paper's stack, veRL 0.5.0 as it was released.
All else is in cobalt train, on veRL 0.9.1. Arguments are settings, NAME=VALUE.

  bash scripts/setup_gpu.sh paper && source .venv-paper/bin/activate
  python -m cobalt.training.verl05 --config-dir verl/config +recipe=multi_turn +preset=paper-qwen3 \\
    data.train_files=train.parquet data.val_files=test.parquet trainer.default_local_dir=runs/paper \\
    reward.reward_kwargs.executor=local

Without the last line programs run in the evaluator app (serve run remote_reward_server:app --name evaluator).
Settings have the names that veRL 0.9.1 gives them, as in verl/config. Some of them:
  +recipe=NAME                           multi_turn, single_turn
  +preset=NAME                           paper-qwen3, paper-qwen3-h200, paper-r1-llama;
                                         one-gpu-vllm with cobalt.loss_weights=release
  actor_rollout_ref.model.path=NAME      the model, a folder or a name on the hub
  reward.custom_reward_function.path=F   another reward function than verl/code_reward_func_think.py
  trainer.total_training_steps=N         so many steps; without it trainer.total_epochs=N
Options:
  --config-dir DIR    where recipes and presets are
  --check             look at settings, files and machine; start nothing

Run again, it resumes from the last checkpoint. cobalt merge makes a model of one.
Exit codes: 0 done, 1 a crash, 2 settings or files that cannot be used, 3 something is missing here, 130 Ctrl-C.
"""


def main() -> None:
    """Compose the configuration from ``sys.argv`` and train, or only check it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    with exit_codes():
        try:
            own, overrides = parser.parse_known_args()
        except argparse.ArgumentError as error:
            raise InputError(str(error)) from None
        if {"--help", "-h"} & {*overrides} or len(sys.argv) == 1:
            print(HELP)
            return
        if (installed := version("verl")) != PAPER:
            more = ": cobalt train is for it" if installed == VERL else "; scripts/setup_gpu.sh paper installs that"
            raise SetupError(f"veRL {installed} is installed, and this is for veRL {PAPER}{more}")
        from cobalt.training.verl05.runner import checked, recipe_config, train

        config = recipe_config(overrides, own.config_dir)
        checked(config) if own.check else train(config)


if __name__ == "__main__":
    main()
