"""The perturbation command."""

import json
from pathlib import Path

import pytest
from commands import manifest_of, one_complaint, read_rows, run_command, write_rows
from evaluated import json_tests

from cobalt.records import TestCases

COMMAND = "run_perturbation"


def problem(id_: object, outputs: list[str]) -> dict:
    public = json.dumps({"inputs": [str(i) for i in range(len(outputs))], "outputs": outputs})
    return {"id": id_, "test_cases": json_tests(8), "public_test_cases": public, "split": "dev"}


def perturb(directory: Path, rows: list[dict], *flags: object) -> list[dict]:
    directory.mkdir(exist_ok=True)
    source = write_rows(directory / "in.jsonl", rows)
    assert run_command(COMMAND, "-i", source, "-o", directory / "out.jsonl", *flags) == 0
    return read_rows(directory / "out.jsonl")


def test_clean_fields_stay_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    rows = [problem(0, list("abcd")), problem("", ["7"] * 4), problem("x", ["1", "1", "1", "2"])]
    records = perturb(tmp_path, [*rows, {**problem(4, list("abcd")), "fully_specified": False}])
    assert [{name: record[name] for name in rows[0]} for record in records] == [rows[0], rows[2]]
    for record in records:
        assert len(TestCases.parse(record["modified_test_cases"])) == 2
        assert len(TestCases.parse(record["perturbed_public_test_cases"])) == 4
    counts = manifest_of(tmp_path / "out.jsonl")["counts"]
    assert (counts["dropped_equal_outputs"], counts["dropped_hidden_rule"], counts["written"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("checker", "dropped"), [("exact", 0), ("unordered", 1), ("float 0.1", 2), ("own.py:holds@1234", 2)]
)
def test_a_right_program_passes_no_wrong_test_by_the_checker_of_the_file(
    tmp_path: Path, checker: str, dropped: int
) -> None:
    rows = [problem(0, ["1\n2", "2\n1"] * 2), problem(1, list("abcd"))]
    source = write_rows(tmp_path / "in.jsonl", rows)
    (tmp_path / "in.jsonl.manifest.json").write_text(json.dumps({"origin": {"checker": checker}}))
    code = run_command(COMMAND, "-i", source, "-o", tmp_path / "out.jsonl")
    assert code == (2 if dropped == 2 else 0)
    if dropped < 2:
        assert [row["id"] for row in read_rows(tmp_path / "out.jsonl")] == [0, 1][dropped:]


@pytest.mark.parametrize("kind", ["swapped", "other_problem"])
def test_seed_and_row_decide_wherever_the_row_stands(tmp_path: Path, kind: str) -> None:
    rows = [problem(i, [f"{i}{k}" for k in range(4)]) for i in range(6)]
    records = perturb(tmp_path, rows, "--kind", kind)
    assert records == perturb(tmp_path / "other", rows[::-1], "--kind", kind)[::-1]
    assert records != perturb(tmp_path / "seed", rows, "--kind", kind, "--seed", 1)
    for record in records:
        outputs = TestCases.parse(record["modified_test_cases"]).outputs_K
        assert {output[0] == str(record["id"]) for output in outputs} == {kind == "swapped"}


@pytest.mark.parametrize(
    ("tests", "complaint"),
    [
        ({"inputs": [], "outputs": []}, "there are no tests"),
        ({"inputs": ["1", "2"], "outputs": ["1", "2"], "checker": "exct"}, "checker must be one of"),
    ],
)
def test_a_problem_without_usable_public_tests_is_refused(tmp_path: Path, capsys, tests: dict, complaint: str) -> None:
    source = write_rows(tmp_path / "in.jsonl", [{**problem("odd", []), "public_test_cases": json.dumps(tests)}])
    assert run_command(COMMAND, "-i", source, "-o", tmp_path / "out.jsonl") == 2
    assert f"line 1: problem 'odd': field 'public_test_cases': {complaint}" in one_complaint(capsys)


def test_why_no_problem_is_left_is_said(tmp_path: Path, capsys) -> None:
    rows = [problem(0, ["7"] * 4), {**problem(1, list("abcd")), "fully_specified": False}]
    source = write_rows(tmp_path / "in.jsonl", rows)
    assert run_command(COMMAND, "-i", source, "-o", tmp_path / "out.jsonl") == 2
    assert "none of its 2 problems can be perturbed so; 1 say fully_specified: false" in one_complaint(capsys)


def test_kind_and_count_are_flags_and_part_of_what_the_output_is(tmp_path: Path) -> None:
    rows = [problem(0, ["10", "20", "30", "x"]), problem(1, ["a", "b", "c", "d"])]
    (record,) = perturb(tmp_path, rows, "--kind", "off_by_one", "--count", 3)
    modified = TestCases.parse(record["modified_test_cases"])
    pairs = zip(modified.inputs_K, modified.outputs_K, strict=True)
    assert len(modified) == 3 and {abs(int(output) - 10 * (int(text) + 1)) for text, output in pairs} == {1}
    manifest = manifest_of(tmp_path / "out.jsonl")
    assert manifest["counts"]["dropped_no_wrong_output"] == 1
    content = json.dumps(manifest)
    assert '"kind": "off_by_one"' in content and '"count": 3' in content


def test_a_perturbation_of_ones_own_takes_no_kind(tmp_path: Path, capsys) -> None:
    source = write_rows(tmp_path / "in.jsonl", [problem(0, list("abcd"))])
    flags = ("-i", source, "-o", tmp_path / "out.jsonl")
    own = ("--perturbation", "examples/perturbation.py:off_by_one")
    assert run_command(COMMAND, *flags, *own, "--kind", "truncated") == 2
    assert "exclude each other" in one_complaint(capsys)
    assert run_command(COMMAND, *flags, "--perturbation", "examples/perturbation.py") == 2
    assert one_complaint(capsys).endswith("examples/perturbation.py must be FILE.py:NAME")
    assert run_command(COMMAND, *flags, "--count", 1) == 2
    assert "--kind swapped --count 1" in one_complaint(capsys)


def test_a_perturbation_of_ones_own_that_raises_names_the_problem_and_its_line(tmp_path: Path, capsys) -> None:
    source = write_rows(tmp_path / "in.jsonl", [problem(0, list("abcd")), problem("odd", ["7"] * 4)])
    (tmp_path / "own.py").write_text(
        "def own(inputs, outputs, rng):\n    return [*'dbc', outputs[outputs.index('d')]]\n"
    )
    flags = ("-i", source, "-o", tmp_path / "out.jsonl", "--perturbation", f"{tmp_path}/own.py:own")
    assert run_command(COMMAND, *flags) == 2
    told = f"problem 'odd': the perturbation raised ValueError: 'd' is not in list ({tmp_path}/own.py, line 2)"
    assert one_complaint(capsys).endswith(told) and not list(tmp_path.glob("out*"))
