"""Problems to veRL's `train.parquet` and `test.parquet`."""

from cobalt.cli import run
from cobalt.preparation.parquet import SINGLE_TURN, Config, build

if __name__ == "__main__":
    run(Config, lambda config: build(config, SINGLE_TURN))
