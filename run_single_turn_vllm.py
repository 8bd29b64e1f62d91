"""Single-turn inference with an open-weight model (the vLLM app, or --engine hf); see docs/inference.md."""

from cobalt.cli import run
from cobalt.inference.commands import SingleTurnVllm, main

if __name__ == "__main__":
    run(SingleTurnVllm, main)
