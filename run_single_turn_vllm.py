"""Single-turn inference with an open-weight model (the vLLM app, or --engine hf); see docs/data.md."""

from cobalt.cli.entry import run
from cobalt.inference.commands import SingleTurnVllmConfig, main

if __name__ == "__main__":
    run(SingleTurnVllmConfig, main)
