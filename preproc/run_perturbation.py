"""Problems to the same problems with two perturbed public tests each."""

from cobalt.cli.entry import run
from cobalt.preproc.perturbed import PerturbationConfig, main

if __name__ == "__main__":
    run(PerturbationConfig, main)
