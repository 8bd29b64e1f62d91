"""Problems to veRL's `train.parquet` and `test.parquet`."""

from cobalt.cli.entry import run
from cobalt.preproc.verl_parquet import SINGLE_TURN, SingleTurnParquetConfig, build

if __name__ == "__main__":
    run(SingleTurnParquetConfig, lambda config: build(config, SINGLE_TURN))
