"""``run_perturbation.py``: the problems of a file with two of their public tests perturbed, streaming."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from cobalt.commands.console import print_summary, with_progress
from cobalt.commands.flags import InputFile, OutputFile, ReadConfig, UploadConfig
from cobalt.commands.invalid_lines import InvalidLines
from cobalt.commands.lifecycle import recorded_run
from cobalt.commands.own_files import identity_of, load_own
from cobalt.errors import InputError
from cobalt.perturbation import Perturbation, own_perturbation, perturb, perturbed_fields
from cobalt.preproc.cards import CardInfo, publish, refuse_livecodebench
from cobalt.records import TestCases, read_jsonl, write_jsonl
from cobalt.records.jsonl import Record
from cobalt.records.manifest import origin_of

FIELDS = ("id", "test_cases", "public_test_cases")


@dataclass(frozen=True, kw_only=True)
class PerturbationConfig(UploadConfig, ReadConfig):
    """Swap the expected outputs of two public tests of each problem; clean tests stay as they are."""

    input_file: InputFile
    """Problems with public tests (JSONL)."""
    output_file: OutputFile
    """The same problems with `modified_test_cases` and `perturbed_public_test_cases` (JSONL)."""
    seed: int = 42
    """Chooses the two tests, per problem."""
    perturbation: str | None = None
    """A function of your own instead of the swap, FILE.py:NAME (docs/formats.md)."""


def main(config: PerturbationConfig) -> None:
    """Perturb ``config.input_file``; two kinds of problems are dropped and counted.

    Those whose public outputs are all equal, and those that say ``fully_specified: false``: where a rule can only be
    learned from a test, fitting a wrong test is rational.
    """
    inputs, outputs = [config.input_file], [config.output_file]
    refuse_livecodebench(inputs, config.push_to_hub)
    counts: Counter[str] = Counter(
        read=0, written=0, dropped_equal_outputs=0, dropped_hidden_rule=0, invalid_lines_skipped=0
    )
    own = {} if config.perturbation is None else {"perturbation": identity_of(config.perturbation)}
    contents = {config.output_file: {"seed": config.seed, **own}}
    with recorded_run("run_perturbation", asdict(config), inputs, contents) as run:
        write_jsonl(config.output_file, _perturbed(config, counts))
        run.counts, run.origin = dict(counts), origin_of(config.input_file)
    print_summary(f"Perturbed problems: {config.output_file}", counts)
    rules = [
        f"two public tests with different outputs swap them and come first (seed {config.seed})"
        if config.perturbation is None
        else f"public tests are perturbed by `{own['perturbation']}` (seed {config.seed})",
        "problems that can only be solved by learning a rule from the tests are left out",
    ]
    publish(CardInfo("Problems with perturbed public tests", rules, counts), outputs, inputs, config.push_to_hub)


def _perturbed(config: PerturbationConfig, counts: Counter[str]) -> Iterator[Record]:
    invalid = InvalidLines(config.skip_invalid)
    change = perturb if config.perturbation is None else own_perturbation(load_own(config.perturbation))
    rows = read_jsonl(config.input_file, FIELDS, parse=_with_readable_tests, on_invalid=invalid.handler)
    for row in with_progress(rows, config.input_file):
        counts["read"] += 1
        if not row.get("fully_specified", True):
            counts["dropped_hidden_rule"] += 1
            continue
        fields = _fields(row, config.seed, change)
        if fields is None:
            counts["dropped_equal_outputs"] += 1
        else:
            counts["written"] += 1
            yield {**row, **fields}
    counts["invalid_lines_skipped"] = invalid.count


def _fields(row: Record, seed: int, change: Perturbation) -> dict[str, str] | None:
    try:
        return perturbed_fields(row, seed, change)
    except ValueError as error:
        raise InputError(f"problem {row['id']!r}: the perturbation gave unusable tests: {error}") from None


def _with_readable_tests(row: Record) -> Record:
    for field in ("test_cases", "public_test_cases"):
        try:
            TestCases.parse(row[field])
        except ValueError as error:
            raise ValueError(f"problem {row['id']!r}: field '{field}': {error}") from None
    return row
