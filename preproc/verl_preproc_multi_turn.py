"""Bandit prompts to veRL's `train.parquet` and `test.parquet`."""

from cobalt.cli import run
from cobalt.preparation.parquet import MULTI_TURN, Config, build

if __name__ == "__main__":
    run(Config, lambda config: build(config, MULTI_TURN))
