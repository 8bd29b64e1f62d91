"""Evaluated multi-turn trajectories to bandit prompts: dynamic sampling, down-sampling, partial contexts."""

from cobalt.cli.entry import run
from cobalt.preproc.bandit_prompts import BanditPromptsConfig, main

if __name__ == "__main__":
    run(BanditPromptsConfig, main)
