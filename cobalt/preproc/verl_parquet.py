"""``verl_preproc_{single,multi}_turn.py``: JSONL to the parquet files that veRL 0.5.0's ``RLHFDataset`` reads.

One row per prompt, in file order, written in row groups of bounded size. Validation prompts must be unique because veRL
groups validation samples by prompt text: repeated ones are dropped from ``test.parquet`` and counted.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import ReadConfig, UploadConfig
from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.preproc.cards import CardInfo, publish, refuse_livecodebench
from cobalt.prompts import COBALT, PromptSet, Wording, first_messages
from cobalt.records import TestCases, read_jsonl
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import recorded_run

DATA_SOURCE = "code_taco_verified"
ABILITY = "code"
ROW_GROUP_BYTES = 32 << 20

VerlRow = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ParquetConfig(UploadConfig, PromptsConfig, ReadConfig):
    """Write `train.parquet` and `test.parquet` for veRL."""

    local_dir: Path
    """Directory of the two parquet files."""
    train_data_file: Path
    """Training records (JSONL)."""
    val_data_file: Path
    """Validation records (JSONL)."""


@dataclass(frozen=True, kw_only=True)
class SingleTurnParquetConfig(ParquetConfig):
    """Write problems as `train.parquet` and `test.parquet` for veRL. The defaults are what preproc_taco.py writes."""

    local_dir: Path = Path("data/verl_single_turn")
    """Directory of the two parquet files."""
    train_data_file: Path = Path("data/taco_verified_filtered_train.jsonl")
    """Training problems (JSONL)."""
    val_data_file: Path = Path("data/taco_verified_filtered_dev.jsonl")
    """Validation problems (JSONL)."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnParquetConfig(ParquetConfig):
    """Write bandit prompts as `train.parquet` and `test.parquet` for veRL."""

    local_dir: Path = Path("data/verl_multi_turn")
    """Directory of the two parquet files."""
    train_data_file: Path = Path("data/bandit_train.jsonl")
    """Training prompts (JSONL), from process_multi_turn_taco.py."""
    val_data_file: Path = Path("data/bandit_dev.jsonl")
    """Validation prompts (JSONL), from process_multi_turn_taco.py --is_test."""


@dataclasses.dataclass(frozen=True)
class Prompt:
    """What a row is made of; ``extra_info`` is the part that depends on the kind of record."""

    id: str
    """The problem's."""
    messages: list[dict[str, str]]
    test_cases: str
    extra_info: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one kind of record becomes a row: its fields and how they are read."""

    command: str
    fields: Sequence[str]
    unique: str | None
    reader: Callable[[PromptSet | None, bool], Callable[[Record], Prompt]]
    """From the prompt set (None: not known) and whether it was asked for: what makes a prompt of a row of either file,
    and raises ``ValueError`` naming the field that is wrong."""


def build(config: ParquetConfig, layout: Layout) -> None:
    """Write both parquet files, both or neither replaced. ``InputError`` for invalid or empty inputs."""
    inputs = {"train": config.train_data_file, "test": config.val_data_file}
    outputs = {split: config.local_dir / f"{split}.parquet" for split in inputs}
    refuse_livecodebench(inputs.values(), config.push_to_hub)
    contents = {path: {"data_source": DATA_SOURCE} for path in outputs.values()}
    counts: Counter[str] = Counter()
    prompts = config.prompts_or_none(list(inputs.values()))
    parse = layout.reader(prompts, config.prompts is not None)
    with recorded_run(layout.command, dataclasses.asdict(config), list(inputs.values()), contents) as run:
        with _replaced_together(outputs.values()) as temporaries:
            for (split, path), temporary in zip(inputs.items(), temporaries, strict=True):
                _write_parquet(temporary, _rows(path, split, layout, parse, config, counts), _schema(layout))
        run.counts = dict(counts)
    print_summary(f"veRL data: {config.local_dir}", counts)
    rules = ["rows for veRL 0.5.0's RLHFDataset", "validation prompts are unique"]
    info = CardInfo("Prompts for GRPO with veRL", rules, counts)
    publish(info, list(outputs.values()), list(inputs.values()), config.push_to_hub)


def _rows(
    path: Path,
    split: str,
    layout: Layout,
    parse: Callable[[Record], Prompt],
    config: ParquetConfig,
    counts: Counter[str],
) -> Iterator[VerlRow]:
    invalid = InvalidLines(config.skip_invalid)
    seen: set[bytes] = set()
    index = 0
    rows = read_jsonl(path, layout.fields, layout.unique, parse=parse, on_invalid=invalid.handler)
    for prompt in with_progress(rows, path):
        key = hashlib.sha256(json.dumps(prompt.messages, sort_keys=True).encode()).digest()
        if split == "test" and key in seen:
            counts["test prompts dropped: repeated"] += 1
            continue
        seen.add(key)
        yield {
            "data_source": DATA_SOURCE,
            "prompt": prompt.messages,
            "ability": ABILITY,
            "reward_model": {"style": "rule", "ground_truth": prompt.test_cases},
            "extra_info": {"split": split, "index": index, "id": prompt.id, **prompt.extra_info},
            "id": prompt.id,
        }
        index += 1
    counts[f"{split} rows written"] = index
    counts[f"{split} invalid lines skipped"] = invalid.count


def _tests(row: Record, name: str) -> str:
    if not isinstance(row[name], str):
        raise ValueError(f"field '{name}' must be a JSON text")
    try:
        TestCases.parse(row[name])
    except ValueError as error:
        raise ValueError(f"field '{name}': {error}") from None
    return row[name]


def _id_text(value: Any) -> str:
    """An id as a column of texts holds it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _problem_reader(prompts: PromptSet | None, required: bool) -> Callable[[Record], Prompt]:
    prompts = prompts or COBALT
    check = InstructionCheck(prompts, required)

    def parse(row: Record) -> Prompt:
        tests, instruction = _tests(row, "test_cases"), row["instruction"]
        if not isinstance(instruction, str):
            raise ValueError("field 'instruction' must be a text")
        check.see(instruction)
        messages = first_messages(instruction, prompts)
        extra = {"instruction": instruction, "prev_best_pass_rate": 0.0, "tools_kwargs": _for_rollouts(row)}
        return Prompt(_id_text(row["id"]), messages, tests, extra)

    return parse


def _bandit_prompt_reader(prompts: PromptSet | None, required: bool) -> Callable[[Record], Prompt]:
    wording = Wording(prompts)

    def parse(row: Record) -> Prompt:
        prompt = _parse_bandit_prompt(row)
        wording.see(prompt.messages)
        return prompt

    return parse


def _for_rollouts(row: Record) -> dict[str, Any]:
    """What reaches veRL's rollouts: the tests whose feedback online training shows, if the record has them."""
    name = "public_test_cases"
    return {name: _tests(row, name) if name in row else None}


def _parse_bandit_prompt(row: Record) -> Prompt:
    tests, messages, prev_best = _tests(row, "test_cases"), row["conversation"], row["prev_best_pass_rate"]
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise ValueError("field 'conversation' must be a list of messages with texts 'role' and 'content'")
    if messages[-1]["role"] != "user":
        raise ValueError("field 'conversation' must end with a user message")
    if not (prev_best is None or (isinstance(prev_best, int | float) and 0 <= prev_best <= 1)):
        raise ValueError("field 'prev_best_pass_rate' must be a number in [0, 1] or null")
    extra_info = {"conversation": messages, "prev_best_pass_rate": float(prev_best or 0)}
    return Prompt(_id_text(row["example_id"]), messages, tests, extra_info)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("role", "content"))


SINGLE_TURN = Layout(
    command="verl_preproc_single_turn",
    fields=("id", "instruction", "test_cases"),
    unique="id",
    reader=_problem_reader,
)
MULTI_TURN = Layout(
    command="verl_preproc_multi_turn",
    fields=("example_id", "conversation", "test_cases", "prev_best_pass_rate"),
    unique=None,
    reader=_bandit_prompt_reader,
)


def _schema(layout: Layout) -> Any:
    """The same columns whatever the rows hold, so that train and test always agree."""
    import pyarrow as pa

    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    extra = [
        ("split", pa.string()),
        ("index", pa.int64()),
        ("id", pa.string()),
        ("prev_best_pass_rate", pa.float64()),
    ]
    if layout is SINGLE_TURN:
        for_rollouts = pa.struct([("public_test_cases", pa.string())])
        extra += [("instruction", pa.string()), ("tools_kwargs", for_rollouts)]
    else:
        extra.append(("conversation", messages))
    return pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", messages),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            ("extra_info", pa.struct(extra)),
            ("id", pa.string()),
        ]
    )


def _write_parquet(path: Path, rows: Iterable[VerlRow], schema: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema) as writer:
        for group in _row_groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


@contextlib.contextmanager
def _replaced_together(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Temporary paths that replace ``paths`` when the block succeeds; if it fails, none is touched."""
    paths = list(paths)
    temporaries = [path.with_name(path.name + ".tmp") for path in paths]
    try:
        yield temporaries
        for temporary, path in zip(temporaries, paths, strict=True):
            os.replace(temporary, path)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _row_groups(rows: Iterable[VerlRow]) -> Iterator[list[VerlRow]]:
    """Groups of rows with about ``ROW_GROUP_BYTES`` of text."""
    group, size = [], 0
    for row in rows:
        group.append(row)
        size += len(row["reward_model"]["ground_truth"]) + sum(len(message["content"]) for message in row["prompt"])
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
