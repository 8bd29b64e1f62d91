"""``verl_preproc_{single,multi}_turn.py``: JSONL to the parquet files that veRL's ``RLHFDataset`` reads.

One row per prompt, in file order, written in row groups of bounded size. Validation prompts must be unique because veRL
0.5.0 groups validation samples by prompt text: repeated ones are dropped from ``test.parquet`` and counted.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import ReadConfig, UploadConfig
from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.preproc.outputs import publish, refuse_livecodebench
from cobalt.prompts import Wording, described, first_messages
from cobalt.records import read_jsonl, tests_of
from cobalt.records.jsonl import InvalidLines, Record, naming, refuse_half_characters
from cobalt.records.manifest import origin_of, recorded_run, tell_other_origin
from cobalt.records.rows import Prompt, Rate

DATA_SOURCE = "code_taco_verified"
ABILITY = "code"
ROW_GROUP_BYTES = 32 << 20

VerlRow = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SingleTurnParquetConfig(UploadConfig, PromptsConfig, ReadConfig):
    """Write problems as `train.parquet` and `test.parquet` for veRL. The defaults are what preproc_taco.py writes."""

    local_dir: Path = Path("data/verl_single_turn")
    """Directory of the two parquet files."""
    train_data_file: Path = Path("data/taco_verified_filtered_train.jsonl")
    """Training problems (JSONL)."""
    val_data_file: Path = Path("data/taco_verified_filtered_dev.jsonl")
    """Validation problems (JSONL)."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnParquetConfig(UploadConfig, PromptsConfig, ReadConfig):
    """Write bandit prompts as `train.parquet` and `test.parquet` for veRL."""

    local_dir: Path = Path("data/verl_multi_turn")
    """Directory of the two parquet files."""
    train_data_file: Path = Path("data/bandit_train.jsonl")
    """Training prompts (JSONL), from process_multi_turn_taco.py."""
    val_data_file: Path = Path("data/bandit_dev.jsonl")
    """Validation prompts (JSONL), from process_multi_turn_taco.py --is_test."""


class BanditPrompt(Prompt):
    """What is read of a bandit prompt."""

    prev_best_pass_rate: Rate | None


def single_turn(config: SingleTurnParquetConfig) -> None:
    """Problems to parquet. ``InputError`` for invalid or empty inputs."""
    prompts = config.prompt_set([config.train_data_file, config.val_data_file])
    check = InstructionCheck(prompts, required=config.prompts is not None)

    def parse(row: Record) -> VerlRow:
        tests_text, instruction = _tests_text(row, "test_cases"), row["instruction"]
        if not isinstance(instruction, str):
            raise ValueError("field 'instruction' must be a text")
        check.see(instruction)
        name = "public_test_cases"  # online training shows feedback on them
        tools = {name: _tests_text(row, name) if name in row else None}
        extra = {"instruction": instruction, "prev_best_pass_rate": 0.0, "tools_kwargs": tools}
        return _verl_row(row["id"], first_messages(instruction, prompts), tests_text, extra)

    _build(config, "verl_preproc_single_turn", ("id", "instruction", "test_cases"), "id", parse, check)


def multi_turn(config: MultiTurnParquetConfig) -> None:
    """Bandit prompts to parquet. ``InputError`` for invalid or empty inputs."""
    wording = Wording(config.prompts_or_none([config.train_data_file, config.val_data_file]))

    def parse(row: Record) -> VerlRow:
        prompt, messages = BanditPrompt.read(row), row["conversation"]
        if messages[-1]["role"] != "user":
            raise ValueError("field 'conversation' must end with a user message")
        wording.see(messages)
        extra = {"conversation": messages, "prev_best_pass_rate": float(prompt.prev_best_pass_rate or 0)}
        return _verl_row(prompt.id, messages, _tests_text(row, "test_cases"), extra)

    fields = ("example_id", "conversation", "test_cases", "prev_best_pass_rate")
    _build(config, "verl_preproc_multi_turn", fields, None, parse)


def _verl_row(id_: Any, messages: list[dict[str, str]], tests_text: str, extra_info: dict[str, Any]) -> VerlRow:
    """A row without its place in the file. An id that is no text is written as JSON: a column has one type."""
    refuse_half_characters(id_, messages, tests_text, extra_info)
    return {
        "data_source": DATA_SOURCE,
        "prompt": messages,
        "ability": ABILITY,
        "reward_model": {"style": "rule", "ground_truth": tests_text},
        "extra_info": extra_info,
        "id": id_ if isinstance(id_, str) else json.dumps(id_),
    }


def _tests_text(row: Record, name: str) -> str:
    if not isinstance(row[name], str):
        raise ValueError(f"field '{name}' must be a JSON text")
    tests_of(row, name)
    return row[name]


def _build(
    config: SingleTurnParquetConfig | MultiTurnParquetConfig,
    command: str,
    fields: Sequence[str],
    unique: str | None,
    parse: Callable[[Record], VerlRow],
    check: InstructionCheck | None = None,
) -> None:
    """Write both parquet files, both or neither replaced. ``check``: what ``parse`` has seen of their instructions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    inputs = {"train": config.train_data_file, "test": config.val_data_file}
    outputs = {split: config.local_dir / f"{split}.parquet" for split in inputs}
    refuse_livecodebench(inputs.values(), config.push_to_hub)
    origin = origin_of(inputs["train"])
    tell_other_origin(inputs["test"], model_id=origin.get("model_id"), checker=origin.get("checker"))
    contents = {path: {"data_source": DATA_SOURCE} for path in outputs.values()}
    # The same columns whatever the rows hold, so that train and test always agree.
    text = pa.string()
    messages = pa.list_(pa.struct([("role", text), ("content", text)]))
    extra = [("split", text), ("index", pa.int64()), ("id", text), ("prev_best_pass_rate", pa.float64())]
    if isinstance(config, SingleTurnParquetConfig):
        extra += [("instruction", text), ("tools_kwargs", pa.struct([("public_test_cases", text)]))]
    else:
        extra.append(("conversation", messages))
    reward_model = pa.struct([("style", text), ("ground_truth", text)])
    columns = [("data_source", text), ("prompt", messages), ("ability", text), ("reward_model", reward_model)]
    schema = pa.schema([*columns, ("extra_info", pa.struct(extra)), ("id", text)])
    counts: Counter[str] = Counter()

    def groups(path: Path, split: str) -> Iterator[list[VerlRow]]:
        """Rows with their place in the output, in groups with about ``ROW_GROUP_BYTES`` of text."""
        invalid = InvalidLines(config.skip_invalid)
        seen: set[bytes] = set()
        index, group, size = 0, [], 0
        rows = read_jsonl(path, fields, unique, parse=parse, on_invalid=invalid.handler)
        for row in with_progress(rows, path):
            key = hashlib.sha256(json.dumps(row["prompt"], sort_keys=True).encode()).digest()
            if split == "test" and key in seen:
                counts["test prompts dropped: repeated"] += 1
                continue
            seen.add(key)
            group.append({**row, "extra_info": {"split": split, "index": index, "id": row["id"], **row["extra_info"]}})
            index += 1
            size += len(row["reward_model"]["ground_truth"]) + sum(len(message["content"]) for message in row["prompt"])
            if size >= ROW_GROUP_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group
        counts[f"{split} rows written"] = index
        counts[f"{split} invalid lines skipped"] = invalid.count

    temporaries = {split: path.with_name(path.name + ".tmp") for split, path in outputs.items()}
    with recorded_run(command, asdict(config), list(inputs.values()), contents) as run:
        try:
            for split, path in inputs.items():
                with naming(outputs[split]), pq.ParquetWriter(temporaries[split], schema) as writer:
                    for group in groups(path, split):
                        writer.write_table(pa.Table.from_pylist(group, schema=schema))
            for split, path in outputs.items():
                os.replace(temporaries[split], path)
        finally:
            for temporary in temporaries.values():
                temporary.unlink(missing_ok=True)
        run.counts, run.origin = dict(counts), origin
        if check is not None:
            origin |= {} if check.foreign else {"prompts": described(check.prompts)}
            for path in inputs.values():
                check.tell(path)
    print_summary(f"veRL data: {config.local_dir}", counts)
    files = list(outputs.values()), list(inputs.values())
    publish("Prompts for GRPO with veRL", f"{command}.py", *files, config.push_to_hub)
