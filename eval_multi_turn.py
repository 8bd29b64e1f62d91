"""Hidden-test Pass@1 per turn of a multi-turn file; see docs/data.md."""

from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.evaluation.evaluate import EvaluationConfig, main

if __name__ == "__main__":
    run(EvaluationConfig, main)
