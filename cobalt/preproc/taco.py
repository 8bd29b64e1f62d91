"""``preproc_taco.py`` and ``cobalt data import``: raw rows to verified problems, split into train and dev.

Two passes over the rows. The first runs reference solutions of every problem that passes the filters, many problems at
a time, and records each outcome in ``<output stem>.verification.jsonl`` as soon as it is known: a killed run continues
there. The second writes the problems with a verified solution, in the order of the input.
"""

import asyncio
import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from pydantic.dataclasses import dataclass

from cobalt.cli import flags
from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.cli.tasks import for_each
from cobalt.errors import InputError
from cobalt.perturbation import random_of
from cobalt.preproc import formats, generated_tests, taco_rows
from cobalt.preproc.asserts import UNANSWERED
from cobalt.preproc.formats import FORMATS
from cobalt.preproc.near_duplicates import KnownProblems, Match
from cobalt.preproc.outputs import publish, refuse_livecodebench
from cobalt.preproc.sources import Source
from cobalt.preproc.taco_rows import (
    DEV,
    GENERATED,
    READINGS_VERSION,
    SEVERAL_ANSWERS,
    TRAIN,
    Candidate,
    TacoRules,
    is_prepared,
    split_of,
)
from cobalt.prompts import described, prompt_content
from cobalt.records import (
    RecordFile,
    TestCases,
    Verdict,
    dump_line,
    id_key,
    read_jsonl,
    row_hash,
    write_jsonl,
    write_lines,
)
from cobalt.records.jsonl import InvalidLines, Record, naming
from cobalt.records.manifest import check_paths, file_sha256, recorded_run, refuse_infra_rate
from cobalt.sandbox import ExecutionResult
from cobalt.sandbox.checkers import checker_identity
from cobalt.sandbox.results import cut
from cobalt.serving.execution import ExecutionService, service_of

VERIFIED = "kept: verified by execution"
UNVERIFIED = "kept: no reference solution to verify it with"
PREPARED = "kept: prepared already"
FOREIGN = "kept: with instructions of another prompt set"
UNSOLVED = "dropped: no reference solution passes every test"
REPEATED = "dropped: id or statement of an earlier row"
SAME_PROBLEM = "dropped: statement and tests of an earlier row"
INFRA = "left out: infra error (a rerun tries again)"
SEVERAL = "kept, and marked: several right answers"
UNUSABLE_TESTS = "tests left out: cut, unreadable, or without an output"
GENERATED_TESTS = "tests generated"
TIME_LIMITED = "unsolved problems with a solution stopped by the time limit"
"""Their outcome may differ on a slower or faster machine."""
NEAR_DUPLICATE = "near duplicate of a test problem"


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(flags.ExecutionConfig, flags.UploadConfig, PromptsConfig, flags.ReadConfig):
    """What all sources have in common."""

    output_file: flags.OutputFile
    """X.jsonl becomes X_train.jsonl and X_dev.jsonl, or stays X.jsonl with --dev_size 0."""
    dev_size: flags.NotNegative = 200
    """Problems held out for validation, of the rows that name no split themselves."""
    seed: int = 42
    """Chooses the dev problems and the order in which reference solutions are tried."""
    concurrency: Annotated[flags.Positive, tyro.conf.arg(name="max_in_flight", aliases=["--concurrency"])] = 64
    """Problems under verification at a time."""
    min_tests: flags.Positive = TacoRules.min_tests
    """Fewest well-formed tests; with fewer the problem is dropped. Some have to be hidden."""
    public_tests: flags.Positive = TacoRules.public_tests
    """Tests that become public: those with the shortest inputs."""
    generate: flags.NotNegative | None = None
    """Tests that a problem with fewer than --min_tests is filled up to, if it calls a function and has a reference:
    changed inputs, with the outputs on which all references agree. 0: none. Default: that of the format."""
    allow_images: bool = False
    """Keep problems whose statement has an image or points at one."""
    min_alphanumeric: flags.NotNegative = TacoRules.min_alphanumeric
    """Fewest letters and digits in a statement; with fewer the problem is dropped."""
    near_duplicates: tuple[Path, ...] = ()
    """Test sets (JSONL of problems or TACO rows). A problem that also stands in one of them, by statement, tests,
    program, words or function name, is dropped and listed in X.near_duplicates.jsonl."""
    special_judge: Path | None = None
    """TACO's list of the problems with several right answers, `output_spj.jsonl` of its repository: one line for each
    row of the input, in this order. These problems are marked."""
    license: str | None = None
    """Licence written on the card; by default that of the hub dataset's card, or of the input's."""

    @property
    def rules(self) -> TacoRules:
        least = self.public_tests + 1
        if self.min_tests < least:
            raise InputError(
                f"--min_tests {self.min_tests}: must be greater than or equal to {least} (--public_tests + 1)"
            )
        return TacoRules(
            self.min_tests, self.min_alphanumeric, public_tests=self.public_tests, allow_images=self.allow_images
        )

    @property
    def outputs(self) -> dict[str, Path]:
        """Output path per split; one path, under "all", with ``dev_size`` 0."""
        path = self.output_file
        if self.dev_size == 0:
            return {"all": path}
        return {split: path.with_name(f"{path.stem}_{split}{path.suffix}") for split in (TRAIN, DEV)}


@dataclass(frozen=True, kw_only=True)
class TacoConfig(PrepareConfig):
    """Prepare TACO problems: filter, select tests, verify by execution, split."""

    input_file: flags.OptionalInputFile = None
    """TACO-format rows (JSONL); the hub dataset by default."""
    output_file: flags.OutputFile = Path("data/taco_verified_filtered.jsonl")
    """X.jsonl becomes X_train.jsonl and X_dev.jsonl, or stays X.jsonl with --dev_size 0."""
    hub_dataset: str = "likaixin/TACO-verified"
    """Hub dataset read when there is no --input_file."""
    hub_split: str = "train"
    """Its split."""

    format: ClassVar[formats.Name] = "taco"
    command: ClassVar[str] = "preproc_taco"
    keeps_unverified: ClassVar[bool] = False

    @property
    def source(self) -> Source:
        if self.input_file and self.hub_dataset != TacoConfig.hub_dataset:
            raise InputError("--input_file and --hub_dataset exclude each other")
        file = self.input_file and os.path.join(".", self.input_file)  # never a name of the hub
        return Source(file or self.hub_dataset, split=self.hub_split)


@dataclass(frozen=True, kw_only=True)
class ImportConfig(PrepareConfig):
    """Import problems of another data set: filter, select tests, verify by execution, split.

    `cobalt data import livecodebench` has flags of its own.
    """

    format: tyro.conf.Positional[formats.Name]
    """Of the rows: TACO's, DeepCoder-Preview's, open-r1/codeforces', CodeContests', veRL's (Eurus), MBPP's,
    HumanEval's (both also EvalPlus'), or LeetCodeDataset's."""
    input: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]
    """A JSONL or parquet file, or the name of a hub dataset."""
    subset: str | None = None
    """Configuration of the hub dataset."""
    hub_split: str = "train"
    """Split of the hub dataset."""
    unverified: Literal["keep", "drop"] | None = None
    """What becomes of problems without reference solutions; default: drop, and keep for formats that have none."""

    command: ClassVar[str] = "data import"

    @property
    def keeps_unverified(self) -> bool:
        """Whether problems without reference solutions are kept."""
        return not FORMATS[self.format].has_solutions if self.unverified is None else self.unverified == "keep"

    @property
    def source(self) -> Source:
        return Source(self.input, self.subset, self.hub_split)


def filled_up_to(config: TacoConfig | ImportConfig) -> int:
    """Tests that a problem with too few of them gets."""
    return FORMATS[config.format].generate if config.generate is None else config.generate


def failed_test(result: ExecutionResult, tests: TestCases) -> Record:
    """The first test that a program fails, its texts cut: what ``X.verification.jsonl`` tells of it."""
    first = result.passing.index(False)
    texts = {"input": tests.inputs_K, "expected": tests.outputs_K, "printed": result.outputs, "error": result.errors}
    shown = {name: cut(texts_K[first]) for name, texts_K in texts.items()}
    return {"test": first, "verdict": result.verdicts[first], **shown}


def main(config: TacoConfig | ImportConfig) -> None:
    """Prepare the problems that ``config`` names; see the command's flags."""
    source, outputs, rules = config.source, config.outputs, config.rules
    inputs = [source.file] if source.file is not None else []
    if inputs and (source.subset, source.split) != (None, Source.split):
        raise InputError(f"--subset and --hub_split are of hub datasets, and {inputs[0]} is a file")
    refuse_livecodebench(inputs, config.push_to_hub)
    log_path = config.output_file.with_name(f"{config.output_file.stem}.verification.jsonl")
    lists = [] if config.special_judge is None else [config.special_judge]
    check_paths([*inputs, *config.near_duplicates, *lists], [*outputs.values(), log_path], asdict(config))
    preparation, service = Preparation(config), service_of(config)
    # What decides verdicts. Without a reference solution no service is needed.
    execution = asyncio.run(_description(service)) if preparation.has_programs() else {}
    # Outcomes of verification stay valid when only the split or the prompts change.
    known_rules = {
        name: value for name, value in asdict(rules).items() if name != "allow_images" or value
    }  # older ones lack it
    verifying = {"seed": config.seed, "rules": known_rules, "readings": READINGS_VERSION}
    if execution:
        verifying["execution"] = execution
    writing = {**verifying, "dev_size": config.dev_size, **prompt_content(config.prompt_set())}
    if source.file is None:
        writing["hub"] = "/".join(filter(None, (source.place, source.subset, source.split)))
    if config.format != "taco":
        writing |= {"format": config.format, "keeps_unverified": config.keeps_unverified}
    if config.near_duplicates:
        writing["near_duplicates"] = sorted(map(file_sha256, config.near_duplicates))
    if config.special_judge is not None:
        writing["special_judge"] = file_sha256(config.special_judge)
    contents = {**dict.fromkeys(outputs.values(), writing), log_path: verifying}
    generated_path = config.output_file.with_name(f"{config.output_file.stem}.generated.jsonl")
    if filled_up_to(config):
        made = {"seed": config.seed, "generate": filled_up_to(config), "generated_tests": generated_tests.VERSION}
        writing |= made
        contents[generated_path] = {**made, "min_tests": config.min_tests, "execution": execution}

    read = [*inputs, *config.near_duplicates]
    with (
        recorded_run(config.command, asdict(config), read, contents) as run,
        RecordFile(log_path) as log,
        RecordFile(generated_path) if filled_up_to(config) else nullcontext() as generated,
    ):
        preparation.keep_in(log, generated)
        if generated is not None:
            asyncio.run(preparation.generate(generated))
        unnamed = number = 0
        for row, candidate in progress_bar(iterable=preparation.usable(), desc="reading", unit=" problems"):
            unnamed += split_of(row) is None
            number += candidate is not None
        preparation.refuse_dev_size(unnamed)
        log.refuse_loss(preparation.ids)
        if number > 0:
            asyncio.run(preparation.verify(number))
        run.counts = counts = preparation.write()
        run.origin = {} if FOREIGN in counts else {"prompts": described(preparation.prompts)}
        if checker := execution.get("checker", config.checker and checker_identity(config.checker)):
            run.origin["checker"] = checker
    print_summary(f"Prepared problems: {', '.join(map(str, outputs.values()))}", counts)

    link = None if inputs else f"[{source.place}](https://huggingface.co/datasets/{source.place})"
    title, licence = f"Prepared {FORMATS[config.format].title} problems", config.license or source.licence()
    publish(title, config.command, list(outputs.values()), inputs, config.push_to_hub, licence, link)


async def _description(service: AbstractAsyncContextManager[ExecutionService]) -> dict[str, Any]:
    async with service as opened:
        return await opened.describe()


def _place_and_mark(line: Record) -> tuple[int, bool]:
    place, marked = line["idx"], line["special_judge"]
    if type(place) is not int or type(marked) is not bool:
        raise ValueError("field 'idx' must be a whole number, and field 'special_judge' true or false")
    return place, marked


class Preparation:
    """One run over the rows of a source."""

    _log: RecordFile
    _generated: RecordFile | None

    def __init__(self, config: TacoConfig | ImportConfig):
        self._config = config
        self._rules, self.prompts = config.rules, config.prompt_set()
        self._known = KnownProblems(config.near_duplicates)
        self._matches: dict[str, Match | None] = {}
        self._near_duplicates: list[Record] = []
        self._special: list[bool] = []
        if config.special_judge is not None:
            listed = read_jsonl(config.special_judge, ("idx", "special_judge"), "idx", _place_and_mark)
            self._special = [marked for _, marked in sorted(listed)]
        self.ids: list[Any] = []
        """Of the rows, as far as they are read."""

    def keep_in(self, log: RecordFile, generated: RecordFile | None) -> None:
        """``log`` holds the outcomes of verification, ``generated`` more tests."""
        self._log, self._generated = log, generated

    def has_programs(self) -> bool:
        """Whether a row has a reference solution, which may have to be run. Reads and checks them all."""
        rows = progress_bar(iterable=self._rows(Counter(), quiet=True), desc="checking", unit=" rows")
        return sum(not is_prepared(row) and bool(taco_rows.references(row)) for row in rows) > 0

    def _rows(self, counts: Counter[str], quiet: bool = False) -> Iterator[Record]:
        """All rows as raw ones of TACO, checked; invalid ones are counted when they may be skipped."""
        config, seen, problems = self._config, set(), set()
        self.ids = []
        invalid = InvalidLines(config.skip_invalid, quiet)
        check, valid = InstructionCheck(self.prompts, required=config.prompts is not None), 0

        def parse(row: Record) -> Record:
            nonlocal valid
            row = FORMATS[config.format].convert(row)
            if (place := valid + invalid.count) < len(self._special):
                row = {**row, SEVERAL_ANSWERS: self._special[place]}
            taco_rows.refuse_unusable(row)
            check.see(row["instruction"] if is_prepared(row) else self.prompts.instruction)
            valid += 1
            return row

        id_field = "id" if config.format == "taco" else None  # rows of other formats may repeat a problem
        for row in config.source.rows(id_field, parse, invalid.handler):
            counts["read"] += 1
            if (key := id_key(row["id"])) in seen:
                counts[REPEATED] += 1
                continue
            seen.add(key)
            self.ids.append(row["id"])
            tests = row.get("test_cases") if is_prepared(row) else row["input_output"]
            problem = row_hash({"question": row["question"].split(), "tests": tests, "why": row.get("left_out")})
            if problem in problems:
                counts[SAME_PROBLEM] += 1  # under two ids it could be in both splits
                continue
            problems.add(problem)
            yield row
        if config.special_judge is not None and (number := valid + invalid.count) != (listed := len(self._special)):
            told = f"it lists {listed} problems, and the input has {number} rows: they are of different data"
            raise InputError.at(config.special_judge, None, f"--special_judge: {told}")
        counts["invalid rows skipped"] = invalid.count
        if check.foreign:
            counts[FOREIGN] = counts[PREPARED]

    def _match(self, row: Record) -> Match | None:
        """The test problem that a row repeats. Every pass asks, and tests that were generated change nothing."""
        key = id_key(row["id"])
        if key not in self._matches:
            self._matches[key] = self._known.match(row)
        return self._matches[key]

    def _completed(self, row: Record) -> Record:
        """The row with the tests that were generated for it. A near duplicate got none, or in an earlier run alone."""
        made = None if self._generated is None else self._generated.get(row["id"], row_hash(row))
        if made is None or self._match(row):
            return row
        if made["infra_error"]:
            return {**row, "left_out": INFRA, "infra_error": made["infra_error"]}
        return {**row, "input_output": made["input_output"]}

    def _few_tests(self, row: Record) -> tuple[TestCases | None, Record] | None:
        """The usable tests and ``input_output`` of a row that needs more; None: it does not, or is dropped anyway."""
        made = self._generated.get(row["id"], row_hash(row)) if self._generated is not None else None
        if is_prepared(row) or (made is not None and made["infra_error"] is None):
            return None
        tests = taco_rows.parsed(row["input_output"])
        if not isinstance(tests, dict) or GENERATED in tests or not taco_rows.references(row):
            return None
        if taco_rows.refusal(row, self._rules) or self._match(row):
            return None
        readings = taco_rows.readings_of(tests, row.get("starter_code") or "")
        known = readings[0] if readings and not isinstance(readings, str) else None
        if not tests.get(UNANSWERED) and (known is None or len(known) >= self._rules.min_tests):
            return None
        return known, tests

    async def generate(self, log: RecordFile) -> None:
        """Before the passes: run the references of problems with too few tests on more inputs."""
        config, wanted = self._config, filled_up_to(self._config)
        number = sum(self._few_tests(row) is not None for row in self._rows(Counter(), quiet=True))
        log.refuse_loss(self.ids)
        if number == 0:
            return
        async with service_of(config) as service:
            with progress_bar(total=number, desc="generating tests", unit=" problems") as bar:

                async def generate_for(problem: tuple[Record, TestCases | None, Record]) -> None:
                    row, known, tests = problem
                    asked = generated_tests.asked(known, tests, wanted, random_of(config.seed, row["id"]))
                    if asked is not None:
                        programs = taco_rows.references(row)
                        programs = taco_rows.solution_order(programs, config.seed, row["id"], self._rules)
                        programs *= 1 + (len(programs) == 1)  # twice: results that chance decides do not agree
                        results = [await service.run(program, asked.tests) for program in programs]
                        infra_error = next((result.infra_error for result in results if result.infra_error), None)
                        filled = generated_tests.answered(asked, tests, results, wanted)
                        key = {"id": row["id"], "input_hash": row_hash(row)}
                        log.append({**key, "infra_error": infra_error, "input_output": filled})
                    bar.update()

                rows = self._rows(Counter(), quiet=True)
                pending = ((row, *few) for row in rows if (few := self._few_tests(row)) is not None)
                await for_each(pending, generate_for, lambda: config.concurrency)

    def _examined(self, row: Record) -> Candidate | Record | str:
        """What may be run, or the row itself if it is prepared already, or the name of the filter that drops it."""
        if match := self._match(row):
            self._near_duplicates.append({"id": row["id"], **asdict(match)})
            return f"{NEAR_DUPLICATE}, by its {match.rule}"
        if is_prepared(row):
            return row
        return taco_rows.prepare(row, self._rules, self.prompts, self._config.keeps_unverified)

    def usable(self) -> Iterator[tuple[Record, Candidate | None]]:
        """The rows that no filter drops, and what has to be run (None: nothing, or its outcome is known).

        An infrastructure failure is no outcome: the problem is tried again.
        """
        for row in map(self._completed, self._rows(Counter(), quiet=True)):
            examined = self._examined(row)
            if isinstance(examined, Candidate) and examined.solutions:
                outcome = self._log.get(row["id"], row_hash(row))
                yield row, examined if outcome is None or outcome["status"] == INFRA else None
            elif not isinstance(examined, str):
                yield row, None

    async def verify(self, number: int) -> None:
        """First pass: run reference solutions of ``number`` problems, each until one passes every test."""
        config, verified = self._config, 0
        async with service_of(config) as service:
            with progress_bar(total=number, desc="verifying", unit=" problems") as bar:

                async def verify_one(problem: tuple[Record, Candidate]) -> None:
                    nonlocal verified
                    row, candidate = problem
                    status, tried, time_limited, infra_error, reading = UNSOLVED, 0, False, None, 0
                    failures: list[tuple[float, Record]] = []
                    solutions = taco_rows.solution_order(candidate.solutions, config.seed, row["id"], self._rules)
                    for number, code in itertools.product(range(len(candidate.readings)), solutions):
                        result = await service.run(code, candidate.readings[number])
                        tried += 1
                        if result.solved:
                            status, infra_error, reading = VERIFIED, None, number
                            break
                        if result.pass_rate is None:
                            infra_error = infra_error or result.infra_error
                            continue
                        failure = failed_test(result, candidate.readings[number])
                        failures.append((result.pass_rate, {"program": code, "reading": number, **failure}))
                        time_limited = time_limited or Verdict.TIME_LIMIT in result.verdicts
                    if infra_error:
                        status = INFRA
                    outcome = {"status": status, "tried": tried, "time_limited": time_limited, "reading": reading}
                    if status == UNSOLVED:  # of the solution that came nearest
                        outcome["failed"] = max(failures, key=itemgetter(0))[1]
                    key = {"id": row["id"], "input_hash": row_hash(row)}
                    self._log.append({**key, **outcome, "infra_error": infra_error})
                    verified += status == VERIFIED
                    bar.set_postfix(verified=verified, refresh=False)
                    bar.update()

                pending = ((row, candidate) for row, candidate in self.usable() if candidate is not None)
                await for_each(pending, verify_one, lambda: config.concurrency)

    def write(self) -> dict[str, Any]:
        """Second pass: write the kept problems by split, in the order of the input. Returns a count of every fate."""
        config, counts = self._config, Counter[str]()
        causes = Counter[str]()  # of infrastructure failures
        kept: list[tuple[str | None, Any]] = []
        self._near_duplicates.clear()
        # splits are known when all were seen
        with naming(config.output_file), tempfile.TemporaryFile(dir=config.output_file.parent) as spool:
            for row in progress_bar(iterable=map(self._completed, self._rows(counts)), desc="writing", unit=" rows"):
                examined = self._examined(row)
                if isinstance(examined, Candidate) and examined.unusable_tests:
                    counts[UNUSABLE_TESTS] += examined.unusable_tests
                if examined == INFRA:  # of its generated tests
                    counts[INFRA] += 1
                    causes[row["infra_error"]] += 1
                    continue
                if isinstance(examined, str):
                    counts[f"dropped: {examined}"] += 1
                    continue
                if not isinstance(examined, Candidate):
                    counts[PREPARED] += 1
                    record = examined
                elif not examined.solutions:
                    counts[UNVERIFIED] += 1
                    record = {**examined.record(), "verified": False}
                else:
                    outcome = self._log.get(row["id"], row_hash(row))
                    assert outcome is not None, "the first pass leaves an outcome for every candidate"
                    counts[outcome["status"]] += 1
                    causes.update(filter(None, [outcome["infra_error"]]))
                    counts[TIME_LIMITED] += outcome["time_limited"] and outcome["status"] == UNSOLVED
                    if outcome["status"] != VERIFIED:
                        continue
                    record = examined.record(outcome["reading"])
                if record.get(SEVERAL_ANSWERS):
                    counts[SEVERAL] += 1
                counts[GENERATED_TESTS] += sum(record.get(GENERATED) or ())
                spool.write(dump_line(record))
                kept.append((split_of(record), record["id"]))

            run = counts[VERIFIED] + counts[UNSOLVED] + counts[INFRA]
            refuse_infra_rate(counts[INFRA], run, "problems", config.max_infra_rate, causes)
            if self.ids and not kept:
                fates = "; ".join(f"{count} x {fate}" for fate, count in counts.most_common(4) if fate != "read")
                tests = f"; {self._log.path} says which test failed" if counts[UNSOLVED] else ""
                raise InputError(f"no problem is left of {len(self.ids)}: {fates}{tests}")
            # Rows that name a split keep it; of the others the seed picks dev.
            unnamed = [id_ for split, id_ in kept if split is None]
            self.refuse_dev_size(len(unnamed))
            unnamed.sort(key=lambda id_: taco_rows.dev_rank(config.seed, id_))
            held_out = {id_key(id_) for id_ in unnamed[: config.dev_size]}
            splits = [DEV if split == DEV or id_key(id_) in held_out else TRAIN for split, id_ in kept]
            for name, path in config.outputs.items():
                spool.seek(0)
                lines = (line for line, split in zip(spool, splits, strict=True) if name in (split, "all"))
                counts[f"written: {name}"] = write_lines(path, lines)
                if counts[f"written: {name}"] == 0:
                    print(f"note: {path} is empty: every problem names its split", file=sys.stderr)
        if config.near_duplicates:
            list_path = config.output_file.with_name(f"{config.output_file.stem}.near_duplicates.jsonl")
            write_jsonl(list_path, self._near_duplicates)
        self._log.finish(self.ids)
        if self._generated is not None:
            self._generated.finish(self.ids)
        return dict(counts)

    def refuse_dev_size(self, unnamed: int) -> None:
        """Raise ``InputError`` if of ``unnamed`` problems, those that name no split, none is left for training."""
        size = self._config.dev_size
        if 0 < unnamed <= size:
            told = f"--dev_size {size} leaves no training problem of the {unnamed} that name no split"
            raise InputError(f"{told}; choose a smaller --dev_size (0: no dev file)")
