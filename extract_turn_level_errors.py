"""Find in-context reward hacking in a run on perturbed tests. See docs/hacking.md."""

from cobalt.cli.entry import run
from studies.hacking.extract_cases import ExtractionConfig, extract

if __name__ == "__main__":
    run(ExtractionConfig, extract)
