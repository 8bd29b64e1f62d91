"""Record files: strict reading, torn lines, resuming, manifests."""

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.completion import Completion
from cobalt.errors import InputError
from cobalt.prompts import with_feedback
from cobalt.records import Manifest, RecordFile, ResultRecord, read_jsonl, row_hash, write_jsonl
from cobalt.records.identity import model_identity
from cobalt.records.manifest import check_paths, manifest_path, origin_of, recorded_run
from cobalt.records.rows import Evaluated, MultiTurn, read_rows
from cobalt.sandbox import ExecutionResult, TestCases, Verdict


def _lines(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("text", "fields", "complaint"),
    [
        ('{"id": 1}\n{"id": 2}\n{oops\n', ("id",), "a.jsonl: line 3: not valid JSON"),
        ('{"id": 1}\n{"id": 2, "x', ("id",), "line 2: not valid JSON (the file ends inside this line)"),
        ('[\n{"id": 1}\n]\n', ("id",), "a.jsonl: is a JSON array; JSONL is wanted, an object per line"),
        ("PAR1\x15\x04", ("id",), "load_dataset('parquet', data_files="),
        (f"a.jsonl{chr(0) * 250}ustar", ("id",), "a.jsonl: is a tar archive; unpack it first: tar -xf"),
        ('{"id": 0}\n{"id": ""}\n{"id": 0}\n', ("id",), "line 3: duplicate id 0 (first on line 1)"),
        (
            '{"id": 1}\n',
            ("id", "question", "conversations", "all_pass_rates"),
            "line 1: missing field 'question', also 'conversations', 'all_pass_rates' ('conversations' is written by "
            "run_multi_turn_vllm.py or run_multi_turn_litellm.py)",
        ),
        ('{"id": 1}\n', ("response",), "('response' is written by process_multi_turn_taco.py --for rft)"),
        ('{"id": 1}\n', ("chosen", "rejected"), "('chosen' is written by process_multi_turn_taco.py --for dpo)"),
    ],
)
def test_a_bad_line_is_named_in_one_line(tmp_path: Path, text: str, fields: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl: no such file"):
        read_jsonl(tmp_path / "a.jsonl")  # before the first row is asked for
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(InputError) as error:
        list(read_jsonl(tmp_path / "a.jsonl", fields))
    assert complaint in str(error.value) and "\n" not in str(error.value)


RATES = {"conversations": [[{"role": "assistant", "content": "x"}]], "public_pass_rates": [[0.5]]}
TESTS = {"inputs": ["1"], "outputs": ["1"]}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"public_pass_rates": [[1.5]]}, "field 'public_pass_rates'[0][0]: Input should be less than or equal to 1"),
        ({"conversations": [[{"role": "user"}]]}, "field 'conversations'[0][0]['content']: Field required"),
        ({"conversations": []}, "field 'conversations': List should have at least 1 item"),
        ({"public_pass_rates": []}, "field 'public_pass_rates': List should have at least 1 item"),
        (
            {"conversations": [RATES["conversations"][0] * 2]},
            "a conversation has more programs than 'public_pass_rates'",
        ),
        ({"public_pass_rates": [[0.5], [1]]}, "a conversation has 1 programs, and 'public_pass_rates' 2 for it"),
        ({"stop_at_success": True, "conversations": [[]]}, "a conversation has 0 programs"),
        ({"hidden_test_cases": "{"}, "field 'hidden_test_cases': tests are not JSON"),
        ({"feedback_tests": "perturbed"}, "missing field 'public_test_cases'"),
    ],
)
def test_a_row_of_another_form_is_refused_by_its_reader(tmp_path: Path, changes: dict, complaint: str) -> None:
    row = {"id": 1, **RATES, "hidden_test_cases": TESTS, "more": 1}
    write_jsonl(tmp_path / "a.jsonl", [row, {**row, "id": 2, **changes}])
    rows = read_rows(tmp_path / "a.jsonl", MultiTurn)
    assert next(rows).row == row
    with pytest.raises(InputError, match=r"a\.jsonl: line 2: " + re.escape(complaint)):
        next(rows)


def test_samples_with_different_numbers_of_turns_are_refused() -> None:
    row = {"id": 1, "conversations": [[{"role": "user", "content": ""}]] * 2, "all_pass_rates": [[0.0, 1.0], [0.0]]}
    with pytest.raises(ValueError, match=r"field 'all_pass_rates'\[1\] has 1 entries where 2 are expected"):
        Evaluated.read(row)


def test_invalid_lines_can_be_skipped_and_number_and_text_ids_differ(tmp_path: Path) -> None:
    path = _lines(tmp_path / "a.jsonl", '{"id": 1}', "[]", '{"id": "1"}')
    skipped: list[InputError] = []
    assert [row["id"] for row in read_jsonl(path, on_invalid=skipped.append)] == [1, "1"]
    assert len(skipped) == 1


def test_record_file_cuts_a_torn_line_and_keeps_the_last_of_an_id(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"id": 0, "input_hash": "h", "v": 1}\n{"id": 0, "input_hash": "h", "v": 2}\n{"id": 1, "inp')
    file = RecordFile(path)
    assert file.get(0, "h") == {"id": 0, "input_hash": "h", "v": 2}
    assert file.get(0, "changed row") is None
    assert file.get(1, "h") is None
    file.append({"id": 1, "input_hash": "h", "v": 3})
    assert file.finish([1, 0, 2]) == 2
    assert [(row["id"], row["v"]) for row in read_jsonl(path)] == [(1, 3), (0, 2)]


def test_a_record_file_with_a_line_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"out\.jsonl: line 2: missing field 'id'"):
        RecordFile(_lines(tmp_path / "out.jsonl", '{"id": 1}', '{"name": 1}'))


def test_record_file_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    code = (
        "import itertools, sys; from cobalt.records import RecordFile\n"
        "f = RecordFile(sys.argv[1])\n"
        "for i in itertools.count(): f.append({'id': i, 'input_hash': 'h', 'text': 'x' * 5000}); print(i, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 20:
            time.sleep(0)
        os.kill(process.pid, signal.SIGKILL)
        said = [int(line) for line in process.stdout]
    file = RecordFile(path)
    last = max(said, default=20)
    assert all(file.get(i, "h") is not None for i in range(last + 1))
    file.finish(range(last + 2))
    assert [row["id"] for row in read_jsonl(path)][: last + 1] == list(range(last + 1))


def test_a_second_writer_is_refused_and_nothing_lies_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    with RecordFile(path) as first:
        first.append({"id": 1, "input_hash": "h"})
        with pytest.raises(InputError, match=r"out\.jsonl: another process is writing it"):
            RecordFile(path)
        first.finish([1])
    with RecordFile(path) as second:
        assert second.get(1, "h")
    assert list(tmp_path.iterdir()) == [path]
    # Another run may finish it between its opening and its lock.
    monkeypatch.setattr("fcntl.flock", lambda file, operation: write_jsonl(path, [{"id": 1}]))
    with pytest.raises(InputError, match="another process"):
        RecordFile(path)


def test_a_file_system_without_locks_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with RecordFile(tmp_path / "out.jsonl") as file:
        file.append({"id": 1, "input_hash": "h"})


def test_records_that_the_input_lacks_are_not_dropped_unsaid(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "out.jsonl") as file:
        for id_ in (1, "1", 2):
            file.append({"id": id_, "input_hash": "h"})
        file.refuse_loss([2, 1, "1", 3])
        with pytest.raises(InputError, match=r'1 of its 3 records .* lacks \(such as "1"\)'):
            file.refuse_loss([1, 2])
    with RecordFile(tmp_path / "out.jsonl.journal") as file:
        for id_ in (["a", 0, 0], ["a", 0, 1], ["b", 0, 0]):
            file.append({"id": id_, "input_hash": "h"})
        file.refuse_loss(["b", "a"], lambda turn: turn[0])
        with pytest.raises(InputError, match=r"2 of its 3 records .* lacks \(such as \[\"a\", 0, 0\]\)"):
            file.refuse_loss(["b"], lambda turn: turn[0])


def test_records_of_other_rows_with_the_same_ids_are_not_replaced_unsaid(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "out.jsonl") as file:
        for id_ in range(4):
            file.append({"id": id_, "input_hash": f"h{id_}", "failed": id_ == 3})

        def refuse(*hashes: str) -> None:
            file.refuse_other_input(enumerate(hashes), lambda row: not row["failed"])

        refuse("h0", "h1", "h2", "h3", "new")
        refuse("h0", "other", "other", "other")  # the last was to be made again anyway
        with pytest.raises(InputError, match=r"out\.jsonl: 3 of its 4 records .* \(such as 0\).*another output"):
            refuse("other", "other", "other", "h3")


def test_a_pipe_or_a_folder_is_no_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = "is no regular file; it is read more than once"
    for path, complaint in ((tmp_path, "is a folder, not a file"), (tmp_path / "pipe", pipe)):
        with pytest.raises(InputError, match=complaint):
            read_jsonl(path)
        with pytest.raises(InputError, match=complaint):
            check_paths([path], [])


def test_a_link_to_an_output_stays_one(tmp_path: Path) -> None:
    link, target = tmp_path / "link.jsonl", tmp_path / "elsewhere.jsonl"
    link.symlink_to(target)
    with RecordFile(link) as output:
        output.append({"id": 1})
        output.finish([1])
    assert link.is_symlink() and list(read_jsonl(target)) == [{"id": 1}]


def test_write_is_atomic(tmp_path: Path) -> None:
    path = _lines(tmp_path / "a.jsonl", '{"id": "old"}')

    def rows():
        yield {"id": "new"}
        raise RuntimeError("crash while writing")

    with pytest.raises(RuntimeError):
        write_jsonl(path, rows())
    assert [row["id"] for row in read_jsonl(path)] == ["old"]


def test_row_hash_ignores_key_order() -> None:
    assert row_hash({"a": 1, "b": [2]}) == row_hash({"b": [2], "a": 1}) != row_hash({"a": 1, "b": [3]})


def test_manifest_holds_no_secret_and_refuses_other_settings(tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    config = {"temperature": 0.6, "openai_api_key": "sk-1", "aws_secret_access_key": "s", "seed": 3}
    config["api_base"] = "http://me:word@host:1/v1"
    config["logger"] = {"password": "sk-1", "urls": ["http://me:word@host"], "name": "x"}
    manifest = Manifest(output, "command", config, {"temperature": 0.6})
    manifest.start()
    write_jsonl(output, [{"id": 1}])
    manifest.counts["written"] = 1
    manifest.done()
    text = manifest_path(output).read_text()
    assert "sk-1" not in text and "aws_secret" not in text and "word@" not in text and '"name": "x"' in text
    stored = json.loads(text)
    assert stored["config"]["api_base"] == "http://host:1/v1"
    assert (stored["status"], stored["seed"], stored["counts"]) == ("done", 3, {"written": 1})
    Manifest(output, "command", {**config, "workers": 9}, {"temperature": 0.6}).refuse_other_content()
    with pytest.raises(InputError, match=r"other settings \(temperature: 0\.6 -> 1\.0\)"):
        Manifest(output, "command", config, {"temperature": 1.0}).refuse_other_content()
    with pytest.raises(InputError, match=r"files: None -> \['a-long-name.{67}\.\.\., temperature") as refused:
        Manifest(output, "command", config, {"files": ["a-long-name"] * 100}).refuse_other_content()
    assert "\n" not in str(refused.value)
    manifest.path.unlink()
    with pytest.raises(InputError, match="no manifest"):
        Manifest(output, "command", config, {"temperature": 0.6}).refuse_other_content()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ({"inputs": ["1"]}, "need a list 'outputs'"),
        ({"inputs": "1", "outputs": ["1"]}, "need a list 'inputs'"),
        ({"inputs": [1], "outputs": ["1"]}, "need texts in 'inputs'"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs but 0 outputs"),
        ({"inputs": [], "outputs": []}, "there are no tests"),
        ("[" * 100_000, "tests are not JSON"),
        ({"inputs": ["1", "x"], "outputs": ["", ""], "fn_name": "f"}, "test 1: an argument is not JSON"),
        ({"inputs": ["[" * 100_000], "outputs": [""], "fn_name": "f"}, "test 0: an argument is not JSON"),
        ({"inputs": [1], "outputs": ["1"], "fn_name": "f"}, "tests need texts in 'inputs'"),
    ],
)
def test_bad_tests_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TestCases.parse(value)  # type: ignore[arg-type]


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(texts, texts), min_size=1), st.none() | st.just("solve"))
def test_tests_round_trip(pairs: list[tuple[str, str]], fn_name: str | None) -> None:
    inputs = tuple(json.dumps(i) if fn_name else i for i, _ in pairs)
    tests = TestCases(inputs, tuple(o for _, o in pairs), fn_name)
    assert TestCases.parse(tests.to_json()) == tests


def test_an_infra_error_has_no_pass_rate_and_is_never_solved() -> None:
    result = ExecutionResult.infra(2, "worker lost")
    assert (result.pass_rate, result.solved) == (None, False)
    record = with_feedback(result, TestCases(("1", "2"), ("3", "4")))
    assert (record.pass_rate, record.feedback) == (None, ("", ""))
    assert ResultRecord.from_record(json.loads(json.dumps(record.to_record()))) == record


def test_released_results_without_verdicts_are_read() -> None:
    result = ResultRecord.from_record({"passing": [True, False], "feedback": ["", "x"]})
    assert (result.verdicts, result.pass_rate) == ((Verdict.PASSED, Verdict.WRONG_ANSWER), 0.5)


@pytest.mark.parametrize("verdicts", [[], ["passed"], ["passed"] * 3])
def test_a_result_has_a_verdict_for_each_test(verdicts: list[str]) -> None:
    with pytest.raises(ValueError, match=f"2 tests in 'passing' and {len(verdicts)} in 'verdicts'"):
        ResultRecord.from_record({"passing": [True, False], "feedback": ["", "x"], "verdicts": verdicts})
    with pytest.raises(ValueError, match="0 tests"):
        ResultRecord.from_record({"passing": [], "feedback": []})


def test_two_runs_do_not_write_one_output(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with recorded_run("first", {}, [], {path: {"seed": 1}}):
        begun = manifest_path(path).read_text()
        for seed in (1, 2):
            with (
                pytest.raises(InputError, match=r"out\.jsonl: another process is writing it"),
                recorded_run("second", {}, [], {path: {"seed": seed}}),
            ):
                pytest.fail("it runs")
        assert manifest_path(path).read_text() == begun
        write_jsonl(path, [{"id": 1}])
    with recorded_run("again", {}, [], {path: {"seed": 1}}):
        pass
    assert sorted(tmp_path.iterdir()) == [path, manifest_path(path)]


def test_the_wall_time_is_that_of_all_runs_which_made_the_output(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"

    def run(ends: bool = True) -> float:
        with contextlib.suppress(RuntimeError), recorded_run("command", {}, [], {path: {}}):
            write_jsonl(path, [{"id": 1}])
            if not ends:
                raise RuntimeError("killed")
        return json.loads(manifest_path(path).read_text())["wall_time_s"]

    def shift(file: Path, seconds: float) -> None:
        os.utime(file, (0, file.stat().st_mtime + seconds))

    run(ends=False)
    shift(manifest_path(path), -100)  # it began so long before its last record
    assert 100 < run() < 110
    shift(path, 50)  # nothing ran after the end
    assert 100 < run(ends=False) < 110
    path.unlink()
    assert run() < 10, "an output that was removed is made anew"


def test_an_unfinished_output_says_so_and_what_it_comes_from(tmp_path: Path, capsys) -> None:
    path = tmp_path / "out.jsonl"
    with contextlib.suppress(RuntimeError), recorded_run("command", {}, [], {path: {}}, {"model": "m"}):
        write_jsonl(path, [{"id": 1}])
        raise RuntimeError("killed")
    assert origin_of(path) == {"model": "m"}
    with contextlib.suppress(RuntimeError), recorded_run("command", {}, [], {path: {}}):
        raise RuntimeError("killed again, and earlier")
    assert origin_of(path) == {"model": "m"} and capsys.readouterr().err == ""
    with recorded_run("next", {}, [path], {tmp_path / "next.jsonl": {}}):
        pass
    assert f"note: {path} is unfinished" in capsys.readouterr().err


def test_a_link_and_a_compressed_copy_come_from_where_the_file_does(tmp_path: Path) -> None:
    path, link = tmp_path / "out.jsonl", tmp_path / "latest.jsonl"
    with recorded_run("command", {}, [], {path: {}}, {"model": "m"}):
        write_jsonl(path, [{"id": 1}])
    link.symlink_to(path)
    names = (link, tmp_path / "out.jsonl.gz", tmp_path / "out.jsonl.xz")
    assert [origin_of(name) for name in names] == [{"model": "m"}] * 3
    assert origin_of(tmp_path / "other.jsonl") == {}


def test_a_folder_that_has_logs_gets_its_first_manifest(tmp_path: Path) -> None:
    (tmp_path / "ray.log").write_text("Ray runtime started")
    manifest = Manifest(tmp_path, "cobalt train", {}, {})
    manifest.start()
    assert json.loads(manifest.path.read_text())["status"] == "running"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"content": 5}', '{"origin": 5}'])
def test_a_manifest_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    path = _lines(tmp_path / "a.jsonl", '{"id": 1}')
    manifest_path(path).write_text(text)
    with pytest.raises(InputError, match=r"a\.jsonl\.manifest\.json: no manifest"):
        origin_of(path)
    with pytest.raises(InputError, match="no manifest"), recorded_run("run", {}, [], {path: {}}):
        pytest.fail("it runs")


def test_half_of_a_surrogate_pair_comes_through(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "\ud83d"}, {"id": 2, "text": "é"}]
    write_jsonl(tmp_path / "a.jsonl", rows)
    assert list(read_jsonl(tmp_path / "a.jsonl")) == rows
    assert "é".encode() in (tmp_path / "a.jsonl").read_bytes()
    assert Completion("\ud83d\ude00 \ud83d", 1, 1, "stop").text == "\N{GRINNING FACE} \ufffd"


@pytest.mark.parametrize("size", [100, 40_000, 20_000_000])
def test_a_model_is_known_by_all_parts_of_its_weights(tmp_path: Path, size: int) -> None:
    names = set[str]()
    for layer in range(10):
        with open(tmp_path / "model.safetensors", "wb") as file:
            file.truncate(size)
            file.seek(layer * size // 10)
            file.write(b"1" * (size // 10))
        names.add(model_identity(str(tmp_path)))
    assert len(names) == 10 and names.pop().startswith(f"{tmp_path.name}@")


@pytest.mark.parametrize("place", [0, 5_000, 11_000_000])
def test_a_model_is_known_by_each_byte_of_its_tokenizer(tmp_path: Path, place: int) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(bytes(11_000_001))  # as large as Qwen's
    before = model_identity(str(tmp_path))
    with open(tokenizer, "r+b") as file:
        file.seek(place)
        file.write(b"1")
    assert model_identity(str(tmp_path)) != before
