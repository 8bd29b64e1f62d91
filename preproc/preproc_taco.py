"""Raw TACO rows to verified problems with public and hidden tests, split into train and dev."""

from cobalt.cli import run
from cobalt.preparation.taco import Config, main

if __name__ == "__main__":
    run(Config, main)
