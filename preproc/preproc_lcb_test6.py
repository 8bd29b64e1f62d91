"""LiveCodeBench's test6.jsonl to problems for evaluation."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.preproc.livecodebench import LiveCodeBenchConfig, main

if __name__ == "__main__":
    run(LiveCodeBenchConfig, main)
