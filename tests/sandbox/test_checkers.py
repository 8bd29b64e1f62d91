"""The output checkers, case by case, and the comparison of function results."""

import pytest

from cobalt.sandbox.checkers import checker_of, exact, lcb, same_value, unordered, usable_tests

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


UNORDERED = [
    ("b\na", "a\nb", True),
    ("a \nb\r\n", "b\na", True),
    ("a\na\nb", "a\nb\nb", False),
    ("a", "a\na", False),
    ("1 2", "2 1", False),
    ("x\n" * 1000000, "x", False),
]


@pytest.mark.parametrize(("output", "expected", "same"), UNORDERED, ids=range(len(UNORDERED)))
def test_unordered_lines(output, expected, same):
    assert unordered(output, expected) is same


FLOATS = [  # output, expected, equal within a millionth, within a tenth
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
]


@pytest.mark.parametrize(("output", "expected", "millionth", "tenth"), FLOATS, ids=range(len(FLOATS)))
def test_float_tolerance(output, expected, millionth, tenth):
    assert (checker_of("float")(output, expected), checker_of("float 0.1")(output, expected)) == (millionth, tenth)


EXACT_FLOATS = [
    ("1.0", "1", True),
    ("1e2", "100", True),
    ("0.1", "0.10000000000000000001", False),
    ("100000000000000000001", "100000000000000000000", False),
]


@pytest.mark.parametrize(("output", "expected", "same"), EXACT_FLOATS)
def test_no_float_tolerance_is_exact(output, expected, same):
    assert checker_of("float 0")(output, expected) is same


@pytest.mark.parametrize("name", ["fuzzy", "float x", "float -1", "float 2", "float inf", "exact 1", ""])
def test_a_checker_that_does_not_exist_is_refused(name):
    with pytest.raises(ValueError, match="checker must be one of exact, lcb, unordered, float"):
        checker_of(name)


VALUES = [
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
]


@pytest.mark.parametrize(("output", "expected", "same"), VALUES, ids=range(len(VALUES)))
def test_function_results(output, expected, same):
    assert same_value(output, expected) is same


OTHER_VALUES = [  # checker, output, expected, equal
    ("unordered", "[2, 1]", "[1, 2]", True),
    ("unordered", "[1, 1, 2]", "[1, 2, 2]", False),
    ("unordered", "[[1, 2], 3]", "[1, [2, 3]]", False),
    ("unordered", '[{"a": [2, 1.0]}, "x"]', '["x", {"a": [1, 2]}]', True),
    ("unordered", "[true]", "[1]", False),
    ("float", "true", "1.0", False),
    ("unordered", '{"a": 1, "b": 2}', '{"a": 2, "b": 1}', False),
    ("unordered", '{"b": 1, "a": 2}', '{"a": 2, "b": 1}', True),
    ("unordered", '["1"]', "[1]", False),
    ("unordered", '["1,2"]', "[1, 2]", False),
    ("unordered", '[{"<set>": [2, 1]}, NaN]', "[NaN, [1, 2]]", True),
    ("unordered", '[{"<Decimal>": 0.1}]', "[0.1]", False),
    ("unordered", "not json", "not json", False),
    ("unordered", "[" * 900 + "1" + "]" * 900, "[" * 900 + "1.0" + "]" * 900, True),
    ("unordered", "9" * 5000, "9" * 5000, True),
    ("float", "[[0.30000000000000004]]", "[[0.3]]", True),
    ("float", '{"a": [0.31]}', '{"a": [0.3]}', False),
    ("float 0.1", '{"a": [0.31]}', '{"a": [0.3]}', True),
    ("float", "[2, 1]", "[1, 2]", False),
    ("float", '{"<Decimal>": 0.3}', "0.3", True),
    ("float", '{"<set>": [0.3]}', "[0.3]", False),
    ("float", '{"<Decimal>": "x"}', "0.3", False),
    ("unordered", '{"<set>": 1}', "[1]", False),
    ("float", '"0.30000001"', '"0.3"', False),
    ("float", "null", "0.0", False),
    ("float", "NaN", "NaN", True),
    ("float", "NaN", "1", False),
    ("float", "Infinity", "1e308", False),
    ("float", "Infinity", "Infinity", True),
    ("float", "9" * 400, "1.0", False),
    ("float", "9" * 5000, "1.0", False),
    ("float 0", "100000000000000000001", "100000000000000000000", False),
    ("float 0", '{"<Decimal>": 0.3}', "0.3", False),
    ("lcb", "[1.0]", "[1]", True),
]


@pytest.mark.parametrize(("name", "output", "expected", "same"), OTHER_VALUES, ids=range(len(OTHER_VALUES)))
def test_named_checkers_of_function_results(name, output, expected, same):
    assert checker_of(name, is_call=True)(output, expected) is same


def test_a_long_integer_may_be_an_argument():
    long = "9" * 5000
    assert len(usable_tests({"inputs": [f"[{long}]"], "outputs": [long], "fn_name": "f", "checker": "float"})) == 1
