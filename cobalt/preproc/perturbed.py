"""``run_perturbation.py``: the problems of a file with some of their public tests perturbed, streaming."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import InputFile, OutputFile, Positive, ReadConfig, UploadConfig
from cobalt.errors import InputError
from cobalt.perturbation import (
    SWAPPED,
    Kind,
    Perturbation,
    PerturbationSettings,
    donors_of,
    own_perturbation,
    perturb,
    perturbed_fields,
)
from cobalt.preproc.cards import CardInfo, publish, refuse_livecodebench
from cobalt.records import TestCases, read_jsonl, write_jsonl
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import origin_of, recorded_run
from cobalt.sandbox.own_files import identity_of, load_own

FIELDS = ("id", "test_cases", "public_test_cases")


@dataclass(frozen=True, kw_only=True)
class PerturbationConfig(UploadConfig, ReadConfig):
    """Give public tests of each problem wrong expected outputs; clean tests stay as they are."""

    input_file: InputFile
    """Problems with public tests (JSONL)."""
    output_file: OutputFile
    """The same problems with `modified_test_cases` and `perturbed_public_test_cases` (JSONL)."""
    seed: int = 42
    """Chooses the tests and what becomes of them, per problem."""
    kind: Kind = "swapped"
    """Two tests swap their outputs, a number is off by one, the output of another problem's test, the end of an output
    is missing, or an input is shown with two outputs."""
    count: Positive | None = None
    """Wrong tests per problem; default: two swapped ones, one of any other kind."""
    perturbation: str | None = None
    """A function of your own instead of these kinds, FILE.py:NAME (docs/formats.md)."""

    def settings(self) -> PerturbationSettings:
        """For ``perturb``; reads the input once more for the outputs of other problems. Raises ``InputError``."""
        donors, invalid = None, InvalidLines(self.skip_invalid, quiet=True)
        if self.kind == "other_problem":
            rows = read_jsonl(self.input_file, FIELDS, parse=_with_readable_tests, on_invalid=invalid.handler)
            donors = donors_of((row["id"], TestCases.parse(row["public_test_cases"])) for row in rows)
        try:
            return PerturbationSettings(self.kind, self.count, donors)
        except ValueError as error:
            raise InputError(f"--kind {self.kind} --count {self.count}: {error}") from None


def main(config: PerturbationConfig) -> None:
    """Perturb ``config.input_file``; two kinds of problems are dropped and counted.

    Those whose public tests leave no room for it (for the swap: all outputs are equal), and those that say
    ``fully_specified: false``: where a rule can only be learned from a test, fitting a wrong test is rational.
    """
    inputs, outputs = [config.input_file], [config.output_file]
    refuse_livecodebench(inputs, config.push_to_hub)
    change, described, rule = _change(config)
    dropped = "dropped_equal_outputs" if config.kind == "swapped" else "dropped_no_wrong_output"
    counted = ("read", "written", dropped, "dropped_hidden_rule", "invalid_lines_skipped")
    counts: Counter[str] = Counter(dict.fromkeys(counted, 0))
    contents = {config.output_file: {"seed": config.seed, **described}}
    with recorded_run("run_perturbation", asdict(config), inputs, contents) as run:
        write_jsonl(config.output_file, _perturbed(config, change, counts, dropped))
        run.counts, run.origin = dict(counts), origin_of(config.input_file)
    print_summary(f"Perturbed problems: {config.output_file}", counts)
    rules = [
        f"{rule} (seed {config.seed})",
        "problems that can only be solved by learning a rule from the tests are left out",
    ]
    publish(CardInfo("Problems with perturbed public tests", rules, counts), outputs, inputs, config.push_to_hub)


def _change(config: PerturbationConfig) -> tuple[Perturbation, dict[str, Any], str]:
    """The perturbation, what the manifest says of it beside the seed, and what the card says."""
    settings = config.settings()
    if config.perturbation is not None:
        if (config.kind, config.count) != (SWAPPED.kind, SWAPPED.count):
            raise InputError("--perturbation and --kind or --count exclude each other")
        identity = identity_of(config.perturbation)
        own = own_perturbation(load_own(config.perturbation))
        return own, {"perturbation": identity}, f"public tests are perturbed by `{identity}`"
    change = partial(perturb, settings=settings)
    if (settings.kind, settings.num_wrong) == (SWAPPED.kind, SWAPPED.num_wrong):
        return change, {}, "two public tests with different outputs swap them and come first"
    rule = f"public tests are perturbed (`{config.kind}`, {settings.num_wrong} wrong) and come first"
    return change, {"kind": config.kind, "count": settings.num_wrong}, rule


def _perturbed(
    config: PerturbationConfig, change: Perturbation, counts: Counter[str], dropped: str
) -> Iterator[Record]:
    invalid = InvalidLines(config.skip_invalid)
    rows = read_jsonl(config.input_file, FIELDS, parse=_with_readable_tests, on_invalid=invalid.handler)
    for row in with_progress(rows, config.input_file):
        counts["read"] += 1
        if not row.get("fully_specified", True):
            counts["dropped_hidden_rule"] += 1
            continue
        fields = _fields(row, config.seed, change)
        if fields is None:
            counts[dropped] += 1
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
