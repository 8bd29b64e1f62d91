"""The output checkers, case by case, and the comparison of function results."""

import pytest

from cobalt.sandbox.checkers import checker_of, usable_tests

TEXTS = {  # checkers: an output, what is expected, whether each of them takes it
    ("exact", "lcb"): [
        ("1 2\n", "1 2", True, True),
        ("", "\n", True, True),
        ("1 \n2", "1\n2", False, True),
        ("1\r\n2\r\n", "1\n2", False, True),
        ("1  2", "1 2", False, True),
        ("12", "1 2", False, False),
        ("1.0", "1", False, True),
        ("0.50", "0.5", False, True),
        ("001", "1", False, True),
        ("+1", "1", False, True),
        ("1_0", "10", False, True),
        ("1\n\n2", "1\n2", False, False),
        ("2\n1", "1\n2", False, False),
        ("1 2", "1", False, False),
        ("0.3333333", "0.33333333", False, False),
        ("100000000000000000001", "100000000000000000000", False, False),
        ("Yes", "YES", False, False),
        ("x 1", "x 1.0", False, False),
        ("nan", "nan", True, True),
        ("1\n" * 1000000, "1", False, False),
        ("1 " * 1000000, "1", False, False),
        ("1e999999999", "1", False, False),
    ],
    ("unordered",): [
        ("b\na", "a\nb", True),
        ("a \nb\r\n", "b\na", True),
        ("a\na\nb", "a\nb\nb", False),
        ("a", "a\na", False),
        ("1 2", "2 1", False),
        ("x\n" * 1000000, "x", False),
    ],
    ("float", "float 0.1"): [
        ("0.333333", "0.3333333333", True, True),
        ("0.33", "0.3333333333", False, True),
        ("1000000.5", "1000000", True, True),
        ("1e-9", "0", True, True),
        ("-0.0", "0", True, True),
        ("YES 1.0", "YES 1", True, True),
        ("YES 1.0", "NO 1", False, False),
        ("1 2\n3", "1 2 3", True, True),
        ("1 2", "1 2 3", False, False),
        ("1_0", "10", False, False),
        ("nan", "nan", True, True),
        ("nan", "1", False, False),
        ("inf", "1e400", False, False),
        ("1e400", "1e400", True, True),
        ("9" * 1000000, "9", False, False),
        ("1 " * 1000000, "1", False, False),
        ("-1", "1" + "0" * 400, False, False),
        ("-1", "1e400", False, False),
        ("1e400", "1", False, False),
        ("1.0e400", "1E+400", True, True),
        ("1", "1e" + "9" * 30, False, False),
        ("0." + "3" * 500, "0.33333333", True, True),
        ("1", "9" * 1000000 + "x", False, False),
        ("9" * 1000000 + "x", "1", False, False),
    ],
    ("float 0",): [
        ("1.0", "1", True),
        ("1e2", "100", True),
        ("0.1", "0.10000000000000000001", False),
        ("100000000000000000001", "100000000000000000000", False),
    ],
}
VALUES = {  # the same of what functions return
    ("exact",): [
        ("3", "3", True),
        ("3", "[3]", False),
        ("[3]", "3", False),
        ("[1, 2]", "[[1,2]]", False),
        ("[1, 2]", "[2, 1]", False),
        ('"a"', "a", True),
        ("", "0", False),
        ("not json", "not json", False),
        ("[" * 100000, "1", False),
        ("[" + "{}, " * 100000 + "{}]", "1", False),
        ("9" * 5000, "9", False),
        ("9" * 5000, "9" * 5000, True),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("9" * 5000, "1e308", False),
        ('{"<set>": [1]}', "[1]", False),
        ('{"<set>": [1]}', '{"<set>": [1]}', False),
        ('{"<Decimal>": 0.1}', "0.1", False),
        ("1.0", "1", True),
        ("null", "null", True),
        ("true", "1", False),
        ("[true]", "[1]", False),
        ('{"a": false}', '{"a": 0}', False),
        ("true", "true", True),
        ("NaN", "NaN", True),
        ("[NaN, [NaN]]", "[NaN, [NaN]]", True),
        ("NaN", "1", False),
        ("[1, 2]", "[1]", False),
        ('{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}', True),
        ('{"a": 1}', '{"b": 1}', False),
        ("[]", "{}", False),
        ("[" * 900 + "1" + "]" * 900, "[" * 900 + "1" + "]" * 900, True),
    ],
    ("unordered",): [
        ("[2, 1]", "[1, 2]", True),
        ("[1, 1, 2]", "[1, 2, 2]", False),
        ("[[1, 2], 3]", "[1, [2, 3]]", False),
        ('[{"a": [2, 1.0]}, "x"]', '["x", {"a": [1, 2]}]', True),
        ("[true]", "[1]", False),
        ('{"a": 1, "b": 2}', '{"a": 2, "b": 1}', False),
        ('{"b": 1, "a": 2}', '{"a": 2, "b": 1}', True),
        ('["1"]', "[1]", False),
        ('["1,2"]', "[1, 2]", False),
        ('[{"<set>": [2, 1]}, NaN]', "[NaN, [1, 2]]", True),
        ('[{"<Decimal>": 0.1}]', "[0.1]", False),
        ("not json", "not json", False),
        ("[" * 900 + "1" + "]" * 900, "[" * 900 + "1.0" + "]" * 900, True),
        ("9" * 5000, "9" * 5000, True),
        ('{"<set>": 1}', "[1]", False),
        ("[[1, 2, 3], [3, 2, 1]]", "[[3, 2, 1], [1, 2, 3]]", True),
        ("[[1, 2, 3], [1, 2, 3]]", "[[3, 2, 1], [1, 2, 3]]", False),
        ("[[1, 2], [1, 2], [3]]", "[[2, 1], [1, 2], [3]]", False),
        ('[["Q.", ".Q"], [".Q", "Q."]]', '[[".Q", "Q."], ["Q.", ".Q"]]', True),
        ("[[1, 2], [2, 1]]", "[[1, 2], [1, 2]]", True),
        ('[{"a": 1, "b": 2}, [2, 1], [1, 2]]', '[[1, 2], [2, 1], {"b": 2, "a": 1}]', True),
        ('{"<set>": [[2, 1], [1, 2]]}', "[[1, 2], [2, 1]]", True),
    ],
    ("float",): [
        ("true", "1.0", False),
        ("[[0.30000000000000004]]", "[[0.3]]", True),
        ('{"a": [0.31]}', '{"a": [0.3]}', False),
        ("[2, 1]", "[1, 2]", False),
        ('{"<Decimal>": 0.3}', "0.3", True),
        ('{"<set>": [0.3]}', "[0.3]", False),
        ('{"<Decimal>": "x"}', "0.3", False),
        ('"0.30000001"', '"0.3"', False),
        ("null", "0.0", False),
        ("NaN", "NaN", True),
        ("NaN", "1", False),
        ("Infinity", "1e308", False),
        ("Infinity", "Infinity", True),
        ("9" * 400, "1.0", False),
        ("9" * 5000, "1.0", False),
    ],
    ("float 0.1",): [
        ('{"a": [0.31]}', '{"a": [0.3]}', True),
    ],
    ("float 0",): [
        ("100000000000000000001", "100000000000000000000", False),
        ('{"<Decimal>": 0.3}', "0.3", False),
    ],
    ("lcb",): [
        ("[1.0]", "[1]", True),
    ],
}
CASES = [
    (is_call, name, output, expected, same)
    for is_call, table in enumerate((TEXTS, VALUES))
    for names, rows in table.items()
    for output, expected, *answers in rows
    for name, same in zip(names, answers, strict=True)
]


@pytest.mark.parametrize(("is_call", "name", "output", "expected", "same"), CASES, ids=range(len(CASES)))
def test_checkers(is_call, name, output, expected, same):
    assert checker_of(name, bool(is_call))(output, expected) is same


@pytest.mark.parametrize("name", ["fuzzy", "float x", "float -1", "float 2", "float inf", "exact 1", ""])
def test_a_checker_that_does_not_exist_is_refused(name):
    with pytest.raises(ValueError, match="checker must be one of exact, lcb, unordered, float"):
        checker_of(name)


def test_a_long_integer_may_be_an_argument():
    long = "9" * 5000
    assert len(usable_tests({"inputs": [f"[{long}]"], "outputs": [long], "fn_name": "f", "checker": "float"})) == 1
