"""``preproc_taco.py``: raw TACO rows to verified problems, split into train and dev.

Two passes over the rows. The first runs reference solutions of every problem that passes the filters, many problems at
a time, and records each outcome in ``<output stem>.verification.jsonl`` as soon as it is known: a killed run continues
there. The second writes the problems with a verified solution, in the order of the input.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import (
    ExecutionConfig,
    NotNegative,
    OptionalInputFile,
    OutputFile,
    Positive,
    ReadConfig,
    UploadConfig,
)
from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.cli.tasks import for_each
from cobalt.errors import InputError
from cobalt.preproc.cards import CardInfo, publish, refuse_livecodebench
from cobalt.preproc.hub import hub_licence, hub_rows
from cobalt.preproc.spool import Spool
from cobalt.preproc.taco_rows import (
    DEV,
    TRAIN,
    Candidate,
    Record,
    TacoRules,
    dev_rank,
    is_prepared,
    prepare,
    split_of,
    usable_row,
)
from cobalt.preproc.verification import INFRA, UNSOLVED, VERIFIED, Pending, VerificationLog, verify
from cobalt.prompts import described, prompt_content
from cobalt.records import read_jsonl, row_hash, write_lines
from cobalt.records.jsonl import InvalidLines
from cobalt.records.manifest import recorded_run, refuse_infra_rate
from cobalt.sandbox.checkers import checker_identity
from cobalt.serving.execution import open_execution_service

PREPARED = "kept: prepared already"
FOREIGN = "kept: with instructions of another prompt set"
TIME_LIMITED = "unsolved problems with a solution stopped by the time limit"


@dataclass(frozen=True, kw_only=True)
class TacoConfig(ExecutionConfig, UploadConfig, PromptsConfig, ReadConfig):
    """Prepare TACO problems: filter, select tests, verify by execution, split."""

    input_file: OptionalInputFile = None
    """TACO-format rows (JSONL); the hub dataset by default."""
    output_file: OutputFile = Path("data/taco_verified_filtered.jsonl")
    """X.jsonl becomes X_train.jsonl and X_dev.jsonl, or stays X.jsonl with --dev_size 0."""
    dev_size: NotNegative = 200
    """Problems held out for validation, of the rows that name no split themselves."""
    seed: int = 42
    """Chooses the dev problems and the order in which reference solutions are tried."""
    concurrency: Annotated[Positive, tyro.conf.arg(name="max_in_flight", aliases=["--concurrency"])] = 64
    """Problems under verification at a time."""
    min_alphanumeric: NotNegative = TacoRules.min_alphanumeric
    """Fewest letters and digits in a statement; with fewer the problem is dropped."""
    hub_dataset: str = "likaixin/TACO-verified"
    """Hub dataset read when there is no --input_file."""
    hub_split: str = "train"
    """Its split."""
    license: str | None = None
    """Licence written on the card; by default that of the hub dataset's card, or of the input's."""

    @property
    def inputs(self) -> list[Path]:
        """The local files read."""
        return [self.input_file] if self.input_file is not None else []

    @property
    def outputs(self) -> dict[str, Path]:
        """Output path per split; one path, under "all", with ``dev_size`` 0."""
        path = self.output_file
        if self.dev_size == 0:
            return {"all": path}
        return {split: path.with_name(f"{path.stem}_{split}{path.suffix}") for split in (TRAIN, DEV)}

    @property
    def verification_file(self) -> Path:
        """Where outcomes are kept while and after they are found."""
        path = self.output_file
        return path.with_name(f"{path.stem}.verification.jsonl")


def main(config: TacoConfig, rules: TacoRules | None = None) -> None:
    """Prepare the problems that ``config`` names; see the command's flags."""
    rules = rules or TacoRules(min_alphanumeric=config.min_alphanumeric)
    refuse_livecodebench(config.inputs, config.push_to_hub)
    outputs = list(config.outputs.values())
    with recorded_run("preproc_taco", dataclasses.asdict(config), config.inputs, _contents(config, rules)) as run:
        with closing(VerificationLog(config.verification_file)) as log:
            _verify_pending(config, rules, log)
            counts = _write(config, rules, log)
        run.counts = counts
        run.origin = {} if FOREIGN in counts else {"prompts": described(config.prompt_set())}
    print_summary(f"Prepared problems: {', '.join(map(str, outputs))}", counts)
    publish(_card(config, rules, counts), outputs, config.inputs, config.push_to_hub)


def _contents(config: TacoConfig, rules: TacoRules) -> dict[Path, dict[str, Any]]:
    """What shapes each output; outcomes of verification stay valid when only the split or the prompts change."""
    verifying = {"seed": config.seed, "rules": dataclasses.asdict(rules)}
    if config.checker is not None:
        verifying["checker"] = checker_identity(config.checker)
    writing = {**verifying, "dev_size": config.dev_size, **prompt_content(config.prompt_set())}
    if config.input_file is None:
        writing["hub"] = f"{config.hub_dataset}/{config.hub_split}"
    return {**dict.fromkeys(config.outputs.values(), writing), config.verification_file: verifying}


def _rows(config: TacoConfig, counts: Counter[str], quiet: bool = False) -> Iterator[Record]:
    """All rows, checked; invalid ones are counted when they may be skipped."""
    invalid = InvalidLines(config.skip_invalid, quiet)
    prompts = config.prompt_set()
    check = InstructionCheck(prompts, required=config.prompts is not None)

    def parse(row: Record) -> Record:
        usable_row(row)
        check.see(row["instruction"] if is_prepared(row) else prompts.instruction)
        return row

    if config.input_file is not None:
        yield from read_jsonl(config.input_file, fields=("id",), parse=parse, on_invalid=invalid.handler)
    else:
        yield from hub_rows(config.hub_dataset, config.hub_split, parse, invalid.handler)
    counts["invalid rows skipped"] = invalid.count
    if check.foreign:
        counts[FOREIGN] = counts[PREPARED]


def _usable(config: TacoConfig, rules: TacoRules, log: VerificationLog) -> Iterator[tuple[str | None, Pending | None]]:
    """The split that each usable row names, and what has to be verified (nothing if it is prepared or settled)."""
    prompts = config.prompt_set()
    for row in _rows(config, Counter(), quiet=True):
        input_hash = row_hash(row)
        if is_prepared(row) or log.is_settled(row["id"], input_hash):
            yield split_of(row), None
        elif isinstance(candidate := prepare(row, rules, prompts), Candidate):
            yield split_of(row), Pending(row["id"], input_hash, candidate)


def _verify_pending(config: TacoConfig, rules: TacoRules, log: VerificationLog) -> None:
    """First pass. The execution service is opened only if there is something to run."""
    unnamed = number = 0
    for split, pending in _usable(config, rules, log):
        unnamed += split is None
        number += pending is not None
    _refuse_dev_size(config, unnamed)
    if number > 0:
        asyncio.run(_verify(config, rules, log, number))


async def _verify(config: TacoConfig, rules: TacoRules, log: VerificationLog, number: int) -> None:
    kept = 0
    async with open_execution_service(config.executor, config.checker) as service:
        with progress_bar(total=number, desc="verifying", unit=" problems") as bar:

            async def verify_one(problem: Pending) -> None:
                nonlocal kept
                outcome = await verify(problem.candidate, service, config.seed, rules)
                log.put(problem, outcome)
                kept += outcome.status == VERIFIED
                bar.set_postfix(verified=kept, refresh=False)
                bar.update()

            pending = (pending for _, pending in _usable(config, rules, log) if pending is not None)
            await for_each(pending, verify_one, lambda: config.concurrency)


def _write(config: TacoConfig, rules: TacoRules, log: VerificationLog) -> dict[str, Any]:
    """Second pass: write the kept problems by split, in the order of the input. Returns the report."""
    counts: Counter[str] = Counter()
    ids: list[Any] = []
    splits: list[tuple[str | None, Any]] = []
    with Spool(config.output_file) as spool:
        for record in _kept(config, rules, log, counts, ids):
            splits.append((split_of(record), record["id"]))
            spool.append(record)
        run = counts[VERIFIED] + counts[UNSOLVED] + counts[INFRA]
        refuse_infra_rate(counts[INFRA], run, "problems", config.max_infra_rate)
        log.refuse_loss(ids)
        for name, order in _split(config, splits).items():
            counts[f"written: {name}"] = write_lines(config.outputs[name], spool.lines(order))
    log.finish(ids)
    return dict(counts)


def _kept(
    config: TacoConfig, rules: TacoRules, log: VerificationLog, counts: Counter[str], ids: list[Any]
) -> Iterator[Record]:
    """The problems that stay, with a count of every reason; the ids of all go to ``ids``."""
    prompts = config.prompt_set()
    for row in _rows(config, counts):
        counts["read"] += 1
        ids.append(row["id"])
        if is_prepared(row):
            counts[PREPARED] += 1
            yield row
            continue
        candidate = prepare(row, rules, prompts)
        if not isinstance(candidate, Candidate):
            counts[f"dropped: {candidate}"] += 1
            continue
        outcome = log.get(row["id"], row_hash(row))
        assert outcome is not None, "the first pass leaves an outcome for every candidate"
        counts[outcome.status] += 1
        counts[TIME_LIMITED] += outcome.time_limited and outcome.status == UNSOLVED
        if outcome.status == VERIFIED:
            yield candidate.record


def _split(config: TacoConfig, splits: list[tuple[str | None, Any]]) -> dict[str, list[int]]:
    """Record indices per output, in order. Rows that name a split keep it; of the others the seed picks dev."""
    if config.dev_size == 0:
        return {"all": list(range(len(splits)))}
    unnamed = [i for i, (split, _) in enumerate(splits) if split is None]
    _refuse_dev_size(config, len(unnamed))
    held_out = set(sorted(unnamed, key=lambda i: dev_rank(config.seed, splits[i][1]))[: config.dev_size])
    is_dev = [split == DEV or i in held_out for i, (split, _) in enumerate(splits)]
    return {
        TRAIN: [i for i, dev in enumerate(is_dev) if not dev],
        DEV: [i for i, dev in enumerate(is_dev) if dev],
    }


def _refuse_dev_size(config: TacoConfig, unnamed: int) -> None:
    """Raise ``InputError`` if of ``unnamed`` problems, those that name no split, none is left for training."""
    if 0 < unnamed <= config.dev_size:
        raise InputError(f"--dev_size {config.dev_size} leaves no training problem of the {unnamed} that name no split")


def _card(config: TacoConfig, rules: TacoRules, counts: dict[str, Any]) -> CardInfo:
    from_hub = config.input_file is None
    return CardInfo(
        title="Prepared TACO problems",
        rules=_described(rules, counts),
        counts=counts,
        license=config.license or (hub_licence(config.hub_dataset) if from_hub else None),
        source=f"[{config.hub_dataset}](https://huggingface.co/datasets/{config.hub_dataset})" if from_hub else None,
    )


def _described(rules: TacoRules, counts: dict[str, Any]) -> list[str]:
    """What is true of the problems written: the rules hold for those that were prepared by this run."""
    taken_over = counts.get(PREPARED, 0)
    as_they_were = f"{taken_over} of the problems were prepared already: taken over as they were, not run again"
    if taken_over == counts["read"]:
        return [as_they_were]
    return [
        *([as_they_were] if taken_over else []),
        f"at least {rules.min_tests} well-formed tests and {rules.min_alphanumeric} alphanumeric characters, no images",
        f"the {rules.shortest_tests} tests with the shortest and the {rules.longest_tests} with the longest inputs",
        f"one of up to {rules.max_solutions} reference solutions passes every test",
        f"the {rules.public_tests} tests with the shortest inputs are public",
    ]
