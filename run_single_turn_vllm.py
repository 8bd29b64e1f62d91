"""Single-turn inference with an open-weight model: the vLLM app, or another --engine. See docs/data.md."""

from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.inference.flags import SingleTurnOpenWeightConfig
    from cobalt.inference.run import main

if __name__ == "__main__":
    run(SingleTurnOpenWeightConfig, main)
