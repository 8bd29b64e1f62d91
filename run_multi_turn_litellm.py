"""Multi-turn inference with any API through LiteLLM; see docs/inference.md."""

from cobalt.cli import run
from cobalt.inference.commands import MultiTurnLitellm, main

if __name__ == "__main__":
    run(MultiTurnLitellm, main)
