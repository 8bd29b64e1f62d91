"""Bandit prompts to veRL's `train.parquet` and `test.parquet`."""

from cobalt.cli.entry import run
from cobalt.preproc.verl_parquet import MULTI_TURN, MultiTurnParquetConfig, build

if __name__ == "__main__":
    run(MultiTurnParquetConfig, lambda config: build(config, MULTI_TURN))
