"""The two output checkers, case by case, and the comparison of function results."""

import pytest

from cobalt.sandbox.checkers import exact, lcb, same_value

TABLE = [  # output, expected, exact, lcb
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
]


@pytest.mark.parametrize(("output", "expected", "is_exact", "is_lcb"), TABLE, ids=range(len(TABLE)))
def test_checker_table(output, expected, is_exact, is_lcb):
    assert (exact(output, expected), lcb(output, expected)) == (is_exact, is_lcb)


VALUES = [
    ("3", "3", True),
    ("3", "[3]", True),
    ("[3]", "3", False),
    ("[1, 2]", "[[1,2]]", True),
    ("[1, 2]", "[2, 1]", False),
    ('"a"', "a", True),
    ("", "0", False),
    ("not json", "not json", False),
    ("[" * 100000, "1", False),
    ("[" + "{}, " * 100000 + "{}]", "1", False),
    ("9" * 5000, "9", False),
    ("1.0", "1", True),
    ("null", "null", True),
]


@pytest.mark.parametrize(("output", "expected", "same"), VALUES, ids=range(len(VALUES)))
def test_function_results(output, expected, same):
    assert same_value(output, expected) is same
