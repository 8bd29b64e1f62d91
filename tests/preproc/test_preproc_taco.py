"""The TACO command: verification, resume, splits, refusals; with a stand-in for the execution service."""

import json
from pathlib import Path

import pytest
from commands import ROOT, FakeService, manifest_of, one_complaint, read_rows, run_cobalt, run_command, write_rows
from huggingface_hub import DatasetCard
from test_taco_rows import raw

from cobalt.sandbox import ExecutionResult, TestCases, Verdict

COMMAND = "preproc_taco"
QUESTION = raw()["question"]


def problem(id_: object, *solutions: str, **fields: object) -> dict:
    return raw(**{"id": id_, "question": f"{QUESTION} This is {id_!r}.", "solutions": json.dumps(solutions), **fields})


def prepare(directory: Path, rows: list[dict], *flags: object) -> int:
    directory.mkdir(exist_ok=True)
    source = write_rows(directory / "raw.jsonl", rows)
    flags = ("--dev_size", 0, *flags)
    return run_command(COMMAND, "-i", source, "-o", directory / "out.jsonl", "--executor", "local", *flags)


def ids(path: Path) -> list[object]:
    return [row["id"] for row in read_rows(path)]


def test_outcomes_of_another_executor_are_not_taken_over(tmp_path: Path, service: FakeService, capsys) -> None:
    rows, app = [problem(0, "right")], ("--executor", "serve")
    service.execution = {"checker": "lcb", "cpu_limit_s": 1.0}
    assert prepare(tmp_path, rows, *app) == 0
    assert manifest_of(tmp_path / "out.jsonl")["origin"]["checker"] == "lcb"
    assert prepare(tmp_path, rows, *app) == 0
    service.execution = {"checker": "lcb", "cpu_limit_s": 4.0}
    assert prepare(tmp_path, rows, *app) == 2
    assert "execution: {'checker': 'lcb', 'cpu_limit_s': 1.0} -> " in one_complaint(capsys)
    assert len(service.runs) == 1


def test_problems_without_a_passing_solution_among_sixteen_are_dropped(tmp_path: Path, service: FakeService) -> None:
    many = problem("", *(f"wrong#{i}" for i in range(30)))
    rows = [problem(0, "wrong", "right"), many, problem("2", "slow"), raw(id=3, question="short")]
    assert prepare(tmp_path, [*rows, problem("i", "infra", "right")]) == 0
    assert ids(tmp_path / "out.jsonl") == [0, "i"]  # a solution that passes outweighs an infra failure
    assert sum(code.startswith("wrong#") for code in service.runs) == 16
    report = manifest_of(tmp_path / "out.jsonl")["counts"]
    assert report["read"] == 5 and report["kept: verified by execution"] == 2
    assert report["dropped: no reference solution passes every test"] == 2
    assert report["unsolved problems with a solution stopped by the time limit"] == 1
    assert report["dropped: fewer than 100 alphanumeric characters"] == 1


def test_the_log_tells_the_test_that_the_nearest_solution_fails(tmp_path: Path, service: FakeService, capsys) -> None:
    async def run(code: str | None, tests: TestCases) -> ExecutionResult:
        passed = int(code or "")
        verdicts = (Verdict.PASSED,) * passed + (Verdict.WRONG_ANSWER,) * (len(tests) - passed)
        return ExecutionResult(verdicts, ("7 \n" * 300,) * len(tests), ("",) * len(tests))

    service.run = run  # type: ignore[method-assign]
    assert prepare(tmp_path, [problem(0, "2", "6", "4")]) == 2
    assert "out.verification.jsonl says which test failed" in one_complaint(capsys)
    failed = read_rows(tmp_path / "out.verification.jsonl")[0]["failed"]
    assert len(failed.pop("printed")) < 500
    told = {"program": "6", "reading": 0, "test": 6, "verdict": "wrong_answer"}
    assert failed == {**told, "input": "1111111", "expected": "1", "error": ""}


def test_rows_without_an_id_are_known_by_their_statement(tmp_path: Path, service: FakeService, capsys) -> None:
    first, again, named = problem(0, "right"), problem(0, "right"), problem(2, "right")
    for row in (first, again):
        del row["id"]
    assert prepare(tmp_path, [first, again, named]) == 0
    new, old = ids(tmp_path / "out.jsonl")
    assert str(new).startswith("taco-") and old == 2
    assert prepare(tmp_path / "twice", [named, named]) == 2
    assert "raw.jsonl: line 2: duplicate id 2" in one_complaint(capsys)


def test_a_problem_under_several_ids_is_kept_once(tmp_path: Path, service: FakeService) -> None:
    rows = [problem(i, "right", question=f"{QUESTION} {i // 3}") for i in range(9)]
    other_tests = problem(9, "right", question=f"{QUESTION} 0", outputs=["2"] * 10)
    assert prepare(tmp_path, [*rows, other_tests], "--dev_size", 1) == 0
    assert sorted(ids(tmp_path / "out_train.jsonl") + ids(tmp_path / "out_dev.jsonl")) == [0, 3, 6, 9]
    report = manifest_of(tmp_path / "out_dev.jsonl")["counts"]
    assert report["dropped: statement and tests of an earlier row"] == 6
    prepared = read_rows(tmp_path / "out_train.jsonl")
    assert prepare(tmp_path / "again", [*prepared, {**prepared[0], "id": "copy"}]) == 0
    assert ids(tmp_path / "again/out.jsonl") == [row["id"] for row in prepared]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("solutions", "print(1)"),
        ("solutions", [1, 2]),
        ("solutions", {}),
        ("solutions", "{}"),
        ("input_output", "zzz"),
        ("input_output", [["1"], ["1"]]),
        ("input_output", 5),
    ],
)
def test_tests_and_solutions_of_another_type_are_refused(
    tmp_path: Path, service: FakeService, capsys, field: str, value: object
) -> None:
    rows = [problem(0, "right"), {**problem(1, "right"), field: value}]
    assert prepare(tmp_path, rows) == 2
    assert f"raw.jsonl: line 2: field '{field}' must be" in one_complaint(capsys)
    assert prepare(tmp_path, [rows[0], {**rows[1], field: None}, {**rows[1], "id": 2, field: ""}]) == 0
    assert ids(tmp_path / "out.jsonl") == [0]


def test_tests_are_read_as_a_reference_solution_reads_them(tmp_path: Path, service: FakeService) -> None:
    reads = {"lines": "\n", "words": " ", "neither": "none"}
    service.name_of = lambda code, tests: "right" if reads[code] in tests.inputs_K[0] else "wrong"
    lists = {"inputs": [[str(i), "2"] for i in range(10)], "outputs": ["1"] * 10}
    rows = [problem(name, "neither", name, **lists) for name in ("lines", "words", "neither")]
    assert prepare(tmp_path, rows) == 0
    found = {row["id"]: TestCases.parse(row["test_cases"]).inputs_K[0] for row in read_rows(tmp_path / "out.jsonl")}
    assert found == {"lines": "0\n2", "words": "0 2"}


def test_tacos_list_marks_problems_with_several_right_answers(tmp_path: Path, service: FakeService, capsys) -> None:
    rows = [problem(i, "right") for i in range(3)]
    lines = [{"idx": i, "special_judge": i == 1, "case": 0} for i in range(3)]
    listed = write_rows(tmp_path / "spj.jsonl", lines[::-1])
    assert prepare(tmp_path / "out", rows, "--special_judge", listed) == 0
    assert [row.get("several_answers") for row in read_rows(tmp_path / "out/out.jsonl")] == [None, True, None]
    assert prepare(tmp_path / "other", rows[:2], "--special_judge", listed) == 2
    assert "3 problems, and the input has 2 rows" in one_complaint(capsys)
    skips = [rows[0], {"id": "no problem"}, rows[2]]
    lines = [{"idx": i, "special_judge": i == 2} for i in range(3)]
    listed = write_rows(tmp_path / "spj.jsonl", lines)
    assert prepare(tmp_path / "skips", skips, "--special_judge", listed, "--skip_invalid") == 0
    assert [row.get("several_answers") for row in read_rows(tmp_path / "skips/out.jsonl")] == [None, True]


@pytest.mark.parametrize(("idx", "marked"), [(None, True), (1.5, True), (True, True), (1, 0), (1, None)])
def test_a_broken_line_of_tacos_list_is_named(
    tmp_path: Path, service: FakeService, capsys, idx: object, marked: object
) -> None:
    lines = [{"idx": 0, "special_judge": True}, {"idx": idx, "special_judge": marked}]
    listed = write_rows(tmp_path / "spj.jsonl", lines)
    assert prepare(tmp_path, [problem(0, "right"), problem(1, "right")], "--special_judge", listed) == 2
    assert "spj.jsonl: line 2: field 'idx' must be a whole number" in one_complaint(capsys)
    assert not list(tmp_path.glob("out*"))


def test_rows_keep_their_split_and_others_are_split_by_seed(tmp_path: Path, service: FakeService) -> None:
    rows = [problem(i, "right") for i in range(20)] + [problem("t", "right", split="train")]
    assert prepare(tmp_path, [*rows, problem("d", "right", split="dev")], "--dev_size", 5) == 0
    train, dev = ids(tmp_path / "out_train.jsonl"), ids(tmp_path / "out_dev.jsonl")
    assert len(train) == 16 and "t" in train and len(dev) == 6 and "d" in dev
    assert train[:-1] == sorted(train[:-1])
    other = tmp_path / "other"
    assert prepare(other, rows[::-1], "--dev_size", 5) == 0
    assert set(ids(other / "out_dev.jsonl")) == set(dev) - {"d"}


def test_same_bytes_whatever_the_concurrency(tmp_path: Path, service: FakeService) -> None:
    rows = [problem(i, "wrong", "right" if i % 3 else "wrong") for i in range(12)]
    outputs = []
    for concurrency in (1, 5, 64):
        directory = tmp_path / str(concurrency)
        assert prepare(directory, rows, "--dev_size", 4, "--concurrency", concurrency) == 0
        names = ("out_train.jsonl", "out_dev.jsonl", "out.verification.jsonl")
        outputs.append([(directory / name).read_bytes() for name in names])
    assert outputs[0] == outputs[1] == outputs[2]


def test_infra_failures_are_no_verdict_and_a_rerun_tries_again(tmp_path: Path, service: FakeService, capsys) -> None:
    rows = [problem(i, "right") for i in range(3)] + [problem("x", "infra")]
    assert prepare(tmp_path, rows) == 3
    assert "1 of 4 problems" in one_complaint(capsys)
    assert not (tmp_path / "out.jsonl").exists()
    service.runs.clear()
    assert prepare(tmp_path, rows, "--max_infra_rate", 0.5) == 0
    assert service.runs == ["infra"]
    assert ids(tmp_path / "out.jsonl") == [0, 1, 2]


def test_a_changed_row_is_verified_again_and_others_are_not(tmp_path: Path, service: FakeService) -> None:
    rows = [problem(i, f"right#{i}") for i in range(4)]
    assert prepare(tmp_path, rows) == 0
    service.runs.clear()
    rows[2] = problem(2, "wrong#2")
    assert prepare(tmp_path, [*rows, problem(9, "right#9")]) == 0
    assert sorted(service.runs) == ["right#9", "wrong#2"]
    assert ids(tmp_path / "out.jsonl") == [0, 1, 3, 9]
    assert ids(tmp_path / "out.verification.jsonl") == [0, 1, 2, 3, 9]


def test_another_input_is_refused_before_it_is_run_and_drops_no_outcome(
    tmp_path: Path, service: FakeService, capsys
) -> None:
    rows = [problem(id_, "right") for id_ in range(3)]
    assert prepare(tmp_path, rows) == 0
    before, runs = {path: path.read_bytes() for path in tmp_path.glob("out*")}, list(service.runs)
    assert prepare(tmp_path, [rows[0], problem(9, "right")]) == 2
    assert "2 of its 3 records have ids that the input lacks" in one_complaint(capsys)
    assert {path: path.read_bytes() for path in tmp_path.glob("out*")} == before and service.runs == runs
    assert prepare(tmp_path, rows) == 0 and service.runs == runs


def test_prepared_rows_pass_through_unrun(tmp_path: Path, service: FakeService) -> None:
    assert prepare(tmp_path / "fresh", [problem("new", "right")]) == 0
    service.runs.clear()
    del service.execution  # it is not even asked
    released = {**read_rows(tmp_path / "fresh" / "out.jsonl")[0], "id": "old", "extra": 1}
    assert prepare(tmp_path / "released", [released]) == 0
    assert read_rows(tmp_path / "released" / "out.jsonl") == [released] and service.runs == []


def test_the_card_has_the_licence_of_the_hub_dataset(
    tmp_path: Path, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = DatasetCard.load

    def hub_card(name: str, repo_type: str) -> DatasetCard:
        if name != "me/set":
            raise OSError("no such card")
        return DatasetCard("---\nlicense: cc-by-4.0\n---\n")

    monkeypatch.setattr("huggingface_hub.DatasetCard.load", hub_card)
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: [problem(0, "right")])
    for name, licence in (("me/set", "cc-by-4.0"), ("me/without", "unknown")):
        output = tmp_path / f"{licence}.jsonl"
        flags = ("-o", output, "--executor", "local", "--dev_size", 0, "--hub_dataset", name)
        assert run_command(COMMAND, *flags) == 0
        assert load(f"{output}.card.md").data.to_dict()["license"] == licence


def test_old_outcomes_hold_for_another_split_but_not_for_another_seed(
    tmp_path: Path, service: FakeService, capsys
) -> None:
    rows = [problem(i, "right") for i in range(3)]
    assert prepare(tmp_path, rows) == 0
    service.runs.clear()
    assert prepare(tmp_path, rows, "--seed", 7) == 2
    assert "seed: 42 -> 7" in one_complaint(capsys)
    assert prepare(tmp_path, rows, "--dev_size", 1) == 0
    assert service.runs == [] and len(ids(tmp_path / "out_dev.jsonl")) == 1


def test_the_row_of_the_tutorial_is_a_problem(tmp_path: Path, service: FakeService) -> None:
    def name_of(code: str, tests: TestCases) -> str:
        sums = [str(sum(map(int, text.split()))) for text in tests.inputs_K]
        return "right" if sums == list(tests.outputs_K) else "wrong"

    service.name_of = name_of
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    assert prepare(tmp_path, [json.loads(tutorial.split("```json\n")[1].partition("```")[0])]) == 0
    assert ids(tmp_path / "out.jsonl") == ["own-0"]


def test_flags_of_the_hub_are_refused_with_a_file(tmp_path: Path, service: FakeService, capsys) -> None:
    assert prepare(tmp_path, [problem(0, "right")], "--hub_split", "test") == 2
    assert "are of hub datasets, and " in one_complaint(capsys)
    assert prepare(tmp_path, [problem(0, "right")], "--hub_dataset", "some/set") == 2
    assert "--input_file and --hub_dataset exclude each other" in one_complaint(capsys)
    flags = ("-o", tmp_path / "out.jsonl", "--subset", "foo", "--executor", "local")
    assert run_cobalt("data", "import", "taco", tmp_path / "raw.jsonl", *flags) == 2
    assert "are of hub datasets, and " in one_complaint(capsys)


def test_an_empty_dev_file_is_told(tmp_path: Path, service: FakeService, capsys) -> None:
    assert prepare(tmp_path, [problem(i, "right", split="train") for i in range(3)], "--dev_size", 1) == 0
    assert "out_dev.jsonl is empty: every problem names its split" in capsys.readouterr().err


def test_a_dev_size_that_leaves_nothing_to_train_on_is_refused(tmp_path: Path, service: FakeService, capsys) -> None:
    rows = [problem(i, "right") for i in range(2)] + [problem("x", "wrong"), raw(id=3, question="short")]
    assert prepare(tmp_path, rows, "--dev_size", 3) == 2
    told = "--dev_size 3 leaves no training problem of the 3 that name no split; choose a smaller --dev_size (0: "
    assert told in one_complaint(capsys)
    assert service.runs == []  # said before anything runs
    assert prepare(tmp_path, rows, "--dev_size", 2) == 2
    assert "--dev_size 2 leaves no training problem of the 2" in one_complaint(capsys)
    service.runs.clear()
    assert prepare(tmp_path, rows, "--dev_size", 1) == 0
    assert service.runs == []


def test_a_stopped_run_continues_where_it_was(tmp_path: Path, service: FakeService) -> None:
    """Begun as ``cobalt data import``, continued under the release's name."""
    rows = [problem(i, f"right#{i}") for i in range(60)]
    source, log, run = write_rows(tmp_path / "raw.jsonl", rows), tmp_path / "out.verification.jsonl", service.run

    async def run_some(code: str | None, tests: TestCases) -> ExecutionResult:
        if len(service.runs) == 20:
            raise RuntimeError("stopped")
        return await run(code, tests)

    service.run = run_some  # type: ignore[method-assign]
    flags = ("-o", tmp_path / "out.jsonl", "--executor", "local", "--dev_size", 0)
    with pytest.raises(RuntimeError, match="stopped"):
        run_cobalt("data", "import", "taco", source, *flags)
    log.write_bytes(log.read_bytes()[:-20])  # the last outcome is torn
    assert log.read_bytes().count(b"\n") == 19 and not (tmp_path / "out.jsonl").exists()
    service.run = run  # type: ignore[method-assign]
    service.runs.clear()
    assert prepare(tmp_path, rows) == 0
    assert len(service.runs) == 60 - 19
    assert ids(tmp_path / "out.jsonl") == list(range(60)) == ids(log)
