"""Multi-turn inference with any API through LiteLLM; see docs/data.md."""

from cobalt.cli.entry import run
from cobalt.inference.commands import MultiTurnLitellmConfig, main

if __name__ == "__main__":
    run(MultiTurnLitellmConfig, main)
