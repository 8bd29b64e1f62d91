"""Asserts as tests, in the layouts of MBPP, HumanEval, EvalPlus and LeetCodeDataset; tests generated from few."""

import json
import random
import re
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from commands import FakeService, SharedExecutor, one_complaint, read_rows, run_cobalt, write_rows
from test_import import imported
from test_taco_rows import raw

from cobalt.preproc import asserts, generated_tests
from cobalt.preproc.formats import FORMATS, Name
from cobalt.preproc.taco import VERIFIED
from cobalt.records import TestCases
from cobalt.sandbox import ExecutionResult, Verdict
from cobalt.serving.execution import ExecutionService

SHARED = Path(__file__).parents[3] / "shared/real/problems/problems.tar.xz"
FILLER = "Every number is a whole one. Nothing else is known, and an answer may take as long as it has to, if right. "
RIGHT = "def widest(pairs, least=0):\n    return max([b - a for a, b in pairs if b - a >= least], default=least)"
TASK = f"Write a function that tells the width of the widest of some pairs. {FILLER}"


def mbpp(**fields: Any) -> dict:
    tests = [
        "assert widest([(1, 4), (2, 3)]) == 3",
        "assert widest([(0, 9)], 2) == 9",
        "assert widest([(3, 3)], 1) == 1",
    ]
    row = {"task_id": 7, "text": TASK, "code": RIGHT, "test_list": tests, "test_setup_code": ""}
    return {**row, "challenge_test_list": ["assert widest([(1, 7), (5, 6)], 4) == 6"], **fields}


def humaneval(*tests: str, **fields: Any) -> dict:
    prompt = f'def shout(word: str) -> str:\n    """{FILLER}Return the word with an exclamation mark."""\n'
    lines = "\n".join(f"    {test}" for test in tests or ("assert candidate('ab') == 'ab!'",))
    row = {"task_id": "HumanEval/3", "prompt": prompt, "entry_point": "shout"}
    test = f"METADATA = {{}}\n\ndef check(candidate):\n    assert True, 'simple'\n{lines}\n"
    return {**row, "canonical_solution": "    return word + '!'\n", "test": test, **fields}


def leetcode(**fields: Any) -> dict:
    code = "class Solution:\n    def firstTwo(self, nums: List[int], least: int) -> List[int]:\n"
    tests = [
        f"    assert candidate(least = {i}, nums = [5, 2, {i}]) == {[5, i] if i > 2 else [5, 2]}" for i in range(9)
    ]
    row = {"task_id": "first-two", "question_id": 12, "difficulty": "Easy", "entry_point": "Solution().firstTwo"}
    row |= {"problem_description": f"Return the two largest numbers in any order. {FILLER}", "starter_code": code}
    row["completion"] = f"{code}        return sorted(nums)[:-3:-1]"
    return {**row, "prompt": "from typing import *\n", "test": "\n".join(["def check(candidate):", *tests]), **fields}


def calls(*tests: str) -> list[tuple[str, str] | None]:
    """Arguments and expected values that MBPP's asserts about ``f`` give."""
    made = asserts.mbpp(mbpp(code="def f(a, b=0, c=0): pass", test_list=list(tests), challenge_test_list=[]))
    pairs = zip(made["input_output"]["inputs"], made["input_output"]["outputs"], strict=True)
    return [pair if pair[0] is not None else None for pair in pairs]


@pytest.mark.parametrize(
    ("test", "pair"),
    [
        ("assert f((1, 2), 'é') == [(3,)]", ('[1, 2]\n"é"', "[[3]]")),
        ("assert f({1: -2.5})", ('{"1": -2.5}', "true")),
        ("assert not f(None), 'why'", ("null", "false")),
        ("assert f(1) is True", ("1", "true")),
        ("assert 3 == f(1)", ("1", "3")),
        ("assert f(1, b=2) == 3", ("1\n2", "3")),
        ("assert f(1, c=2) == 3", None),
        ("assert f(1) == {1, 2}", None),
        ("assert f(1j) == 2", None),
        ("assert f(b'a') == 2", None),
        ("assert f(1) == {'1': 2}", None),
        ("assert f(1) == {(1, 2): 2}", None),
        ("assert f(x) == 2", None),
        ("assert f(*[1]) == 2", None),
        ("assert f(1) != 2", None),
        ("assert set(f(1)) == set([2])", None),
        ("assert f(1) == f(2)", None),
    ],
)
def test_an_assert_is_a_test_if_json_can_say_it(test: str, pair: tuple[str, str] | None) -> None:
    assert calls(test) == [pair]


@pytest.mark.parametrize(
    ("test", "checker"),
    [
        ("assert abs(f(1) - 0.5) < 1e-3", "float 0.001"),
        ("assert math.isclose(f(1), 0.5, rel_tol=0.01)", "float 0.01"),
        ("assert isclose(f(1), 2)", "float 1e-09"),
        ("assert f(1) == 0.5", "float"),
        ("assert f(1) == '0.5'", None),
    ],
)
def test_floats_are_compared_within_a_tolerance(test: str, checker: str | None) -> None:
    made = asserts.mbpp(mbpp(code="def f(a): pass", test_list=[test], challenge_test_list=[]))
    assert made["input_output"]["checker"] == checker and made["left_out"] is None


def test_the_statement_of_mbpp_shows_the_signature_in_the_form_that_programs_get() -> None:
    made = asserts.mbpp(mbpp(test_list=["assert set(widest([(1, 2)])) == {1}", *mbpp()["test_list"]]))
    assert made["question"].startswith(TASK.strip())
    assert made["question"].endswith("\nassert widest([[1, 4], [2, 3]]) == 3\nassert widest([[0, 9]], 2) == 9")
    assert made["starter_code"] == "def widest(pairs, least=0):" and made["id"] == "mbpp-7"


def test_problems_of_each_layout_are_imported_with_generated_tests(tmp_path: Path, sandbox: SharedExecutor) -> None:
    sanitized = {**mbpp(prompt=TASK, test_imports=["import math"]), "task_id": 8}
    (tmp_path / "in.json").write_text(json.dumps([{k: v for k, v in sanitized.items() if k != "text"}], indent=1))
    ((record,), counts) = imported("mbpp", tmp_path / "in.json")
    tests = TestCases.parse(record["test_cases"])
    generated = [given for given, is_made in zip(tests.inputs_K, record["generated"], strict=True) if is_made]
    assert len(tests) == 20 and 12 < len(generated) == sum(record["generated"]) < 20
    assert counts["tests generated"] == len(generated) and counts[VERIFIED] == 1
    pairs = [json.loads(text.split("\n")[0]) for text in tests.inputs_K]
    assert all(a <= b for listed in pairs for a, b in listed), "what holds for all pairs is kept"

    wrong = RIGHT.replace(">=", ">").replace("max", "min")
    assert [result.solved for result in sandbox.judge((RIGHT, tests), (wrong, tests))] == [True, False]
    before = [(tmp_path / f"out{end}.jsonl").read_bytes() for end in ("", ".generated")]
    assert imported("mbpp", tmp_path / "in.json")[0] == [record]
    assert [(tmp_path / f"out{end}.jsonl").read_bytes() for end in ("", ".generated")] == before


def test_an_infra_failure_while_tests_are_generated_is_told_and_retried(
    tmp_path: Path, sandbox: SharedExecutor, capsys, monkeypatch
) -> None:
    source, run = write_rows(tmp_path / "in.jsonl", [mbpp()]), ExecutionService.run

    async def lost(self: ExecutionService, code: str | None, tests: TestCases) -> ExecutionResult:
        return ExecutionResult.infra(len(tests), "worker lost")

    monkeypatch.setattr(ExecutionService, "run", lost)
    imported("mbpp", source, "--generate", 9, code=3)
    assert "1 of 1 problems" in one_complaint(capsys)
    monkeypatch.setattr(ExecutionService, "run", run)
    assert imported("mbpp", source, "--generate", 9)[1][VERIFIED] == 1


def test_stdin_problems_get_no_generated_tests() -> None:
    assert generated_tests.asked(TestCases(("[1]",), ("1",)), {}, 24, random.Random(0)) is None
    assert generated_tests.asked(TestCases(("[1]",), ("1",), "f"), {"fn_name": "f"}, 24, random.Random(0)) is not None


def test_evalplus_inputs_get_the_outputs_of_the_canonical_solution(tmp_path: Path, sandbox: SharedExecutor) -> None:
    texts = [["a"], ["bc"], ["def"], ["g" * 500], [7]]
    plus = humaneval(base_input=texts[:2], plus_input=[*texts[2:], *[["h" * i] for i in range(4, 12)]], atol=0)
    del plus["test"]
    ((record,), _) = imported("humaneval", write_rows(tmp_path / "HumanEvalPlus.jsonl", [plus]), "--generate", 13)
    tests = TestCases.parse(record["test_cases"])
    told = dict(zip(tests.inputs_K, tests.outputs_K, strict=True))
    assert told['"a"'] == '"a!"' and told['"def"'] == '"def!"'
    assert "7" not in told and '"' + "g" * 500 + '"' not in told, "no result of a usual type, and a long one"
    flags = dict(zip(tests.inputs_K, record["generated"], strict=True))
    assert (flags['"a"'], flags['"def"']) == (False, True)


ASSERTION = """
import numpy as np

def assertion(out, exp, atol):
    assert out == exp or np.allclose(out, exp, atol=atol)

"""
CHECKED = """
inputs = {inputs}
results = {results}
for i, (inp, exp) in enumerate(zip(inputs, results)):
    {checked}
"""
"""How EvalPlus writes the tests of its sets on the hub."""


def test_rows_of_evalplus_on_the_hub_have_the_inputs_of_their_tests(tmp_path: Path, sandbox: SharedExecutor) -> None:
    words = [["h" * i] for i in range(12)]
    results = [f"{word}!" for (word,) in words]
    body = CHECKED.format(inputs=words, results=results, checked="assertion(candidate(*inp), exp, 0.01)")
    test = f"{ASSERTION}def check(candidate):{textwrap.indent(body, '    ')}"
    source = write_rows(tmp_path / "hub.jsonl", [humaneval(test=test)])
    ((record,), _) = imported("humaneval", source, "--generate", 14)
    tests = TestCases.parse(record["test_cases"])
    told = zip(tests.inputs_K, tests.outputs_K, record["generated"], strict=True)
    given = {text: output for text, output, is_generated in told if not is_generated}
    assert len(given) > 4 and given.items() <= {(f'"{word}"', f'"{word}!"') for (word,) in words}
    assert tests.checker == "float 0.01"

    pairs = [[[[1, 4 + i]], 2] for i in range(9)]
    plain = {"inputs": f"[{str(pairs)[1:-1]}, [[inf], 2]]", "results": []}
    checked = CHECKED.format(checked="assertion(widest(*inp), ref_func(*inp), 0)", **plain)
    made = asserts.mbpp(mbpp(test=f"{ASSERTION}from math import inf\n{checked}"))["input_output"]
    assert len(made["inputs"]) == 4 and made[asserts.UNANSWERED] == [[f"[[1, {4 + i}]]\n2", False] for i in range(9)], (
        "no infinity, which JSON does not have"
    )
    other = CHECKED.format(checked="assert near(widest(*inp), inp)", **plain)
    assert asserts.mbpp(mbpp(test=ASSERTION + other))["input_output"][asserts.UNANSWERED] == []


def test_mbpp_of_evalplus_has_inputs_and_asserts_in_its_prompt(tmp_path: Path, sandbox: SharedExecutor) -> None:
    inputs = [[[[1, 4 + i]], 2] for i in range(9)]
    fields = {"task_id": "Mbpp/9", "entry_point": "widest", "canonical_solution": RIGHT, "atol": 0}
    row = {**fields, "prompt": f"'''\n{TASK}\n'''\n", "base_input": inputs[:3], "plus_input": inputs[3:]}
    shown = {**row, "task_id": "Mbpp/8", "prompt": f'"""\n{TASK}\nassert widest([(1, 9)]) == 8\n"""\n'}
    as_set = {**row, "task_id": "Mbpp/7", "prompt": f'"""\n{TASK}\nassert set(widest([(1, 9)])) == set([8])\n"""\n'}
    source = write_rows(tmp_path / "MbppPlus.jsonl", [row, shown, as_set])
    records, counts = imported("mbpp", source, "--generate", 9)
    name = "\n\nYour function must be named `widest`."
    shown_tests = f"{name} It should pass these tests:\nassert widest([[1, 9]]) == 8"
    assert [record["question"] for record in records] == [TASK.strip() + name, TASK.strip() + shown_tests]
    assert [record["generated"].count(False) for record in records] == [3, 4]
    assert counts[f"dropped: {asserts.NO_TEST}"] == 1


def test_near_duplicates_are_found_by_tests_that_are_not_generated(tmp_path: Path, sandbox: SharedExecutor) -> None:
    """Whether an earlier run generated some or not."""
    shown = "".join(f"assert widest([({n}, {3 * n})]) == {2 * n}\n" for n in range(5, 8))
    plus = {"task_id": 8, "prompt": f'"""\n{TASK}\n{shown}"""\n', "canonical_solution": RIGHT}
    plus |= {"base_input": [[[[1, n]]] for n in range(2, 11)], "entry_point": "widest"}
    kept = mbpp(task_id=9, test_list=[f"assert widest([(1, {n})]) == {n - 1}" for n in (40, 50)])
    source = write_rows(tmp_path / "in.jsonl", [mbpp(), plus, kept])
    records, _ = imported("mbpp", source, "--generate", 14)
    assert len(records) == 3 and all(True in record["generated"] for record in records)
    others = {f"[[0, {n}]]": str(n) for n in range(100, 116)}
    twins = []
    for own in (
        {"[[1, 4], [2, 3]]": "3", "[[0, 9]]\n2": "9", "[[3, 3]]\n1": "1"},
        {f"[[{n}, {3 * n}]]": str(2 * n) for n in range(5, 8)},
    ):
        tests = {"fn_name": "f", "inputs": [*own, *others], "outputs": [*own.values(), *others.values()]}
        twins.append({"id": len(twins), "question": "Unlike.", "input_output": tests})
    flags = ("--near_duplicates", write_rows(tmp_path / "test.jsonl", twins))
    for name in ("out.jsonl", "out.jsonl.manifest.json"):
        (tmp_path / name).unlink()
    assert [record["id"] for record in imported("mbpp", source, "--generate", 14, *flags)[0]] == ["mbpp-9"]
    (tmp_path / "prepared").mkdir()
    source = write_rows(tmp_path / "prepared" / "in.jsonl", [records[0], records[2]])
    assert [record["id"] for record in imported("taco", source, *flags)[0]] == ["mbpp-9"]


def test_leetcode_has_keyword_arguments_in_order_and_any_order_of_results(
    tmp_path: Path, sandbox: SharedExecutor
) -> None:
    ((record,), counts) = imported("leetcode", write_rows(tmp_path / "in.jsonl", [leetcode()]))
    tests = TestCases.parse(record["test_cases"])
    assert (tests.fn_name, tests.checker, tests.inputs_K[0]) == ("firstTwo", "unordered", "[5, 2, 0]\n0")
    assert record["difficulty"] == "Easy" and "generated" not in record and counts["tests generated"] == 0


def test_what_cannot_be_a_test_is_counted_and_why_a_problem_goes(tmp_path: Path, sandbox: SharedExecutor) -> None:
    other = humaneval(
        "assert candidate('cabbac') == 'cabbac!'", "assert candidate({1}) == 'a!'", "assert len(candidate('a')) == 2"
    )
    rows = [other, humaneval("assert candidate({1}) == 1", task_id="HumanEval/4")]
    ((record,), counts) = imported("humaneval", write_rows(tmp_path / "in.jsonl", rows), "--generate", 9)
    assert counts["tests left out: cut, unreadable, or without an output"] == 2
    assert counts[f"dropped: {asserts.NO_TEST}"] == 1 and record["id"] == "humaneval-3"


def test_a_problem_with_few_tests_is_dropped_if_none_are_generated(
    tmp_path: Path, sandbox: SharedExecutor, capsys
) -> None:
    imported("humaneval", write_rows(tmp_path / "in.jsonl", [humaneval()]), "--generate", 0, code=2)
    assert "1 x dropped: fewer than 8 well-formed tests" in one_complaint(capsys)


@pytest.mark.parametrize(
    ("name", "row", "id_"),
    [
        ("mbpp", mbpp(task_id=0), "mbpp-0"),
        ("mbpp", mbpp(task_id="Mbpp/2"), "mbpp-2"),
        ("humaneval", humaneval(task_id="HumanEval/0"), "humaneval-0"),
        ("humaneval", humaneval(task_id="HumanEval_0"), "humaneval-HumanEval_0"),
        ("leetcode", leetcode(), "leetcode-first-two"),
        ("mbpp", mbpp(task_id="A/1"), "mbpp-A/1"),
        ("humaneval", humaneval(task_id="HumanEval/B/1"), "humaneval-B/1"),
    ],
)
def test_ids_are_those_of_the_tasks_without_the_name_of_their_source(name: Name, row: dict, id_: str) -> None:
    assert FORMATS[name].convert(row)["id"] == id_


@pytest.mark.parametrize(
    ("name", "row", "complaint"),
    [
        ("mbpp", mbpp(code=None), "field 'code' must be a text"),
        ("mbpp", mbpp(text=None), "field 'prompt' or 'text' must be a text"),
        ("mbpp", mbpp(task_id=None), "missing field 'task_id'"),
        ("mbpp", mbpp(task_id=""), "missing field 'task_id'"),
        ("leetcode", leetcode(task_id=["a"]), "field 'task_id' must be a text or a whole number"),
        ("humaneval", humaneval(test="check("), "field 'test' must define 'check(candidate)'"),
        ("humaneval", humaneval(base_input=["a"]), "field 'base_input' must be a list, of lists"),
        ("humaneval", humaneval(atol="no"), "field 'atol' must be a number below 1"),
        ("mbpp", mbpp(test_list=7), "field 'test_list' must be a list, of texts"),
        ("leetcode", leetcode(completion=3), "field 'completion' must be a text"),
        ("leetcode", leetcode(prompt={"a": 1}), "field 'prompt' must be a text"),
        ("mbpp", mbpp(test_setup_code=["import math"]), "field 'test_setup_code' must be a text"),
        ("mbpp", mbpp(test_list=[], challenge_test_list=[], entry_point=["f"]), "field 'entry_point' must be a text"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused(name: Name, row: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        FORMATS[name].convert(row)


ORIGINALS = [[[1, 2, 5], 3, "abab"], [[2, 7], 2, "ba"], [[3, 4, 8, 9], 4, "bbb"]]


def test_changed_inputs_keep_what_holds_for_all_originals() -> None:
    made = generated_tests.mutants(ORIGINALS, 40, random.Random(1))
    assert len(made) == 40 == len({json.dumps(arguments) for arguments in made})
    for numbers, count, letters in made:
        assert count == len(numbers) > 0 and numbers == sorted(set(numbers)) and min(numbers) > 0
        assert set(letters) <= set("ab") and 0 < len(letters) <= 10
    assert made == generated_tests.mutants(ORIGINALS, 40, random.Random(1))
    assert made != generated_tests.mutants(ORIGINALS, 40, random.Random(2))


@pytest.mark.parametrize(
    ("outputs", "kept"),
    [
        ((["1", "2"], ["1", "2"]), True),
        ((["1", "2"], ["1", "3"]), False),  # they do not agree
        ((["1", "2"], ["5", "3"]), True),  # the second is wrong, and has no say
        ((["1", '"2"'], ["1", '"2"']), False),  # another type than the data set's
        ((["1", '{"<set>": [1]}'],), False),
        ((["1", "9" * 400 + "0"],), False),
    ],
)
def test_a_generated_test_is_kept_if_right_references_agree(outputs: tuple[list[str], ...], kept: bool) -> None:
    known, row_tests = TestCases(("4",), ("1",), fn_name="f"), {"inputs": ["4"], "outputs": ["1"]}
    asked = generated_tests.Asked(known.with_pairs(["4", "5"], ["1", "null"]), 1, (True,))
    results = [
        ExecutionResult(
            (Verdict.PASSED if first == "1" else Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER), (first, last), ("", "")
        )
        for first, last in outputs
    ]
    made = generated_tests.answered(asked, row_tests, results, 24)
    assert made["generated"] == ([False, True] if kept else [False])
    assert made["inputs"] == (["4", "5"] if kept else ["4"])


def test_images_and_public_tests_have_flags(tmp_path: Path, service: FakeService, capsys) -> None:
    source = write_rows(tmp_path / "in.jsonl", [raw(question=2 * FILLER + "![](x.png)", solutions=["right"])])
    ((record,), _) = imported("taco", source, "--allow_images", "--public_tests", 2)
    assert len(TestCases.parse(record["public_test_cases"])) == 2
    assert run_cobalt("data", "import", "taco", source, "-o", tmp_path / "x.jsonl", "--public_tests", 8) == 2
    assert "--min_tests 8: must be greater than or equal to 9" in one_complaint(capsys)
    inputs = [f"{10 ** (i % 40)}\n" for i in range(40)]
    (tmp_path / "many").mkdir()
    many = raw(solutions=["right"], input_output=json.dumps({"inputs": inputs, "outputs": ["1"] * 40}))
    ((record,), _) = imported(
        "taco", write_rows(tmp_path / "many" / "in.jsonl", [many]), "--public_tests", 20, "--min_tests", 21
    )
    public, hidden = (TestCases.parse(record[f"{kind}_test_cases"]) for kind in ("public", "hidden"))
    assert [public.inputs_K, hidden.inputs_K] == [tuple(inputs[:20]), tuple(inputs[25:])]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_file(), reason="the shared problems are not here")
def test_shared_problems_are_imported(tmp_path: Path) -> None:
    with tarfile.open(SHARED) as archive:
        member = archive.extractfile("eval_mbpp.jsonl")
        assert member is not None
        rows = [json.loads(line) for line in member.read().splitlines()[:40]]
    records, counts = imported("taco", write_rows(tmp_path / "in.jsonl", rows), "--min_alphanumeric", 40)
    assert counts[VERIFIED] == len(rows) == len(records)
    flags = {row["id"]: json.loads(row["input_output"])["generated"] for row in rows}
    assert all(sorted(record["generated"]) == sorted(flags[record["id"]]) for record in records)
    assert read_rows(tmp_path / "out.jsonl") == records
