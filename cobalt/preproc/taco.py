"""``preproc_taco.py``: raw TACO rows to verified problems, split into train and dev.

Two passes over the rows. The first runs reference solutions of every problem that passes the filters, many problems at
a time, and records each outcome in ``<output stem>.verification.jsonl`` as soon as it is known: a killed run continues
there. The second writes the problems with a verified solution, in the order of the input.
"""

import asyncio
import contextlib
import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic.dataclasses import dataclass

from cobalt.cli import flags
from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.cli.tasks import for_each
from cobalt.errors import InputError, SetupError, first_line
from cobalt.preproc import taco_rows
from cobalt.preproc.outputs import publish, refuse_livecodebench
from cobalt.preproc.taco_rows import DEV, TRAIN, Candidate, TacoRules, is_prepared, split_of
from cobalt.prompts import described, prompt_content
from cobalt.records import RecordFile, Verdict, dump_line, id_key, read_jsonl, row_hash, write_lines
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import recorded_run, refuse_infra_rate
from cobalt.sandbox.checkers import checker_identity
from cobalt.serving.execution import open_execution_service

VERIFIED = "kept: verified by execution"
PREPARED = "kept: prepared already"
FOREIGN = "kept: with instructions of another prompt set"
UNSOLVED = "dropped: no reference solution passes every test"
INFRA = "left out: infra error (a rerun tries again)"
TIME_LIMITED = "unsolved problems with a solution stopped by the time limit"
"""Their outcome may differ on a slower or faster machine."""


@dataclass(frozen=True, kw_only=True)
class TacoConfig(flags.ExecutionConfig, flags.UploadConfig, PromptsConfig, flags.ReadConfig):
    """Prepare TACO problems: filter, select tests, verify by execution, split."""

    input_file: flags.OptionalInputFile = None
    """TACO-format rows (JSONL); the hub dataset by default."""
    output_file: flags.OutputFile = Path("data/taco_verified_filtered.jsonl")
    """X.jsonl becomes X_train.jsonl and X_dev.jsonl, or stays X.jsonl with --dev_size 0."""
    dev_size: flags.NotNegative = 200
    """Problems held out for validation, of the rows that name no split themselves."""
    seed: int = 42
    """Chooses the dev problems and the order in which reference solutions are tried."""
    concurrency: Annotated[flags.Positive, tyro.conf.arg(name="max_in_flight", aliases=["--concurrency"])] = 64
    """Problems under verification at a time."""
    min_alphanumeric: flags.NotNegative = TacoRules.min_alphanumeric
    """Fewest letters and digits in a statement; with fewer the problem is dropped."""
    hub_dataset: str = "likaixin/TACO-verified"
    """Hub dataset read when there is no --input_file."""
    hub_split: str = "train"
    """Its split."""
    license: str | None = None
    """Licence written on the card; by default that of the hub dataset's card, or of the input's."""

    @property
    def rules(self) -> TacoRules:
        """The constants of the preparation."""
        return TacoRules(min_alphanumeric=self.min_alphanumeric)

    @property
    def outputs(self) -> dict[str, Path]:
        """Output path per split; one path, under "all", with ``dev_size`` 0."""
        path = self.output_file
        if self.dev_size == 0:
            return {"all": path}
        return {split: path.with_name(f"{path.stem}_{split}{path.suffix}") for split in (TRAIN, DEV)}


def main(config: TacoConfig) -> None:
    """Prepare the problems that ``config`` names; see the command's flags."""
    inputs = [config.input_file] if config.input_file is not None else []
    outputs, rules, prompts = config.outputs, config.rules, config.prompt_set()
    refuse_livecodebench(inputs, config.push_to_hub)
    # Outcomes of verification stay valid when only the split or the prompts change.
    verifying = {"seed": config.seed, "rules": dataclasses.asdict(rules)}
    if config.checker is not None:
        verifying["checker"] = checker_identity(config.checker)
    writing = {**verifying, "dev_size": config.dev_size, **prompt_content(prompts)}
    if config.input_file is None:
        writing["hub"] = f"{config.hub_dataset}/{config.hub_split}"
    log_path = config.output_file.with_name(f"{config.output_file.stem}.verification.jsonl")
    contents = {**dict.fromkeys(outputs.values(), writing), log_path: verifying}

    with recorded_run("preproc_taco", dataclasses.asdict(config), inputs, contents) as run, RecordFile(log_path) as log:
        unnamed = number = 0
        for row, candidate in _usable(config, log):
            unnamed += split_of(row) is None
            number += candidate is not None
        _refuse_dev_size(config, unnamed)
        if number > 0:
            asyncio.run(_verify(config, log, number))
        run.counts = counts = _write(config, log)
        run.origin = {} if FOREIGN in counts else {"prompts": described(prompts)}
    print_summary(f"Prepared problems: {', '.join(map(str, outputs.values()))}", counts)

    licence, source = config.license, None
    if config.input_file is None:
        from huggingface_hub import DatasetCard

        with contextlib.suppress(OSError, ValueError):  # a card that cannot be read says no licence
            licence = licence or DatasetCard.load(config.hub_dataset, repo_type="dataset").data.to_dict().get("license")
        source = f"[{config.hub_dataset}](https://huggingface.co/datasets/{config.hub_dataset})"
    # The rules hold for the problems that were prepared by this run.
    card = [
        f"at least {rules.min_tests} well-formed tests and {rules.min_alphanumeric} alphanumeric characters, no images",
        f"the {rules.shortest_tests} tests with the shortest and the {rules.longest_tests} with the longest inputs",
        f"one of up to {rules.max_solutions} reference solutions passes every test",
        f"the {rules.public_tests} tests with the shortest inputs are public",
    ]
    if taken_over := counts.get(PREPARED, 0):
        as_they_were = f"{taken_over} of the problems were prepared already: taken over as they were, not run again"
        card = [as_they_were] if taken_over == counts["read"] else [as_they_were, *card]
    publish("Prepared TACO problems", card, counts, list(outputs.values()), inputs, config.push_to_hub, licence, source)


def _rows(config: TacoConfig, counts: Counter[str], quiet: bool = False) -> Iterator[Record]:
    """All rows, checked; invalid ones are counted when they may be skipped."""
    invalid = InvalidLines(config.skip_invalid, quiet)
    prompts = config.prompt_set()
    check = InstructionCheck(prompts, required=config.prompts is not None)

    def parse(row: Record) -> Record:
        taco_rows.refuse_unusable(row)
        check.see(row["instruction"] if is_prepared(row) else prompts.instruction)
        return row

    if config.input_file is not None:
        yield from read_jsonl(config.input_file, fields=("id",), parse=parse, on_invalid=invalid.handler)
    else:  # rows of the hub are checked as strictly as lines of a file
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        name, seen = config.hub_dataset, set()
        try:
            rows = load_dataset(name, split=config.hub_split)
        except (OSError, DatasetsError) as error:
            raise SetupError(
                f"hub dataset {name} cannot be loaded ({first_line(error)}); give --input_file instead"
            ) from None
        except ValueError as error:  # an unknown split
            raise InputError(f"hub dataset {name}: {first_line(error)}") from None
        for index, row in enumerate(map(dict, rows)):
            try:
                if "id" not in row:
                    raise ValueError("missing field 'id'")
                if repr(row["id"]) in seen:
                    raise ValueError(f"duplicate id {row['id']!r}")
                seen.add(repr(row["id"]))
                parse(row)
            except ValueError as error:
                complaint = InputError.at(f"{name} ({config.hub_split})", index, str(error))
                if invalid.handler is None:
                    raise complaint from None
                invalid.handler(complaint)
            else:
                yield row
    counts["invalid rows skipped"] = invalid.count
    if check.foreign:
        counts[FOREIGN] = counts[PREPARED]


def _usable(config: TacoConfig, log: RecordFile) -> Iterator[tuple[Record, Candidate | None]]:
    """The rows that no filter drops, and what has to be run (None: the row is prepared, or its outcome known).

    An infrastructure failure is no outcome: the problem is tried again.
    """
    rules, prompts = config.rules, config.prompt_set()
    for row in _rows(config, Counter(), quiet=True):
        outcome = log.get(row["id"], row_hash(row))
        if is_prepared(row) or (outcome is not None and outcome["status"] != INFRA):
            yield row, None
        elif isinstance(candidate := taco_rows.prepare(row, rules, prompts), Candidate):
            yield row, candidate


async def _verify(config: TacoConfig, log: RecordFile, number: int) -> None:
    """First pass: run reference solutions of ``number`` problems, each until one passes every test."""
    verified = 0
    async with open_execution_service(config.executor, config.checker) as service:
        with progress_bar(total=number, desc="verifying", unit=" problems") as bar:

            async def verify_one(problem: tuple[Record, Candidate]) -> None:
                nonlocal verified
                row, candidate = problem
                status, tried, time_limited, infra_error = UNSOLVED, 0, False, None
                for code in taco_rows.solution_order(candidate.solutions, config.seed, row["id"], config.rules):
                    result = await service.run(code, candidate.tests)
                    tried += 1
                    if result.solved:
                        status, infra_error = VERIFIED, None
                        break
                    infra_error = infra_error or result.infra_error
                    time_limited = time_limited or Verdict.TIME_LIMIT in result.verdicts
                if infra_error:
                    status = INFRA
                outcome = {"status": status, "tried": tried, "time_limited": time_limited, "infra_error": infra_error}
                log.append({"id": row["id"], "input_hash": row_hash(row), **outcome})
                verified += status == VERIFIED
                bar.set_postfix(verified=verified, refresh=False)
                bar.update()

            pending = ((row, candidate) for row, candidate in _usable(config, log) if candidate is not None)
            await for_each(pending, verify_one, config.concurrency)


def _write(config: TacoConfig, log: RecordFile) -> dict[str, Any]:
    """Second pass: write the kept problems by split, in the order of the input. Returns a count of every fate."""
    counts: Counter[str] = Counter()
    ids: list[Any] = []
    kept: list[tuple[str | None, Any]] = []
    rules, prompts = config.rules, config.prompt_set()
    with tempfile.TemporaryFile(dir=config.output_file.parent) as spool:  # splits are known when all were seen
        for row in _rows(config, counts):
            counts["read"] += 1
            ids.append(row["id"])
            if is_prepared(row):
                counts[PREPARED] += 1
                record = row
            elif not isinstance(candidate := taco_rows.prepare(row, rules, prompts), Candidate):
                counts[f"dropped: {candidate}"] += 1
                continue
            else:
                outcome = log.get(row["id"], row_hash(row))
                assert outcome is not None, "the first pass leaves an outcome for every candidate"
                counts[outcome["status"]] += 1
                counts[TIME_LIMITED] += outcome["time_limited"] and outcome["status"] == UNSOLVED
                if outcome["status"] != VERIFIED:
                    continue
                record = candidate.record
            spool.write(dump_line(record))
            kept.append((split_of(record), record["id"]))

        run = counts[VERIFIED] + counts[UNSOLVED] + counts[INFRA]
        refuse_infra_rate(counts[INFRA], run, "problems", config.max_infra_rate)
        log.refuse_loss(ids)
        # Rows that name a split keep it; of the others the seed picks dev.
        unnamed = [id_ for split, id_ in kept if split is None]
        _refuse_dev_size(config, len(unnamed))
        unnamed.sort(key=lambda id_: taco_rows.dev_rank(config.seed, id_))
        held_out = {id_key(id_) for id_ in unnamed[: config.dev_size]}
        splits = [DEV if split == DEV or id_key(id_) in held_out else TRAIN for split, id_ in kept]
        for name, path in config.outputs.items():
            spool.seek(0)
            lines = (line for line, split in zip(spool, splits, strict=True) if name in (split, "all"))
            counts[f"written: {name}"] = write_lines(path, lines)
    log.finish(ids)
    return dict(counts)


def _refuse_dev_size(config: TacoConfig, unnamed: int) -> None:
    """Raise ``InputError`` if of ``unnamed`` problems, those that name no split, none is left for training."""
    if 0 < unnamed <= config.dev_size:
        raise InputError(f"--dev_size {config.dev_size} leaves no training problem of the {unnamed} that name no split")
