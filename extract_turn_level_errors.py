"""Find in-context reward hacking in a run on perturbed tests. See docs/hacking.md."""

from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from cobalt.hacking.extract_cases import ExtractionConfig, extract

if __name__ == "__main__":
    run(ExtractionConfig, extract)
