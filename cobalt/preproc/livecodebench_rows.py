"""LiveCodeBench rows (``code_generation_lite``, ``test6.jsonl``) to problems. Pure: no execution, no files.

Fields read: ``question_id, question_content, platform, contest_date, difficulty, starter_code``, ``public_test_cases``
(JSON list of ``{input, output, testtype}``), ``private_test_cases`` (the same JSON, or base64 of zlib of a pickled text
of that JSON) and ``metadata`` (JSON with ``func_name``). A pickle can run code when it is loaded; this one may hold
nothing but a text.
"""

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from datetime import date
from typing import Any, Literal

from cobalt.prompts import COBALT, PromptSet, problem_instruction
from cobalt.records import TestCases

Record = dict[str, Any]

FIELDS = (
    "question_id",
    "question_content",
    "platform",
    "contest_date",
    "difficulty",
    "starter_code",
    "public_test_cases",
    "private_test_cases",
    "metadata",
)
SOURCE = "livecodebench"
EXAMPLE_MARKS = ("\nExample 1:\n\n", "\nSample Input 1\n\n")
FUNCTIONAL_TYPE, STDIN_TYPE = "functional", "stdin"
MAX_TEST_BYTES = 1 << 30
"""Largest decompressed size of one problem's private tests."""


Functional = Literal["call", "stdin"]
"""How problems that ask for a method are run: by a call, as the official evaluation does, or as stdin programs."""


class _TextUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}")


def contest_day(row: Mapping[str, Any]) -> date:
    """The day of the contest. ``ValueError`` naming the field if there is none."""
    try:
        return date.fromisoformat(str(row["contest_date"])[:10])
    except ValueError:
        raise ValueError(f"field 'contest_date' is not a date: {row['contest_date']!r}") from None


def prepare(row: Mapping[str, Any], functional: Functional, keep_examples: bool, prompts: PromptSet = COBALT) -> Record:
    """The problem made from a row. ``ValueError`` naming the field that cannot be read."""
    public = _tests(row, "public_test_cases")
    private = _tests(row, "private_test_cases")
    fn_name = _function_name(row, public + private) if functional == "call" else None
    public_tests, hidden_tests = _test_cases(public, fn_name), _test_cases(private, fn_name)
    question = row["question_content"] if keep_examples else without_examples(row["question_content"])
    return {
        "id": row["question_id"],
        "difficulty": row["difficulty"],
        "question": question,
        "instruction": problem_instruction(question, fn_name, row["starter_code"] or "", prompts),
        "test_cases": (public_tests + hidden_tests).to_json(),
        "public_test_cases": public_tests.to_json(),
        "hidden_test_cases": hidden_tests.to_json(),
        "starter_code": row["starter_code"],
        "platform": row["platform"],
        "contest_date": row["contest_date"],
        "source": SOURCE,
        "functional": functional,
    }


def without_examples(statement: str) -> str:
    """The statement before its worked examples, stripped."""
    for mark in EXAMPLE_MARKS:
        if mark in statement:
            return statement.partition(mark)[0].strip()
    return statement.strip()


def is_functional(record: Mapping[str, Any]) -> bool:
    """Whether a prepared problem is solved by a function call."""
    return TestCases.parse(record["test_cases"]).fn_name is not None


def _tests(row: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    try:
        tests = json.loads(_decoded(row[field]))
    except (ValueError, EOFError, IndexError, zlib.error, binascii.Error, pickle.UnpicklingError) as error:
        raise ValueError(f"field '{field}' cannot be decoded: {error}") from None
    if not isinstance(tests, list) or not tests:
        raise ValueError(f"field '{field}' holds no tests")
    for test in tests:
        texts = isinstance(test, dict) and all(isinstance(test.get(name), str) for name in ("input", "output"))
        if not texts or test.get("testtype") not in (STDIN_TYPE, FUNCTIONAL_TYPE):
            raise ValueError(f"field '{field}' needs texts 'input' and 'output' and a known 'testtype' in each test")
    return tests


def _decoded(text: str) -> str:
    """JSON as it is, or out of base64(zlib(pickle(text)))."""
    if text.lstrip().startswith("["):
        return text
    inflater = zlib.decompressobj()
    pickled = inflater.decompress(base64.b64decode(text, validate=True), MAX_TEST_BYTES)
    if not inflater.eof:
        raise ValueError("it is truncated or too large")
    value = _TextUnpickler(io.BytesIO(pickled)).load()
    if not isinstance(value, str):
        raise ValueError(f"it holds a {type(value).__name__}, not a text")
    return value


def _function_name(row: Mapping[str, Any], tests: list[dict[str, Any]]) -> str | None:
    types = {test["testtype"] for test in tests}
    if types == {STDIN_TYPE}:
        return None
    if types != {FUNCTIONAL_TYPE}:
        raise ValueError("fields 'public_test_cases' and 'private_test_cases' mix stdin and functional tests")
    metadata = row["metadata"]
    try:
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError as error:
        raise ValueError(f"field 'metadata' is not JSON: {error}") from None
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ValueError("field 'metadata' names no 'func_name' for functional tests")
    return name


def _test_cases(tests: list[dict[str, Any]], fn_name: str | None) -> TestCases:
    return TestCases(tuple(test["input"] for test in tests), tuple(test["output"] for test in tests), fn_name)
