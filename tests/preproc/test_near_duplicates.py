"""Near duplicates of test problems: what each rule finds, and what is only alike."""

import json

import pytest

from cobalt.errors import InputError
from cobalt.preproc.near_duplicates import KnownProblems, normalised
from cobalt.records import TestCases, write_jsonl

TEXT = "Write a function that returns the widest gap between neighbours of a sorted list."
PROGRAM = """
def widest_gap(values):
    values = sorted(values)
    gaps = [after - before for before, after in zip(values, values[1:])]
    return max(gaps, default=0)
"""
CALLS = [[[1, 4, 9]], [[2]], [[7, 3]], [[0, 0, 5, 6]], [[8, 1]]]
RESULTS = [5, 0, 4, 5, 7]


def row(id_=0, question=TEXT, inputs=CALLS, outputs=RESULTS, fn_name="widest_gap", solutions=(PROGRAM,)):
    tests = {"fn_name": fn_name, "inputs": inputs, "outputs": outputs}
    return {"id": id_, "question": question, "input_output": json.dumps(tests), "solutions": json.dumps(solutions)}


OTHER = {"question": "Do it.", "inputs": [[[n]] for n in range(5)], "fn_name": "f", "solutions": ()}
"""Of a row that has nothing in common with ``row()``."""


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Beside the problem there are others of the same wording."""
    path = tmp_path_factory.mktemp("known") / "test.jsonl"
    wording = "Write a function that returns the {} of a list."
    others = [
        row(f"other {n}", wording.format(name), [[[n, k]] for k in range(5)], [n] * 5, name, ())
        for n, name in enumerate(["sum", "least", "length", "middle", "first", "last"])
    ]
    write_jsonl(path, [*others, row("x")])
    return KnownProblems([path])


RENAMED = """
from typing import List

def f(numbers: List[int]) -> int:
    "The answer."
    numbers = sorted(numbers)
    all_of = [b - a for a, b in zip(numbers, numbers[1:])]  # neighbours
    return max(all_of, default=0)
"""


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"question": f"Hello! {TEXT.upper()}"}, "statement"),
        ({"question": "Do it.", "inputs": [*CALLS[:3], [[1]], [[3]]], "fn_name": "f"}, "tests"),
        ({**OTHER, "solutions": ("import sys", RENAMED)}, "program"),
        ({**OTHER, "question": "Find the widest gap between neighbours of a sorted array."}, "words"),
        (
            {
                **OTHER,
                "question": "Sort them and find the widest gap between neighbours, if there are two.",
                "fn_name": "widestGap",
            },
            "function name",
        ),
    ],
)
def test_each_rule_finds_a_problem_in_other_words(known, changed, rule):
    found = known.match(row(**changed))
    assert (found.test_file, found.test_id, found.rule) == ("test.jsonl", "x", rule)


@pytest.mark.parametrize(
    "changed",
    [
        OTHER,
        {**OTHER, "fn_name": "widest_gap"},
        {**OTHER, "question": "Sort them and find the widest gap between neighbours, if there are two."},
        {**OTHER, "question": "Write a function that returns the product of a list."},
        {**OTHER, "inputs": CALLS, "outputs": [*RESULTS[:2], 1, 2, 3]},
        {**OTHER, "solutions": [PROGRAM.replace("- before", "+ before")]},
    ],
    ids=["nothing", "name alone", "some words", "the wording of many", "two of five tests", "another program"],
)
def test_what_is_only_alike_stays(known, changed):
    assert known.match(row(**changed)) is None


def test_copies_of_a_test_set_make_no_phrases(tmp_path):
    """As an evaluation set beside its perturbed versions."""
    paths = [tmp_path / f"{n}.jsonl" for n in range(5)]
    for path in paths:
        write_jsonl(path, [row("x")])
    reworded = {"question": "Find the widest gap between neighbours of a sorted array."}
    assert KnownProblems(paths).match(row(**OTHER | reworded)).rule == "words"


def test_prepared_problems_are_compared_with_raw_rows(tmp_path):
    tests = TestCases(tuple(f"{n} 1\n" for n in range(8)), tuple(f"{n + 1}\n" for n in range(8)))
    parts = {
        "public_test_cases": tests.select(range(2)).to_json(),
        "hidden_test_cases": tests.select(range(2, 8)).to_json(),
    }
    write_jsonl(
        tmp_path / "a.jsonl", [{"id": 1, "question": "Add.", "instruction": "", "test_cases": tests.to_json(), **parts}]
    )
    raw = {"inputs": [f"{n} 1" for n in range(8)], "outputs": [f"{n + 1}" for n in range(8)]}
    assert KnownProblems([tmp_path / "a.jsonl"]).match({"question": "Sum.", "input_output": raw}).rule == "tests"
    for broken in ({"question": 5}, {"question": "", "input_output": {**raw, "fn_name": "f"}, "starter_code": 5}):
        write_jsonl(tmp_path / "b.jsonl", [{"id": 1, **broken}])
        with pytest.raises(InputError, match=rf"b.jsonl: line 1: field '{list(broken)[-1]}' must be a text"):
            KnownProblems([tmp_path / "b.jsonl"])


def test_programs_that_call_other_functions_of_modules_differ():
    program = "from math import gcd\ndef f(a, b):\n    return [gcd(x, y) for x in a for y in b if x > y > 0]"
    assert normalised(program) != normalised(program.replace("gcd", "lcm"))
    assert normalised(program) == normalised(program.replace("x", "first"))
    assert normalised("def f(a):\n    return len(a)") is None, "solves many problems"
    assert normalised("print 'Python 2'") is None
