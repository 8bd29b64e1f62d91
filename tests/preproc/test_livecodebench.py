"""LiveCodeBench rows of every encoding and kind; the rows are made here, none comes from the benchmark."""

import base64
import json
import pickle
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import manifest_of, one_complaint, read_rows, run_command, write_rows

from cobalt.preproc import livecodebench
from cobalt.preproc.livecodebench import LiveCodeBenchConfig
from cobalt.prompts import COBALT
from cobalt.records import TestCases

COMMAND = "preproc_lcb_test6"
STATEMENT = "Add the numbers.\n\nExample 1:\n\nInput: 1 2\nOutput: 3\n\nExample 2:\n\nInput: 2 2\nOutput: 4"


def packed(value: Any) -> str:
    """The encoding of private tests: base64 of zlib of a pickle."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def lcb_tests(kind: str, first: int, count: int) -> list[dict[str, str]]:
    separator = "\n" if kind == "functional" else " "
    return [{"input": f"{i}{separator}1", "output": f"{i + 1}", "testtype": kind} for i in range(first, first + count)]


def lcb_row(id_: str, kind: str = "stdin", encode: Callable[[str], str] = packed, **fields: Any) -> dict[str, Any]:
    row = {
        "question_title": "Add",
        "question_content": STATEMENT,
        "platform": "leetcode" if kind == "functional" else "atcoder",
        "question_id": id_,
        "contest_id": "c",
        "contest_date": "2025-02-01T00:00:00",
        "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:" if kind == "functional" else "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(lcb_tests(kind, 0, 2)),
        "private_test_cases": encode(json.dumps(lcb_tests(kind, 2, 3))),
        "metadata": json.dumps({"func_name": "add"} if kind == "functional" else {}),
    }
    return {**row, **fields}


def prepare(directory: Path, rows: list[dict], *flags: object) -> list[dict]:
    directory.mkdir(exist_ok=True)
    source = write_rows(directory / "test6.jsonl", rows)
    assert run_command(COMMAND, "-i", source, "-o", directory / "lcb.jsonl", *flags) == 0
    return read_rows(directory / "lcb.jsonl")


def refuse(row: dict, field: str, reason: str = "") -> None:
    with pytest.raises(ValueError, match=f"^field.*'{field}'.*{re.escape(reason)}"):
        livecodebench.prepare(row, LiveCodeBenchConfig(), COBALT)


@pytest.mark.parametrize("encode", [str, packed], ids=["json", "pickled"])
@pytest.mark.parametrize("kind", ["stdin", "functional"])
def test_each_encoding_and_kind(tmp_path: Path, encode: Callable[[str], str], kind: str) -> None:
    (record,) = prepare(tmp_path, [lcb_row("q1", kind, encode)])
    public, hidden, all_tests = (TestCases.parse(record[f"{name}test_cases"]) for name in ("public_", "hidden_", ""))
    assert (len(public), len(hidden)) == (2, 3) and all_tests == public + hidden
    assert all_tests.checker is None, "as the paper's"
    assert all_tests.fn_name == ("add" if kind == "functional" else None)
    assert {"id", "difficulty", "question", "instruction", "platform", "contest_date", "starter_code"} <= record.keys()
    asks_for_a_call = "`add`" in record["instruction"] and "class Solution:" in record["instruction"]
    assert asks_for_a_call == (kind == "functional")


def test_everything_is_stdin_when_asked(tmp_path: Path) -> None:
    (record,) = prepare(tmp_path, [lcb_row("q1", "functional")], "--functional", "stdin")
    assert TestCases.parse(record["test_cases"]).fn_name is None
    assert record["instruction"].endswith("\n\nAdd the numbers.")
    assert record["functional"] == "stdin"


@pytest.mark.parametrize("mark", ["Example 1:", "Sample Input 1"])
def test_the_statement_ends_before_the_examples(tmp_path: Path, mark: str) -> None:
    row = lcb_row("q1", question_content=f"Add.\n\n{mark}\n\n1 2")
    assert prepare(tmp_path, [row])[0]["question"] == "Add."
    assert prepare(tmp_path / "kept", [row], "--keep_examples")[0]["question"] == row["question_content"]


def test_dates_are_inclusive_and_platforms_are_counted(tmp_path: Path) -> None:
    rows = [lcb_row(f"d{day}", contest_date=f"2025-01-0{day}T23:59:00") for day in range(1, 6)]
    rows.append(lcb_row("f", "functional", contest_date="2025-01-03T00:00:00"))
    records = prepare(tmp_path, rows, "--start_date", "2025-01-02", "--end_date", "2025-01-04")
    assert [record["id"] for record in records] == ["d2", "d3", "d4", "f"]
    counts = manifest_of(tmp_path / "lcb.jsonl")["counts"]
    assert counts["platform atcoder"] == 3 and counts["platform leetcode"] == 1
    assert counts["function call"] == 1 and counts["stdin"] == 3 and counts["left out: outside the dates"] == 2


class Exploit:
    """Unpickling this would touch a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("private", "reason"),
    [
        (packed(b"[]"), "bytes, not a text"),
        (packed(["a"]), "list, not a text"),
        (packed(json.dumps({"a": 1})), "holds no tests"),
        (packed("not json"), "cannot be decoded"),
        ("!!!", "cannot be decoded"),
        ([{"input": "1"}], "it is no text: list"),
        ("[" * 200_000, "cannot be decoded"),
        (base64.b64encode(zlib.compress(pickle.dumps("x" * 10_000))[:-8]).decode(), "truncated"),
        (base64.b64encode(b"not zlib").decode(), "cannot be decoded"),
        (base64.b64encode(zlib.compress(b"not a pickle")).decode(), "cannot be decoded"),
        (base64.b64encode(zlib.compress(b"")).decode(), "cannot be decoded"),
        (json.dumps([{"input": "1", "output": 2, "testtype": "stdin"}]), "texts"),
        (json.dumps([{"input": "1", "output": "2", "testtype": "other"}]), "testtype"),
    ],
)
def test_private_tests_that_are_not_a_pickled_text_are_refused(private, reason) -> None:
    refuse(lcb_row("odd", private_test_cases=private), "private_test_cases", reason)


def test_a_pickle_that_would_run_code_does_not_and_its_row_is_named(tmp_path: Path, capsys) -> None:
    rows = [lcb_row("ok"), lcb_row("odd", private_test_cases=packed(Exploit(tmp_path / "touched")))]
    source = write_rows(tmp_path / "test6.jsonl", rows)
    assert run_command(COMMAND, "-i", source, "-o", tmp_path / "lcb.jsonl") == 2
    line = one_complaint(capsys)
    assert "line 2: problem 'odd': field 'private_test_cases'" in line and "refers to" in line
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        *((lcb_row("q", "functional", metadata=text), "metadata") for text in ("{}", '{"func_name": ""}', "not json")),
        (lcb_row("q", contest_date="soon"), "contest_date"),
        (lcb_row("q", question_content=None), "question_content"),
        (lcb_row("q", "functional", starter_code=5), "starter_code"),
        (lcb_row("q", "functional", private_test_cases=json.dumps(lcb_tests("stdin", 0, 1))), "private_test_cases"),
    ],
)
def test_other_bad_rows_are_refused(row: dict, field: str) -> None:
    refuse(row, field)


def test_hidden_tests_are_never_uploaded(tmp_path: Path, capsys) -> None:
    records = prepare(tmp_path, [lcb_row("q")])
    flags = ("--input_file", tmp_path / "test6.jsonl", "--output_file", tmp_path / "x.jsonl", "--push_to_hub", "me/x")
    assert run_command(COMMAND, *flags) == 2, "it has no such flag"
    capsys.readouterr()
    derived = write_rows(tmp_path / "derived.jsonl", records)
    flags = ("--input_file", derived, "--output_file", tmp_path / "p.jsonl", "--push_to_hub", "me/x")
    assert run_command("run_perturbation", *flags) == 2
    assert "must not be redistributed" in one_complaint(capsys)
    assert not (tmp_path / "p.jsonl").exists()
