"""``run_perturbation.py``: the problems of a file with two of their public tests perturbed, streaming."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cobalt.cli import print_summary
from cobalt.perturbation import perturbed_fields
from cobalt.preparation.cards import CardInfo, publish, refuse_livecodebench
from cobalt.preparation.job import InvalidLines, finish, open_manifests, with_progress
from cobalt.records import TestCases, read_jsonl, write_jsonl
from cobalt.records.jsonl import Record

FIELDS = ("id", "test_cases", "public_test_cases")


@dataclass(frozen=True)
class Config:
    """Swap the expected outputs of two public tests of each problem; clean tests stay as they are."""

    input_file: str
    """Problems with public tests (JSONL)."""
    output_file: str
    """The same problems with `modified_test_cases` and `perturbed_public_test_cases` (JSONL)."""
    seed: int = 42
    """Chooses the two tests, per problem."""
    skip_invalid: bool = False
    """Count and skip invalid input lines instead of stopping at the first."""
    push_to_hub: str | None = None
    """Also upload the set and its card to this dataset repository."""


def main(config: Config) -> None:
    """Perturb ``config.input_file``; two kinds of problems are dropped and counted.

    Those whose public outputs are all equal, and those that say ``fully_specified: false``: where a rule can only be
    learned from a test, fitting a wrong test is rational.
    """
    inputs, outputs = [config.input_file], [config.output_file]
    refuse_livecodebench(inputs, config.push_to_hub)
    counts: Counter[str] = Counter(
        read=0, written=0, dropped_equal_outputs=0, dropped_hidden_rule=0, invalid_lines_skipped=0
    )
    contents = {Path(config.output_file): {"seed": config.seed}}
    with open_manifests("run_perturbation", config, inputs, contents) as manifests:
        write_jsonl(config.output_file, _perturbed(config, counts))
        finish(manifests, counts)
    print_summary(f"Perturbed problems: {config.output_file}", counts)
    rules = [
        f"two public tests with different outputs swap them and come first (seed {config.seed})",
        "problems that can only be solved by learning a rule from the tests are left out",
    ]
    publish(CardInfo("Problems with perturbed public tests", rules, counts), outputs, inputs, config.push_to_hub)


def _perturbed(config: Config, counts: Counter[str]) -> Iterator[Record]:
    invalid = InvalidLines(config.skip_invalid)
    rows = read_jsonl(config.input_file, FIELDS, check=_check_tests, on_invalid=invalid.handler)
    for row in with_progress(rows, config.input_file):
        counts["read"] += 1
        if not row.get("fully_specified", True):
            counts["dropped_hidden_rule"] += 1
            continue
        fields = perturbed_fields(row, config.seed)
        if fields is None:
            counts["dropped_equal_outputs"] += 1
        else:
            counts["written"] += 1
            yield {**row, **fields}
    counts["invalid_lines_skipped"] = invalid.count


def _check_tests(row: Record) -> None:
    for field in ("test_cases", "public_test_cases"):
        try:
            TestCases.parse(row[field])
        except ValueError as error:
            raise ValueError(f"problem {row['id']!r}: field '{field}': {error}") from None
