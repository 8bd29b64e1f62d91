"""Problems to the same problems with two perturbed public tests each."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.preproc.perturbed import PerturbationConfig, main

if __name__ == "__main__":
    run(PerturbationConfig, main)
