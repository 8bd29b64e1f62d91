"""Raw TACO rows to verified problems with public and hidden tests, split into train and dev."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.preproc.taco import TacoConfig, main

if __name__ == "__main__":
    run(TacoConfig, main)
