"""Bandit prompts to veRL's `train.parquet` and `test.parquet`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.preproc.verl_parquet import MultiTurnParquetConfig, multi_turn

if __name__ == "__main__":
    run(MultiTurnParquetConfig, multi_turn)
