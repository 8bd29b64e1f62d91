"""Find in-context reward hacking in a run on perturbed tests. See docs/hacking.md."""

from cobalt.cli import run
from cobalt.hacking.extraction import ExtractionConfig, extract

if __name__ == "__main__":
    run(ExtractionConfig, extract)
