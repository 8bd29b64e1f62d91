"""``run_perturbation.py``: the problems of a file with some of their public tests perturbed, streaming."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import InputFile, OutputFile, Positive, ReadConfig, UploadConfig
from cobalt.errors import InputError
from cobalt.perturbation import (
    SWAPPED,
    Kind,
    PerturbationSettings,
    donors_of,
    own_perturbation,
    perturb,
    perturbed_fields,
)
from cobalt.preproc.outputs import publish, refuse_livecodebench
from cobalt.records import TestCases, read_jsonl, tests_of, write_jsonl
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import origin_of, recorded_run
from cobalt.sandbox.own_files import OwnFile

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


def main(config: PerturbationConfig) -> None:
    """Perturb ``config.input_file``; two kinds of problems are dropped and counted.

    Those whose public tests leave no room for it (for the swap: the checker takes all outputs for one; with tolerances
    or a checker of one's own that cannot be said, so these are dropped, too), and those that say
    ``fully_specified: false``: where a rule can only be learned from a test, fitting a wrong test is rational.
    """
    inputs, outputs = [config.input_file], [config.output_file]
    refuse_livecodebench(inputs, config.push_to_hub)
    dropped = "dropped_equal_outputs" if config.kind == "swapped" else "dropped_no_wrong_output"
    counted = ("read", "written", dropped, "dropped_hidden_rule", "invalid_lines_skipped")
    counts: Counter[str] = Counter(dict.fromkeys(counted, 0))

    def parse(row: Record) -> Record:
        try:
            for field in ("test_cases", "public_test_cases"):
                tests_of(row, field)
        except ValueError as error:
            raise ValueError(f"problem {row['id']!r}: {error}") from None
        return row

    def rows(quiet: bool = False) -> Iterator[Record]:
        invalid = InvalidLines(config.skip_invalid, quiet)
        yield from read_jsonl(config.input_file, FIELDS, parse=parse, on_invalid=invalid.handler)
        counts["invalid_lines_skipped"] = invalid.count

    donors = None
    if config.kind == "other_problem":  # reads the input once more
        donors = donors_of((row["id"], TestCases.parse(row["public_test_cases"])) for row in rows(quiet=True))
    try:
        settings = PerturbationSettings(config.kind, config.count, donors)
    except ValueError as error:
        raise InputError(f"--kind {config.kind} --count {config.count}: {error}") from None

    origin = origin_of(config.input_file)
    change, content = partial(perturb, settings=settings, checker=origin.get("checker")), {}
    if config.perturbation is not None:
        if (config.kind, config.count) != (SWAPPED.kind, SWAPPED.count):
            raise InputError("--perturbation and --kind or --count exclude each other")
        own = OwnFile.read(config.perturbation)
        change, content = own_perturbation(own.load()), {"perturbation": own.identity}
    elif (settings.kind, settings.num_wrong) != (SWAPPED.kind, SWAPPED.num_wrong):
        content = {"kind": config.kind, "count": settings.num_wrong}

    def perturbed() -> Iterator[Record]:
        for row in with_progress(rows(), config.input_file):
            counts["read"] += 1
            if not row.get("fully_specified", True):
                counts["dropped_hidden_rule"] += 1
                continue
            try:
                fields = perturbed_fields(row, config.seed, change)
            except ValueError as error:
                raise InputError(f"problem {row['id']!r}: the perturbation gave unusable tests: {error}") from None
            if fields is None:
                counts[dropped] += 1
            else:
                counts["written"] += 1
                yield {**row, **fields}

    contents = {config.output_file: {"seed": config.seed, **content}}
    with recorded_run("run_perturbation", asdict(config), inputs, contents, origin) as run:
        if write_jsonl(config.output_file, perturbed()) == 0:
            hidden = f"{counts['dropped_hidden_rule']} say fully_specified: false"
            problem = f"none of its {counts['read']} problems can be perturbed so; {hidden}"
            raise InputError.at(config.input_file, None, problem)
        run.counts = dict(counts)
    print_summary(f"Perturbed problems: {config.output_file}", counts)
    publish("Problems with perturbed public tests", "run_perturbation.py", outputs, inputs, config.push_to_hub)
