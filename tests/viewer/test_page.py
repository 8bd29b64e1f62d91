"""``cobalt view`` without a browser: what is read of each kind of file, what is refused, how the page is written."""

import base64
import gzip
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import exit_code
from viewed_files import ATTACK, Row, dumped, evaluated_file, hacking_case, single_turn, stopped

from cobalt import __main__ as console
from cobalt.records import write_jsonl
from cobalt.viewer import page
from cobalt.viewer.trajectories import multi_turn, training_dump

View = Callable[..., tuple[int, str]]


@pytest.fixture
def view(capsys: pytest.CaptureFixture[str]) -> View:
    """Run the command in this process; its exit code and its complaint."""

    def run(*arguments: object) -> tuple[int, str]:
        code = exit_code(console.main, "cobalt", "view", *arguments)
        return code, "\n".join(line for line in capsys.readouterr().err.splitlines() if "error:" in line)

    return run


def unpacked(html: str) -> dict[str, str]:
    """The packed elements of a page by name."""
    found = re.findall(r'<script type="text/plain" id="([\w-]+)">([^<]*)</script>', html)
    return {name: gzip.decompress(base64.b64decode(content)).decode() for name, content in found}


@pytest.mark.parametrize(
    ("rows", "kind", "turns_of_the_last_sample"),
    [
        ([single_turn(0)], "single turn", [[None, "infra_error"]]),
        ([hacking_case(0, True)], "hacking cases", [None, [None, "wrong_answer"], [0.5, "passed"]]),
        ([dumped(0, 0.2), dumped(1, 1.0)], "training dump", [[None, ""], [1.0, ""]]),
        ([dumped(1, 0.2, infra=1.0)], "training dump", [[None, ""], [None, "infra_error"]]),
    ],
)
def test_what_the_index_says(
    rows: list[Row], kind: str, turns_of_the_last_sample: list[Any], view: View, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "in.jsonl", rows)
    assert view(tmp_path / "in.jsonl") == (0, "")
    (file,) = json.loads(unpacked((tmp_path / "in.jsonl.html").read_text())["index"])["files"]
    (problem,) = file["problems"]
    assert file["kind"] == kind
    assert problem["samples"][-1]["turns"] == turns_of_the_last_sample


def test_rates_are_those_of_the_hidden_tests_and_failures_of_the_infrastructure_are_none() -> None:
    (row,) = evaluated_file(1, samples=3, turns=3)
    row["all_pass_rates"] = [[0.0, 1.0, 0.5], [None, 1.0, 1.0], [0.0, None, None]]
    row["public_pass_rates"][1][2] = row["public_pass_rates"][2][2] = None
    found = [[(turn.rate, turn.infra_error) for turn in turns] for turns in multi_turn(row).turns_N]
    unknown = (None, "the hidden tests could not be run")
    assert found == [
        [(0.0, None), (1.0, None), (0.5, None)],
        [unknown, (1.0, None), (1.0, None)],
        [(0.0, None), (None, "no response")],
    ]


def test_after_success_the_last_program_counts_at_turns_that_are_not_taken() -> None:
    row = stopped(turns=3)
    (turns,) = multi_turn(row).turns_N
    assert [(turn.rate, turn.taken) for turn in turns] == [(0.0, True), (1.0, True), (1.0, False)]
    (turns,) = multi_turn({**row, "stop_at_success": False}).turns_N
    assert all(turn.taken for turn in turns), "a passing program may be followed by another"


@pytest.mark.parametrize("lacking", [("usage",), ("input_hash",)], ids=["imported", "an API's, released"])
def test_usage_is_shown_where_a_row_has_it(lacking: tuple[str, ...]) -> None:
    (row,) = evaluated_file(1)
    found = multi_turn({name: value for name, value in row.items() if name not in lacking}).turns_N
    assert all((turn.usage is None) == ("usage" in lacking) for turns in found for turn in turns)


def test_released_rows_have_neither_verdicts_nor_usage() -> None:
    (row,) = evaluated_file(1)
    before = multi_turn(row).turns_N
    row = {name: value for name, value in row.items() if name not in ("input_hash", "usage", "feedback_tests")}
    for result in (result for results_N in row["public_exec_results"] for result in results_N):
        del result["verdicts"], result["infra_error"]
    after = multi_turn(row).turns_N
    assert [[turn.verdicts for turn in turns] for turns in after] == [
        [turn.verdicts for turn in turns] for turns in before
    ]


def test_a_dump_shows_the_programs_of_its_context_and_the_reward_as_named_parts() -> None:
    first, second, last = training_dump(dumped(2, 0.5)).turns_N[0]
    assert [turn.code for turn in (first, second, last)] == ["print(0)", "print(1)", "print(input())"]
    assert first.text.startswith("Hm.") and first.answer is not None and first.answer.startswith("Fix it.")
    assert last.scores["reward_correct"] == 0.5 and last.scores["score"] == 0.5
    assert not {"step", "cost_reward_runs"} & last.scores.keys()


@pytest.mark.parametrize(("rate", "verdicts"), [(0.0, ["no_program"]), (0.5, [])])
def test_a_dump_tells_of_no_program_only_where_nothing_passed(rate: float, verdicts: list[str]) -> None:
    row = {**dumped(0, rate), "output": "```python\nprint(input())\n```</think>"}  # one by the released rule alone
    ((last,),) = training_dump(row).turns_N
    assert (last.code, last.rate, list(last.verdicts)) == (None, rate, verdicts)


def test_a_dump_of_another_chat_template_shows_its_prompt_whole() -> None:
    row = dumped(1, 0.5)
    row["input"] = row["input"].replace("\nassistant\n", " [/INST] ")
    piece = training_dump(row)
    assert (piece.first_turn, piece.question, len(piece.turns_N[0])) == (1, row["input"], 1)


GOOD = evaluated_file(2)
NO_RATES = {name: value for name, value in GOOD[1].items() if name != "public_pass_rates"}
TORN = {**GOOD[1], "public_pass_rates": [[0.5]], "public_exec_results": []}


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["{oops"], "line 1: not valid JSON"),
        ([""], "holds no records"),
        ([{"id": 1, "question": "q"}], "line 1: nothing that can be viewed"),
        ([GOOD[0], GOOD[0]], "line 2: duplicate id 'p0'"),
        ([GOOD[0], NO_RATES], "line 2: missing field 'public_pass_rates'"),
        ([GOOD[0], TORN], "line 2: not readable as trajectories"),
        ([{**hacking_case(0, True), "signal": {"dynamic": None}}], "line 1: not readable as hacking cases"),
        ([GOOD[0], {**GOOD[1], "all_pass_rates": [["x"] * 4] * 4}], "line 2: not readable as trajectories"),
        ([GOOD[0], {**GOOD[1], "all_pass_rates": [[float("nan")] * 4] * 4}], "line 2: not readable as trajectories"),
    ],
)
def test_a_wrong_file_is_refused_and_the_old_page_stays(
    lines: list[Any], complaint: str, view: View, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    write_jsonl(source, GOOD)
    view(source)
    old = (tmp_path / "in.jsonl.html").read_bytes()
    source.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    code, line = view(source)
    assert code == 2 and f"in.jsonl: {complaint}" in line and "\n" not in line
    assert (tmp_path / "in.jsonl.html").read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "in.jsonl.html"]


def test_what_else_is_refused(view: View, tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    assert view(one) == (2, f"cobalt view: error: {one}: no such file")
    write_jsonl(one, GOOD[:1])
    write_jsonl(other, GOOD[1:])
    code, line = view(one, other)
    assert code == 2 and "have no problem in common" in line
    code, line = view(one, "--output_file", one)
    assert code == 2 and "the same file" in line
    (tmp_path / "mine.html").write_text("<p>mine")
    code, line = view(one, "--output_file", tmp_path / "mine.html")
    assert code == 2 and "mine.html: exists and is no page of cobalt view" in line
    assert (tmp_path / "mine.html").read_text() == "<p>mine"
    assert view(one) == view(one) == (0, ""), "a page is written anew"


def test_no_text_of_a_file_is_markup_and_only_own_script_may_run(view: View, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    write_jsonl(source, evaluated_file(20))
    view(source)
    html = (tmp_path / "in.jsonl.html").read_text()
    assert ATTACK not in html and "onerror" not in html
    assert any("onerror" in text for text in unpacked(html).values()), "it is there, packed"
    assert "default-src 'none'" in html and not re.search(r"(?:src|href)=.?https?:", html)


def test_memory_holds_one_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "CHUNK_CHARACTERS", 50_000)
    source = tmp_path / "in.jsonl"
    write_jsonl(source, evaluated_file(100, words=400))
    page.write_page(tmp_path / "before.html", [source])  # what is imported late is no part of it
    tracemalloc.start()
    page.write_page(tmp_path / "out.html", [source])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(unpacked((tmp_path / "out.html").read_text())) > 60
    assert most < source.stat().st_size / 4
