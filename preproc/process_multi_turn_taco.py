"""Evaluated multi-turn trajectories to bandit prompts: dynamic sampling, down-sampling, partial contexts."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.preproc.bandit_prompts import BanditPromptsConfig, main

if __name__ == "__main__":
    run(BanditPromptsConfig, main)
