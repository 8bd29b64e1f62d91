"""Hidden-test Pass@1 per turn of a multi-turn file; see docs/inference.md."""

from cobalt.cli import run
from cobalt.evaluation.command import EvalFlags, main

if __name__ == "__main__":
    run(EvalFlags, main)
