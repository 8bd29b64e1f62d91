"""LiveCodeBench's test6.jsonl to problems for evaluation."""

from cobalt.cli import run
from cobalt.preparation.livecodebench import Config, main

if __name__ == "__main__":
    run(Config, main)
