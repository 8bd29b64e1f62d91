"""Evaluated multi-turn trajectories to bandit prompts: dynamic sampling, down-sampling, partial contexts."""

from cobalt.cli import run
from cobalt.preparation.trajectories import Config, main

if __name__ == "__main__":
    run(Config, main)
