"""Problems to veRL's `train.parquet` and `test.parquet`."""

from cobalt.cli.entry import run
from cobalt.preproc.verl_parquet import SingleTurnParquetConfig, single_turn

if __name__ == "__main__":
    run(SingleTurnParquetConfig, single_turn)
