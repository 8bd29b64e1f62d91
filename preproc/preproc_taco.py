"""Raw TACO rows to verified problems with public and hidden tests, split into train and dev."""

from cobalt.cli.entry import run
from cobalt.preproc.taco import TacoConfig, main

if __name__ == "__main__":
    run(TacoConfig, main)
