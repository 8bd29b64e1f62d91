"""Checkers that problems name in their tests, end to end: names, tolerances, and programs that run sandboxed."""

import json

import pytest

from cobalt.perturbation import perturb
from cobalt.records import TestCases, Verdict
from cobalt.sandbox import executor as executor_module
from cobalt.sandbox.checkers import usable_tests
from cobalt.sandbox.executor import Executor

PAIR = """
import json, sys
asked = json.load(sys.stdin)
total = int(asked["input"])
try:
    a, b = map(int, asked["output"].split())
except ValueError:
    a, b = 0, -1
print("accepted" if a + b == total and a > 0 < b else "rejected")
"""
SECRET = "a text that only the checker may see"


def given_tests(*pairs, **options):
    """Tests of (input, expected output) pairs."""
    return {"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs], **options}


def verdicts(sandbox, code, given):
    """Verdicts of one program."""
    return [verdict.value for verdict in sandbox.run(code, given).verdicts]


@pytest.mark.parametrize(
    ("checker", "passing"),
    [
        (None, (False, False, True)),
        ("float", (True, False, True)),
        ("float 1e-9", (False, False, True)),
        ("unordered", (False, True, True)),
    ],
)
def test_each_problem_has_its_own_checker(checker, passing, sandbox):
    given = given_tests(("", "2\n1"), ("", "1\n2.0000001"), ("", "2.0000001\n1"), checker=checker)
    assert sandbox.run("print('2.0000001\\n1')", given).passing == passing


def test_a_checker_program_judges(sandbox):
    given = given_tests(("5", "1 4"), ("9", "4 5"), checker_program=PAIR)
    assert verdicts(sandbox, "print(2, int(input()) - 2)", given) == ["passed"] * 2
    assert verdicts(sandbox, "print(4, 5)", given) == ["wrong_answer", "passed"]
    assert verdicts(sandbox, "print('no pair')", given) == ["wrong_answer"] * 2
    assert verdicts(sandbox, "print(1, 4)\n1 / 0", given) == ["runtime_error"] * 2
    assert verdicts(sandbox, "print(2, int(input()) - 2)", given_tests(("5", "2 3"))) == ["passed"]


def test_a_checker_program_judges_the_result_of_a_function(sandbox):
    given = given_tests(("5", "[1, 4]"), fn_name="split", checker_program=PAIR.replace(".split()", "[1:-1].split(',')"))
    assert verdicts(sandbox, "def split(n): return [2, n - 2]", given) == ["passed"]


BROKEN = ["print('maybe')", "1 / 0", "while True: pass", "def f(:", "print('accepted'); raise SystemExit(1)"]


async def test_a_checker_program_that_fails_is_no_verdict_on_the_program(namespaces):
    async with Executor(workers=1, cpu_limit_s=0.3) as executor:
        for checker in BROKEN:
            result = await executor.run("print(1)", given_tests(("", "1"), checker_program=checker))
            assert result.verdicts == (Verdict.INFRA_ERROR,), checker
            assert "checker program" in (result.infra_error or "") and result.is_final
            assert (await executor.run("print(1)", given_tests(("", "1")))).solved


def test_a_checker_program_is_sealed_in(sandbox):
    escaping = "import os\ntry:\n    os.fork()\nexcept OSError:\n    print('accepted')"
    assert verdicts(sandbox, "print(1)", given_tests(("", "1"), checker_program=escaping)) == ["passed"]


def test_programs_never_meet_their_checker(sandbox):
    looking = """
import gc
gc.unfreeze()
texts = [thing for thing in gc.get_referents(*gc.get_objects()) if isinstance(thing, str)]
needle = "".join(reversed("yam rekcehc eht ylno"))
print(any(needle in text for text in texts), len(texts) > 1000)
"""
    checker = (
        f"# {SECRET}\nimport json\nprint('accepted' if 'False True' in json.loads(input())['output'] else 'rejected')"
    )
    given = given_tests(("", SECRET), ("", SECRET), checker_program=checker)
    assert verdicts(sandbox, looking, given) == ["passed"] * 2


BAD = [
    ({"checker": "fuzzy"}, "checker must be one of"),
    ({"checker": 3}, "'checker' must be a text"),
    ({"checker_program": ["x"]}, "'checker_program' must be a text"),
    ({"checker": "float", "checker_program": "x"}, "not beside 'checker_program'"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_bad_checkers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        usable_tests(given_tests(("1", "1"), **options))


@pytest.mark.parametrize("options", [{"checker": "float 0.1"}, {"checker_program": PAIR}, {}])
def test_checkers_are_kept_in_files_and_selections(options):
    parsed = TestCases.parse(json.dumps(given_tests(("1", "1"), ("2", "2"), **options)))
    again = TestCases.parse(parsed.to_json())
    assert again == parsed
    assert again.select([1]) + again.select([0]) == TestCases.parse(given_tests(("2", "2"), ("1", "1"), **options))
    assert parsed.to_mapping().keys() == {"inputs", "outputs", *options}


def test_tests_of_different_checkers_are_not_joined():
    with pytest.raises(ValueError, match="joined"):
        TestCases.parse(given_tests(("1", "1"))) + TestCases.parse(given_tests(("1", "1"), checker="float"))


async def test_an_own_checker_judges_to_the_end_as_its_file_was_at_the_start(namespaces, monkeypatch, tmp_path):
    """Workers that start later judge as the first ones, and so does what an app's replicas are given."""
    monkeypatch.setattr(executor_module, "TURN_S", 0.1)
    long = "import time\nwhile time.process_time() < 0.3: pass\nprint(2)"
    file = tmp_path / "own.py"
    file.write_text("# coding: latin-1\ndef same(output, expected): return output == expected\n")
    async with Executor(workers=1, checker=f"{file}:same") as executor:
        was = await executor.describe()
        file.write_text("def same(output, expected): return True\n")
        results = await executor.run_many([(code, given_tests(("", "1"))) for code in ("print(2)", long)])
        assert [result.verdicts for result in results] == [(Verdict.WRONG_ANSWER,)] * 2
        file.unlink()
        assert await executor.describe() == await Executor(checker=executor.checker).describe() == was


def test_outputs_that_a_checker_may_not_tell_apart_are_not_swapped():
    swapped = [("1", "1\n2"), ("2", "2\n1")]
    assert perturb(TestCases.parse(given_tests(*swapped)), 0, "p") is not None
    for options in ({"checker": "unordered"}, {"checker": "float"}, {"checker_program": PAIR}):
        assert perturb(TestCases.parse(given_tests(*swapped, **options)), 0, "p") is None
    other = perturb(TestCases.parse(given_tests(("1", "1"), ("2", "2"), checker="unordered")), 0, "p")
    assert other is not None and other[0].checker == "unordered"
