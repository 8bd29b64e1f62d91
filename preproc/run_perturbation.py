"""Problems to the same problems with two perturbed public tests each."""

from cobalt.cli import run
from cobalt.preparation.perturbed import Config, main

if __name__ == "__main__":
    run(Config, main)
