"""Bandit prompts to veRL's `train.parquet` and `test.parquet`."""

from cobalt.cli.entry import run
from cobalt.preproc.verl_parquet import MultiTurnParquetConfig, multi_turn

if __name__ == "__main__":
    run(MultiTurnParquetConfig, multi_turn)
