"""`cobalt solve`: one conversation in the terminal, with a server that speaks the protocol."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_server import ApiServer, api_server
from commands import run_cobalt
from fake_service import FakeService

from cobalt.inference import solve

TESTS = {"inputs": ["a", "b"], "outputs": ["1", "2"]}
Solve = Callable[..., tuple[int, str, str]]


def answer(program: str) -> str:
    return f"Try this:\n```python\n{program}\n```"


@pytest.fixture
def served() -> Iterator[ApiServer]:
    """Its n-th answer holds ``print(n)``, which passes n tests."""
    with api_server(lambda body, attempt: ("ok", {"text": answer(f"print({len(body['messages']) // 2})")})) as server:
        yield server


@pytest.fixture
def run(served: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Solve:
    """Run the command on a problem: its exit code, and what it says on either stream."""
    monkeypatch.setattr(solve, "open_execution_service", FakeService().opener())
    (tmp_path / "problem.txt").write_text("Count the tests.")
    (tmp_path / "tests.json").write_text(json.dumps(TESTS))

    def call(problem: str, *flags: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        code = run_cobalt("solve", problem, "--api_base", served.base, *flags)
        return code, *capsys.readouterr()

    return call


def test_turns_until_the_tests_pass(run: Solve, served: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in notebooks
    code, out, err = run("problem.txt", "--tests", "tests.json")
    assert (code, out) == (0, "print(2)\n")
    assert len(served.bodies) == 2 and "Count the tests." in served.bodies[0]["messages"][1]["content"]
    assert "\nprint(1)\n" in err and "passes 1 of 2 tests" in err and "\nExpected Output:\n2\n" in err
    assert "\n-print(1)\n+print(2)\n" in err and "passes 2 of 2 tests" in err
    assert "\x1b" not in err  # no terminal


def test_the_last_program_is_submitted_if_none_passes(run: Solve, served: ApiServer) -> None:
    code, out, _ = run("problem.txt", "--tests", "tests.json", "--turns", "0")
    assert (code, out, len(served.bodies)) == (1, "print(1)\n", 1)


def test_a_response_without_a_program_takes_none_back(run: Solve, served: ApiServer) -> None:
    told = [answer("print(1)"), "I cannot.", "I cannot."]
    served.plan = lambda body, attempt: ("ok", {"text": told[len(body["messages"]) // 2 - 1]})
    code, out, err = run("problem.txt", "--tests", "tests.json", "--turns", "1")
    assert (code, out) == (1, "print(1)\n") and "passes 0 of 2 tests" in err


def test_hidden_tests_judge_the_program_of_a_row(run: Solve, tmp_path: Path) -> None:
    hidden = {"inputs": ["c", "d", "e"], "outputs": ["3", "4", "5"]}
    both = {name: TESTS[name] + hidden[name] for name in TESTS}
    tests = {"public_test_cases": TESTS, "hidden_test_cases": hidden, "test_cases": both}
    row = {"id": 7, "instruction": "Count.", **{name: json.dumps(value) for name, value in tests.items()}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    code, out, err = run("rows.jsonl:7")
    assert (code, out) == (1, "print(2)\n") and "passes 2 of 3 hidden tests" in err
    assert run("rows.jsonl:7", "--tests", "tests.json")[0] == 0


def test_a_function_to_write_is_named_with_its_arguments(run: Solve, served: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "calls.json").write_text(json.dumps({"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"}))
    run("problem.txt", "--tests", "calls.json", "--turns", "0")
    assert "def add(argument_0, argument_1):" in served.bodies[0]["messages"][1]["content"]


def test_no_control_character_reaches_the_terminal(run: Solve, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({"inputs": ["a", "\x1b]0;title\x07"], "outputs": ["1", "2"]}))
    _, _, err = run("problem.txt", "--tests", "odd.json")
    assert "]0;title" in err and not {"\x1b", "\x07"} & {*err}


@pytest.mark.parametrize(
    ("problem", "tests", "complaint"),
    [
        ("none.txt", "tests.json", "none.txt"),
        ("empty.txt", "tests.json", "empty.txt: holds no problem"),
        ("problem.txt", None, "needs --tests FILE"),
        ("problem.txt", "problem.txt", "problem.txt: tests are not JSON"),
        ("empty.jsonl:7", None, "empty.jsonl"),
    ],
)
def test_bad_input(problem: str, tests: str | None, complaint: str, run: Solve, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "empty.jsonl").write_text("")
    code, out, err = run(problem, *(["--tests", tests] if tests else []))
    assert (code, out) == (2, "") and complaint in err and err.count("\n") == 1


def test_trouble_of_the_surroundings_is_no_verdict(run: Solve, served: ApiServer) -> None:
    served.plan = lambda body, attempt: ("ok", {"text": answer("fail")})
    code, out, err = run("problem.txt", "--tests", "tests.json")
    assert (code, out) == (3, "") and "worker lost" in err
    assert run("problem.txt", "--tests", "tests.json", "--api_base", "http://127.0.0.1:9/v1")[0] == 3
