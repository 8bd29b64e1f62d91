"""``preproc_lcb_test6.py`` and ``cobalt data import livecodebench``: LiveCodeBench's file to problems, streaming.

Its hidden tests are never uploaded.

Fields read: ``question_id, question_content, platform, contest_date, difficulty, starter_code``, ``public_test_cases``
(JSON list of ``{input, output, testtype}``), ``private_test_cases`` (the same JSON, or base64 of zlib of a pickled text
of that JSON) and ``metadata`` (JSON with ``func_name``). A pickle can run code when it is loaded; this one may hold
nothing but a text.
"""

import base64
import io
import json
import pickle
import zlib
from calendar import monthrange
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import AboveZero, InputFile, OutputFile, ReadConfig
from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.errors import InputError
from cobalt.preproc.asserts import text_of
from cobalt.preproc.formats import parsed
from cobalt.preproc.outputs import publish
from cobalt.prompts import PromptSet, described, problem_instruction, prompt_content
from cobalt.records import TestCases, read_jsonl, write_jsonl
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import check_paths, recorded_run
from cobalt.records.rows import LIVECODEBENCH

PROBLEM_FIELDS = ("question_id", "question_content", "platform", "contest_date", "difficulty", "starter_code")
FIELDS = (*PROBLEM_FIELDS, "public_test_cases", "private_test_cases", "metadata")
SOURCE_LINK = "[LiveCodeBench](https://huggingface.co/datasets/livecodebench/code_generation_lite)"
EXAMPLE_MARKS = ("\nExample 1:\n\n", "\nSample Input 1\n\n")
FUNCTIONAL_TYPE, STDIN_TYPE = "functional", "stdin"
MAX_TEST_BYTES = 1 << 30
"""Largest decompressed size of one problem's private tests."""


def _day(text: str, ends_month: bool) -> str:
    """YYYY-MM-DD, in which days compare as texts, of a day or of the first or last one of a month."""
    try:
        if len(text) > len("2025-01"):
            return date.fromisoformat(text).isoformat()
        first = date.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise InputError(f"{text!r} is no date ({error}); write YYYY-MM-DD or YYYY-MM") from None
    return str(first.replace(day=monthrange(first.year, first.month)[1]) if ends_month else first)


Start = Annotated[str, AfterValidator(partial(_day, ends_month=False))]
End = Annotated[str, AfterValidator(partial(_day, ends_month=True))]
DAY = "{None}|YYYY-MM[-DD]"


@dataclass(frozen=True, kw_only=True)
class LiveCodeBenchConfig(PromptsConfig, ReadConfig):
    """Prepare LiveCodeBench problems for evaluation."""

    input_file: InputFile = Path("test6.jsonl")
    """The file downloaded from livecodebench/code_generation_lite."""
    output_file: OutputFile = Path("data/lcb_v6.jsonl")
    """Problems (JSONL). Keep them to yourself: hidden tests must not be redistributed."""
    functional: Literal["call", "stdin"] = "call"
    """Problems that ask for a method: call it (official), or treat all as stdin programs (the paper's numbers)."""
    keep_examples: bool = False
    """Keep the worked examples in the statement."""
    start_date: Annotated[Start | None, tyro.conf.arg(aliases=["--from"], metavar=DAY)] = None
    """Only contests on or after this day, or from this month on."""
    end_date: Annotated[End | None, tyro.conf.arg(aliases=["--to"], metavar=DAY)] = None
    """Only contests on or before this day, or up to the end of this month."""

    checker: ClassVar[str | None] = None
    time_limit: ClassVar[float | None] = None


@dataclass(frozen=True, kw_only=True)
class LiveCodeBenchImportConfig(LiveCodeBenchConfig):
    """Import LiveCodeBench problems for evaluation, by date."""

    input_file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="input")] = Path("test6.jsonl")
    """A file downloaded from livecodebench/code_generation_lite, such as test6.jsonl."""
    time_limit: AboveZero | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - a flag here alone
    """CPU seconds that each test may take; the official evaluation's are 6. The executor must allow them, too."""

    checker: ClassVar[str | None] = "lcb"


def main(config: LiveCodeBenchConfig) -> None:
    """Prepare the problems in ``config.input_file``; see the command's flags."""
    if config.start_date and config.end_date and config.start_date > config.end_date:
        raise InputError(f"--start_date {config.start_date} lies after --end_date {config.end_date}")
    prompts = config.prompt_set()
    invalid = InvalidLines(config.skip_invalid)
    counts: Counter[str] = Counter(read=0)
    days: list[str] = []

    def parse(row: Record) -> Record | None:
        days.append(str(row["contest_date"])[:10])
        try:
            return prepare(row, config, prompts)
        except ValueError as error:
            raise ValueError(f"problem {row['question_id']!r}: {error}") from None

    def problems() -> Iterator[Record]:
        records = read_jsonl(config.input_file, FIELDS, unique="question_id", parse=parse, on_invalid=invalid.handler)
        for record in with_progress(records, config.input_file):
            counts["read"] += 1
            if record is None:
                counts["left out: outside the dates"] += 1
                continue
            counts[f"platform {record['platform']}"] += 1
            counts["function call" if "fn_name" in json.loads(record["public_test_cases"]) else "stdin"] += 1
            yield record
        counts["invalid lines skipped"] = invalid.count
        if counts["left out: outside the dates"] == counts["read"] > 0:
            bounds = {"--start_date": config.start_date, "--end_date": config.end_date}
            asked = " ".join(f"{flag} {day}" for flag, day in bounds.items() if day)
            found = f"the contests of {config.input_file} lie from {min(days)} to {max(days)}"
            raise InputError(f"{asked}: no problem is of these days; {found}")

    names = ("functional", "keep_examples", "start_date", "end_date")
    method = {name: str(getattr(config, name)) for name in names}
    method |= {name: str(value) for name in ("checker", "time_limit") if (value := getattr(config, name)) is not None}
    contents = {config.output_file: {**method, **prompt_content(prompts)}}
    check_paths([config.input_file], [config.output_file])  # ``import`` has no flag for its input
    with recorded_run("preproc_lcb_test6", asdict(config), [config.input_file], contents) as run:
        counts["written"] = write_jsonl(config.output_file, problems())
        run.counts, run.origin = dict(counts), {"prompts": described(prompts)}
    print_summary(f"LiveCodeBench problems: {config.output_file}", counts)
    title = "LiveCodeBench problems: do not redistribute"
    outputs, inputs = [config.output_file], [config.input_file]
    publish(title, "preproc_lcb_test6.py", outputs, inputs, repo_id=None, source=SOURCE_LINK)


def prepare(row: Mapping[str, Any], config: LiveCodeBenchConfig, prompts: PromptSet) -> Record | None:
    """The problem made from a row, or None if its contest lies outside the dates.

    Raises ``ValueError`` naming the field that cannot be read.
    """
    try:
        day = date.fromisoformat(str(row["contest_date"])[:10]).isoformat()
    except ValueError:
        raise ValueError(f"field 'contest_date' is not a date: {row['contest_date']!r}") from None
    if (config.start_date and day < config.start_date) or (config.end_date and day > config.end_date):
        return None

    public, private = (_tests(row, field) for field in ("public_test_cases", "private_test_cases"))
    fn_name, types = None, {test["testtype"] for test in public + private}
    if config.functional == "call" and types != {STDIN_TYPE}:  # all tests call one method
        if types != {FUNCTIONAL_TYPE}:
            raise ValueError("fields 'public_test_cases' and 'private_test_cases' mix stdin and functional tests")
        metadata = parsed(row, "metadata")
        fn_name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
        if not isinstance(fn_name, str) or not fn_name:
            raise ValueError("field 'metadata' names no 'func_name' for functional tests")
    options = {"fn_name": fn_name, "checker": None if fn_name else config.checker, "time_limit": config.time_limit}
    public_tests, hidden_tests = (
        TestCases(tuple(test["input"] for test in tests), tuple(test["output"] for test in tests), **options)
        for tests in (public, private)
    )
    question, starter_code = text_of(row, "question_content"), text_of(row, "starter_code", optional=True)
    if not config.keep_examples:  # the statement before its worked examples
        mark = next((mark for mark in EXAMPLE_MARKS if mark in question), None)
        question = (question.partition(mark)[0] if mark else question).strip()
    return {
        "id": row["question_id"],
        "difficulty": row["difficulty"],
        "question": question,
        "instruction": problem_instruction(question, fn_name, starter_code, prompts),
        "test_cases": (public_tests + hidden_tests).to_json(),
        "public_test_cases": public_tests.to_json(),
        "hidden_test_cases": hidden_tests.to_json(),
        "starter_code": row["starter_code"],
        "platform": row["platform"],
        "contest_date": row["contest_date"],
        "source": LIVECODEBENCH,
        "functional": config.functional,
    }


class _TextUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}")


def _tests(row: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """The tests in a field: JSON as it is, or out of base64(zlib(pickle(text)))."""
    text = row[field]
    try:
        if not isinstance(text, str):
            raise ValueError(f"it is no text: {type(text).__name__}")
        if not text.lstrip().startswith("["):
            inflater = zlib.decompressobj()
            pickled = inflater.decompress(base64.b64decode(text, validate=True), MAX_TEST_BYTES)
            if not inflater.eof:
                raise ValueError("it is truncated or too large")
            text = _TextUnpickler(io.BytesIO(pickled)).load()
            if not isinstance(text, str):
                raise ValueError(f"it holds a {type(text).__name__}, not a text")
        tests = json.loads(text)
    except (ValueError, EOFError, IndexError, RecursionError, zlib.error, pickle.UnpicklingError) as error:
        raise ValueError(f"field '{field}' cannot be decoded: {error}") from None
    if not isinstance(tests, list) or not tests:
        raise ValueError(f"field '{field}' holds no tests")
    for test in tests:
        texts = isinstance(test, dict) and all(isinstance(test.get(name), str) for name in ("input", "output"))
        if not texts or test.get("testtype") not in (STDIN_TYPE, FUNCTIONAL_TYPE):
            raise ValueError(f"field '{field}' needs texts 'input' and 'output' and a known 'testtype' in each test")
    return tests
