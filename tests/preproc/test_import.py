"""Problems of our own in each source's format: imported, verified, counted; broken rows are named."""

import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import FakeService, SharedExecutor, manifest_of, one_complaint, read_rows, run_cobalt, write_rows
from huggingface_hub import DatasetCard
from PIL import Image
from test_livecodebench import lcb_row
from test_taco_rows import raw

from cobalt.preproc.formats import FORMATS, Name
from cobalt.preproc.taco import UNVERIFIED
from cobalt.prompts import first_messages, problem_instruction
from cobalt.records import TestCases

STATEMENT = (
    "A shop sells apples in bags. You are given the number of bags and the number of apples in one bag, both on one "
    "line. Print how many apples all the bags hold together, as one whole number and nothing else."
)
INPUTS = [f"{bags} {apples}\n" for bags in range(2, 6) for apples in range(2, 5)]
OUTPUTS = [str(int(text.split()[0]) * int(text.split()[1])) for text in INPUTS]
RIGHT = "a, b = map(int, input().split())\nprint(a * b)"
WRONG = "print(sum(map(int, input().split())))"
CALL = "class Solution:\n    def apples(self, bags, each):\n        return bags * each"
PAIRS = [{"input": given, "output": shown} for given, shown in zip(INPUTS, OUTPUTS, strict=True)]
ARGUMENTS = [text.strip().replace(" ", "\n") for text in INPUTS]
CALLS = [{"input": given, "output": shown} for given, shown in zip(ARGUMENTS, OUTPUTS, strict=True)]


def deepcoder(**fields: Any) -> dict:
    tests = json.dumps([{**test, "testtype": "stdin"} for test in PAIRS])
    return {"problem": STATEMENT, "tests": tests, "solutions": [WRONG, RIGHT], **fields}


def codeforces(**fields: Any) -> dict:
    row = {"id": "1/A", "description": STATEMENT, "input_format": "Two numbers.", "output_format": "One number."}
    row |= {"interaction_format": None, "note": None, "examples": PAIRS[:1], "input_mode": "stdio", "rating": 800}
    limits = {"time_limit": 2.0, "memory_limit": 256.0}
    return {**row, **limits, "official_tests": PAIRS, "generated_checker": None, **fields}


def codecontests(**fields: Any) -> dict:
    def columns(pairs: list[dict]) -> dict[str, list[str]]:
        return {name: [pair[name] for pair in pairs] for name in ("input", "output")}

    row = {"name": "1_A. Apples", "description": STATEMENT, "source": 2, "difficulty": 7, "input_file": ""}
    row |= {"time_limit": {"seconds": 1, "nanos": 500_000_000}, "memory_limit_bytes": 64 << 20, "output_file": ""}
    row |= {"public_tests": columns(PAIRS[:2]), "private_tests": columns(PAIRS[2:5])}
    solutions = {"language": [2, 1, 3], "solution": ["int main() {}", "print 1", RIGHT]}
    return {**row, "generated_tests": columns(PAIRS[5:]), "solutions": solutions, **fields}


def verl(**fields: Any) -> dict:
    prompt = (
        f"{STATEMENT}\n\nWrite Python code to solve the problem. Present the code in \n```python\nCode\n```\nat end."
    )
    truth = json.dumps({"inputs": INPUTS, "outputs": OUTPUTS})
    row = {"data_source": "own", "prompt": [{"role": "user", "content": prompt}], "ability": "code"}
    return {**row, "reward_model": {"style": "rule", "ground_truth": truth}, **fields}


def taco(**fields: Any) -> dict:
    return raw(INPUTS, OUTPUTS, **{"question": STATEMENT, "solutions": json.dumps([WRONG, RIGHT]), **fields})


ROWS: dict[Name, Callable[..., dict]] = {
    "taco": taco,
    "deepcoder": deepcoder,
    "codeforces": codeforces,
    "codecontests": codecontests,
    "verl": verl,
}


def imported(name: str, source: Path, *flags: object, code: int = 0) -> tuple[list[dict], dict[str, int]]:
    """The records and the counts."""
    output = source.with_name("out.jsonl")
    flags = ("-o", output, "--executor", "local", "--dev_size", 0, *flags)
    assert run_cobalt("data", "import", name, source, *flags) == code
    if code != 0:
        return [], {}
    return read_rows(output), manifest_of(output)["counts"]


def in_file(path: Path, rows: list[dict]) -> Path:
    """The rows as JSONL or parquet, by the name of the file."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    return write_rows(path, rows)


def test_each_format_gives_problems_whose_tests_the_executor_can_run(tmp_path: Path, sandbox: SharedExecutor) -> None:
    records = {}
    for name, make in ROWS.items():
        (tmp_path / name).mkdir()
        source = in_file(tmp_path / name / ("in.jsonl" if name == "taco" else "in.parquet"), [make()])
        (records[name],), counts = imported(name, source)
        kept = "kept: verified by execution"
        if name in ("codeforces", "verl"):
            kept = "kept: no reference solution to verify it with"
            assert records[name]["verified"] is False
        assert counts[kept] == counts["written: all"] == 1

    programs = [(code, record["test_cases"]) for record in records.values() for code in (RIGHT, WRONG)]
    assert [result.solved for result in sandbox.judge(*programs)] == [True, False] * len(ROWS)
    for name, record in records.items():
        public, hidden = (TestCases.parse(record[f"{part}_test_cases"]) for part in ("public", "hidden"))
        assert (len(public), len(hidden)) == (4, 8)
        limits = {"codeforces": (2.0, 256.0), "codecontests": (1.5, 64.0)}.get(name, (None, None))
        assert (public.time_limit, public.memory_limit) == limits
        assert record["question"].startswith(STATEMENT) and "```" not in record["question"]
        assert STATEMENT in record["instruction"]
    assert records["codeforces"]["difficulty"] == 800 and "Example\nInput:\n2 2" in records["codeforces"]["question"]
    assert (records["codecontests"]["difficulty"], records["codecontests"]["platform"]) == ("A", "codeforces")


CALL_SHAPES = {
    "lcbv5": [{**test, "testtype": "functional", "metadata": {"func_name": "apples"}} for test in CALLS],
    "primeintellect": [{**test, "type": "function_call", "fn_name": "apples"} for test in CALLS],
    "taco": {"inputs": [[2, k] for k in range(9)], "outputs": [[2 * k] for k in range(9)], "fn_name": "apples"},
}


def test_function_calls_keep_the_name_of_the_function(tmp_path: Path, sandbox: SharedExecutor) -> None:
    calls = {"solutions": [CALL], "starter_code": "class Solution: ..."}
    rows = [
        deepcoder(problem=f"{STATEMENT} {shape}", tests=json.dumps(tests), **calls)
        for shape, tests in CALL_SHAPES.items()
    ]
    records, counts = imported("deepcoder", write_rows(tmp_path / "in.jsonl", rows))
    assert counts["kept: verified by execution"] == len(records) == 3
    for record in records:
        assert TestCases.parse(record["test_cases"]).fn_name == "apples" and "`apples`" in record["instruction"]


TORN = [{"input": INPUTS[0]}, *PAIRS, {"output": OUTPUTS[0]}]
"""As many inputs as outputs, but the first test has no output and the last no input."""
BROKEN = [
    ("deepcoder", {"problem": None}, "field 'problem' must be a text"),
    ("deepcoder", {"tests": "["}, "field 'tests' is not JSON"),
    ("deepcoder", {"tests": [{**CALLS[0], "testtype": "functional"}]}, "field 'tests' needs one name of the function"),
    ("deepcoder", {"tests": [*PAIRS, *CALL_SHAPES["lcbv5"]]}, "field 'tests' mixes tests of programs and of function"),
    ("deepcoder", {"tests": {"inputs": ["1"], "outputs": []}}, "field 'tests' needs as many of each"),
    ("deepcoder", {"solutions": {"a": 1}}, "field 'solutions' must be a list of texts"),
    ("codeforces", {"official_tests": "none"}, "field 'official_tests' is not JSON"),
    ("codeforces", {"time_limit": -1}, "field 'time_limit' must be a positive number"),
    ("codecontests", {"private_tests": {"input": ["1"], "output": []}}, "field 'private_tests' needs as many of each"),
    ("codecontests", {"solutions": [3]}, "field 'solutions' needs as many of each: language, solution"),
    ("verl", {"prompt": []}, "fields 'prompt' and 'reward_model' need a user message and a 'ground_truth'"),
    ("verl", {"reward_model": {"ground_truth": "4"}}, "field 'ground_truth' needs as many of each"),
    ("verl", {"reward_model": {"ground_truth": TORN}}, "field 'ground_truth' needs as many of each"),
    ("deepcoder", {"tests": TORN}, "field 'tests' needs as many of each: input, output"),
    ("codeforces", {"examples": TORN}, "field 'examples' needs as many of each"),
    ("codecontests", {"public_tests": TORN}, "field 'public_tests' needs as many of each"),
    *(
        ("deepcoder", {"tests": [{**CALLS[0], "type": "function_call", **named}]}, "needs one name of the function")
        for named in ({"fn_name": ["f"]}, {"metadata": {"func_name": {"f": 1}}}, {"fn_name": 5})
    ),
    *(
        ("codeforces", {field: {"a": 1}}, f"field '{field}' must be a text")
        for field in ("input_format", "output_format", "note", "generated_checker")
    ),
    ("codeforces", {"examples": [{"input": "1", "output": {"a": 1}}]}, "field 'examples' must hold texts"),
    *(
        ("codecontests", {"time_limit": {part: "2"}}, "field 'time_limit' needs numbers 'seconds' and 'nanos'")
        for part in ("seconds", "nanos")
    ),
    ("codecontests", {"difficulty": [7]}, "field 'difficulty' must be a text or a whole number"),
    ("codecontests", {"source": {"a": 1}}, "field 'source' must be a text or a whole number"),
    *(
        ("verl", {"prompt": [{"role": "user", "content": content}]}, "field 'prompt' has no text in its last user")
        for content in (None, 5, [{"type": "image"}])
    ),
]


@pytest.mark.parametrize(("name", "fields", "complaint"), BROKEN)
def test_a_row_that_cannot_be_read_is_refused(name: Name, fields: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        FORMATS[name].convert(ROWS[name](**fields))


def test_a_broken_row_is_named_and_nothing_written(tmp_path: Path, capsys) -> None:
    source = write_rows(tmp_path / "in.jsonl", [deepcoder(), deepcoder(id="second", tests="[")])
    imported("deepcoder", source, code=2)
    assert "in.jsonl: line 2: field 'tests' is not JSON" in one_complaint(capsys)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("source", "file", "complaint"),
    [
        ("in.parquet", "in.parquet", "in.parquet: not a parquet file"),
        ("in.json", "other", "in.json: no such file"),
        ("folder", "folder/train.jsonl", "hub dataset"),
        ("script", "script/script.py", "scripts are no longer supported, but found script.py; give a file"),
    ],
)
def test_an_input_that_cannot_be_read_is_told_in_one_line(
    tmp_path: Path, capsys, source: str, file: str, complaint: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    write_rows(tmp_path / file, [deepcoder()])
    flags = ("-o", tmp_path / "out.jsonl", *(() if source.startswith("in.") else ("--hub_split", "no")))
    assert run_cobalt("data", "import", "deepcoder", tmp_path / source, *flags) == 2
    assert complaint in one_complaint(capsys)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("torn", "put"), [(b"\x00\x00\x00", b"\xff\xff\xff"), (b"apples", b"\xff" * 6)], ids=["a page", "a text"]
)
def test_a_damaged_parquet_file_is_told_in_one_line(tmp_path: Path, capsys, torn: bytes, put: bytes) -> None:
    pq.write_table(pa.Table.from_pylist([deepcoder()]), source := tmp_path / "in.parquet", compression="none")
    whole = source.read_bytes()
    source.write_bytes(whole.replace(torn, put))
    assert source.read_bytes() != whole
    imported("deepcoder", source, code=2)
    assert "in.parquet: not a parquet file, or damaged: " in one_complaint(capsys)


@pytest.mark.parametrize("source", ["folder/train.parquet", "folder"])
def test_what_json_lacks_is_a_text_wherever_it_stands_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: FakeService, source: str
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    Image.new("1", (1, 1)).save(pixel := io.BytesIO(), "PNG")
    meta = {"when": date(2024, 5, 1), "price": Decimal("1.50"), "raw": [{"bytes": b"\x89", "path": None}], "level": 2}
    row = taco(solutions=["right"], meta=meta, day=date(2024, 5, 2), shown={"bytes": pixel.getvalue(), "path": None})
    (tmp_path / "folder").mkdir()
    rows = datasets.Dataset.from_list([row]).cast_column("shown", datasets.Image())
    rows.to_parquet(tmp_path / "folder/train.parquet")
    ((record,), _) = imported("taco", tmp_path / source)
    raw_bytes = [{"bytes": "b'\\x89'", "path": None}]
    assert record["meta"] == {"when": "2024-05-01", "price": "1.50", "raw": raw_bytes, "level": 2}
    assert record["day"] == "2024-05-02" and " at 0x" not in str(record["shown"])


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("in.json", ""),
        ("in.json", "\ufeff"),
        ("in.jsonl", "\n" * 99),
        ("in.json.gz", "\ufeff" + " " * 99),
        ("in.json.xz", "\n" * 99),
    ],
    ids=["plain", "mark", "blank lines", "gzip, mark and blanks", "xz, blank lines"],
)
def test_a_list_of_rows_is_read_however_it_is_written(
    tmp_path: Path, service: FakeService, name: str, before: str
) -> None:
    content = (before + json.dumps([5, deepcoder(solutions=["right"])], indent=1)).encode()
    compress = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(compress(content))
    ((record,), counts) = imported("deepcoder", tmp_path / name, "--skip_invalid")
    assert record["question"] == STATEMENT and counts["invalid rows skipped"] == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[{}", "not valid JSON"),
        (b"[\xff]", "not valid JSON"),
        (b"[5]", "line 1: expected an object, found int"),
        (gzip.compress(b"[" + bytes(range(99)))[:-9], "it cannot be decompressed"),
        (lzma.compress(b"[" + bytes(range(99)))[:-9], "it cannot be decompressed"),
    ],
)
def test_a_list_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, capsys, content: bytes, complaint: str) -> None:
    (tmp_path / "in.json").write_bytes(content)
    imported("deepcoder", tmp_path / "in.json", code=2)
    assert f"in.json: {complaint}" in one_complaint(capsys)


CHECKER = """
import sys
given, right, shown = (open(name).read().split() for name in sys.argv[1:])
print(1 if sorted(shown) == sorted(right) and len(given) == 2 else 0)
"""


def test_codeforces_checkers_in_python_judge_and_what_cannot_run_is_counted(
    tmp_path: Path, sandbox: SharedExecutor
) -> None:
    two = [{"input": pair["input"], "output": f"{pair['output']} 1"} for pair in PAIRS]
    rows = [
        codeforces(official_tests=two, generated_checker=CHECKER),
        codeforces(id="2/A", generated_checker='#include "testlib.h"\nint main() {}'),
        codeforces(id="3/A", interaction_format="Ask."),
        codeforces(id="4/A", input_mode="file"),
        codeforces(id="5/A", official_tests=PAIRS[:3]),
        codeforces(),
    ]
    ((record,), counts) = imported("codeforces", write_rows(tmp_path / "in.jsonl", rows))
    for reason in (
        "dropped: checker in C++, which the sandbox cannot run",
        "dropped: interactive problem",
        "dropped: input or output in files",
        "dropped: fewer than 8 well-formed tests",
        "dropped: id or statement of an earlier row",
    ):
        assert counts[reason] == 1

    programs = [RIGHT.replace("print(", "print(1, "), RIGHT, "print('x', 1)", "print()"]
    results = sandbox.judge(*((code, record["test_cases"]) for code in programs))
    assert not any(result.infra_error for result in results)
    assert [result.solved for result in results] == [True, False, False, False]


def test_a_codeforces_checker_that_cannot_judge_is_no_verdict(tmp_path: Path, sandbox: SharedExecutor) -> None:
    """It may read its files as bytes, and fail for a wrong output; one that always fails tells nothing of programs."""
    in_bytes = CHECKER.replace("open(name)", 'open(name, "rb")').replace("print(1", "int(shown[0]); print(1")
    checkers = [in_bytes, "import no_such_module", "pass"]
    rows = [codeforces(id=f"{i}/A", description=f"{i} {codeforces()['description']}") for i in range(3)]
    rows = [{**row, "generated_checker": checker} for row, checker in zip(rows, checkers, strict=True)]
    records, _ = imported("codeforces", write_rows(tmp_path / "in.jsonl", rows))

    results = sandbox.judge(*((code, record["test_cases"]) for record in records for code in (RIGHT, "print('x')")))
    judged = [(result.infra_error is None, result.solved) for result in results]
    assert judged == [(True, True), (True, False), *[(False, False)] * 4]


def test_rows_that_are_not_code_are_counted_and_our_own_parquet_is_read(tmp_path: Path) -> None:
    own = verl(prompt=first_messages(problem_instruction(STATEMENT.replace("apples", "pears"))))
    parts = [{"type": "text", "text": STATEMENT[:50]}, {"type": "text", "text": STATEMENT[50:]}]
    assert FORMATS["verl"].convert(verl(prompt=[{"role": "user", "content": parts}]))["question"] == STATEMENT
    rows = [
        verl(),
        own,
        verl(ability="math", reward_model={"ground_truth": "4"}, prompt=[{"role": "user", "content": "2+2"}]),
    ]
    records, counts = imported("verl", in_file(tmp_path / "in.parquet", rows))
    assert [record["question"] for record in records] == [STATEMENT, STATEMENT.replace("apples", "pears")]
    assert counts["dropped: not code, but math"] == 1 and len({record["id"] for record in records}) == 2


def test_problems_without_a_solution_are_kept_or_dropped_as_asked(tmp_path: Path, service: FakeService) -> None:
    rows = [deepcoder(solutions=["right"]), deepcoder(problem=f"Again. {STATEMENT}", solutions=None)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    assert len(imported("deepcoder", source, "--unverified", "drop")[0]) == 1
    for path in tmp_path.glob("out*"):
        path.unlink()
    records, counts = imported("deepcoder", source)
    assert len(records) == 2 and counts[UNVERIFIED] == 1


def test_a_data_set_of_the_hub_is_loaded_with_its_licence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: FakeService
) -> None:
    """A folder of our own stands for it: ``datasets`` reads both alike."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "own"
    folder.mkdir()
    write_rows(folder / "train.jsonl", [deepcoder()])
    rows = [deepcoder(problem=text, solutions=["right"]) for text in (STATEMENT, f"{STATEMENT} Twice.")]
    write_rows(folder / "test.jsonl", rows)
    (folder / "README.md").write_text(
        "---\nlicense: cc-by-4.0\nconfigs:\n- config_name: some\n  data_files:\n"
        "  - split: train\n    path: train.jsonl\n  - split: test\n    path: test.jsonl\n---\n"
    )
    records, counts = imported("deepcoder", folder, "--subset", "some", "--hub_split", "test")
    assert (len(records), counts["read"]) == (2, 2)
    assert DatasetCard.load(tmp_path / "out.jsonl.card.md").data.to_dict()["license"] == "cc-by-4.0"


def test_near_duplicates_of_test_problems_are_dropped_and_listed(tmp_path: Path, service: FakeService) -> None:
    other = "Given a row of trees, find the tallest one whose neighbours are both lower than half of its height. " * 3
    rows = [
        taco(id="same"),
        taco(id="new", question=other, solutions=["right"]),
        taco(id="more", question=f"Welcome! {STATEMENT} Good luck."),
    ]
    tests = write_rows(
        tmp_path / "test.jsonl", [{"id": "x", "question": "Unlike."}, {"id": 9, "question": STATEMENT.upper()}]
    )
    source = write_rows(tmp_path / "in.jsonl", rows)
    records, counts = imported("taco", source, "--near_duplicates", tests)
    assert [record["id"] for record in records] == ["new"]
    assert counts["dropped: near duplicate of a test problem, by its statement"] == 2
    listed = read_rows(tmp_path / "out.near_duplicates.jsonl")
    why = {"test_file": "test.jsonl", "test_id": 9, "rule": "statement", "share": 1.0}
    assert listed == [{"id": id_, **why} for id_ in ("same", "more")]


def test_livecodebench_is_imported_by_months(tmp_path: Path, capsys) -> None:
    days = ("2024-07-31", "2024-08-01", "2025-02-28", "2025-03-01")
    source = write_rows(tmp_path / "test6.jsonl", [lcb_row(day, contest_date=f"{day}T23:00:00") for day in days])
    flags = ("data", "import", "livecodebench", source, "-o", tmp_path / "out.jsonl", "--from", "2024-08")
    assert run_cobalt(*flags, "--to", "2025-02") == 0
    assert [record["id"] for record in read_rows(tmp_path / "out.jsonl")] == list(days[1:3])
    limited = (*flags[:3], source, "-o", tmp_path / "limited.jsonl", "--time_limit", 6)
    assert run_cobalt(*limited) == 0
    for name, limit in (("out", None), ("limited", 6)):
        tests = TestCases.parse(read_rows(tmp_path / f"{name}.jsonl")[0]["hidden_test_cases"])
        assert (tests.checker, tests.time_limit) == ("lcb", limit)
    assert run_cobalt(*flags, "--to", "2025-13") == 2
    assert "'2025-13' is no date" in one_complaint(capsys)
    assert run_cobalt(*limited[:5], tmp_path / "none.jsonl", "--from", "2026-01") == 2
    assert "--start_date 2026-01-01: no problem is of these days; the contests of" in (said := one_complaint(capsys))
    assert said.endswith("lie from 2024-07-31 to 2025-03-01")
