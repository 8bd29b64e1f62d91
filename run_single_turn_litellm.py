"""Single-turn inference with any API through LiteLLM; see docs/data.md."""

from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.inference.flags import SingleTurnLitellmConfig
    from cobalt.inference.run import main

if __name__ == "__main__":
    run(SingleTurnLitellmConfig, main)
