"""LiveCodeBench's test6.jsonl to problems for evaluation."""

from cobalt.cli.entry import run
from cobalt.preproc.livecodebench import LiveCodeBenchConfig, main

if __name__ == "__main__":
    run(LiveCodeBenchConfig, main)
