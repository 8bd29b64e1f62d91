"""Function-call problems: programs find what LiveCodeBench's, TACO's and APPS' graders give; results are values."""

import json
import os
from pathlib import Path

import pytest

from cobalt.sandbox import ExecutionResult

NAMES = """[
    bisect.bisect_left(a, 2), bisect_left(a, 2), random.randint(1, 1), randint(1, 1), gcd(4, 6), copy.copy(a),
    deepcopy(a), datetime.date(2020, 1, 2).day, statistics.mean(a), median(a), int(np.sum(a)), json.dumps(a),
    time.time() > 0, io.StringIO("x").read(), sys.maxsize > 1, fractions.Fraction(1, 2), Counter("aa")["a"],
    pow(2, 3, 5), str(List[int]), collections.deque(a)[0], string.digits, reduce(mul, a), nlargest(1, a),
]"""
ONES = "1" + "0" * 5000
CALLS = {  # arguments, body of f, expected, options, verdict of the only test
    "names": ("[1, 2, 3]", f"return {NAMES}", None, {}, "passed"),
    "depth": ("49000", "return 0 if a == 0 else 1 + f(a - 1)", "49000", {}, "passed"),
    "long integer": ("5000", "return 10 ** a", ONES, {}, "passed"),
    "another long integer": ("5000", "return 10 ** a + 1", ONES, {}, "wrong_answer"),
    "long argument": (ONES, "return a % 10", "0", {}, "passed"),
    "keys": ('{"2": 3, "-1": 4}', "return sum(k * v for k, v in a.items())", "2", {}, "passed"),
    "keys that are no integers": ('{"02": 3}', 'return a["02"]', "3", {}, "passed"),
    "int64": ("1", "return np.int64(a)", "1", {}, "passed"),
    "bool_": ("1", "return [np.bool_(a)]", "[true]", {}, "passed"),
    "array": ("1", "return [np.array([a, 2]), np.float32(.5)]", "[[1, 2], 0.5]", {}, "passed"),
    "numpy keys": ("1", "return Counter(np.array([a, a]))", '{"1": 2}', {}, "passed"),
    "fraction": ("1", "return fractions.Fraction(a, 2), fractions.Fraction(4, 2)", "[0.5, 2]", {}, "passed"),
    "third": ("1", "return fractions.Fraction(a, 3)", "0.3333333333333333", {}, "wrong_answer"),
    "third as float": ("1", "return [fractions.Fraction(a, 3)]", "[0.33333333]", {"checker": "float"}, "passed"),
    "decimal": ("1", "import decimal\n    return decimal.Decimal(a) / 2", "0.5", {}, "passed"),
    "large decimal": ("1", "import decimal\n    return decimal.Decimal('1E400')", "1" + "0" * 400, {}, "passed"),
    "other decimal": ("1", "import decimal\n    return decimal.Decimal(a) / 10", "0.1", {}, "wrong_answer"),
    "tuple": ("1", "return (a, (2, 3))", "[1, [2, 3]]", {}, "passed"),
    "set": ("1", "return {a, 2}", "[1, 2]", {}, "wrong_answer"),
    "set in any order": ("1", "return [{a, 2}, (3,)]", "[[3], [2, 1]]", {"checker": "unordered"}, "passed"),
    "lists in any order": ("1", "return [[a, 2], [3, 3]]", "[[3, 3], [2, 1]]", {"checker": "unordered"}, "passed"),
    "nested floats": ("0.1", 'return [{"x": a + 0.2}]', '[{"x": 0.3}]', {"checker": "float"}, "passed"),
    "nested floats as they are": ("0.1", 'return [{"x": a + 0.2}]', '[{"x": 0.3}]', {}, "wrong_answer"),
    "pretended set": ("1", 'return {"<set>": [a]}', "[1]", {"checker": "unordered"}, "runtime_error"),
    "text like a set": ("1", """return '{"<set>": [1]}'""", '"{\\"<set>\\": [1]}"', {}, "passed"),
}
FOUND = '[1, 1, 1, 1, 2, [1, 2, 3], [1, 2, 3], 2, 2, 2, 6, "[1, 2, 3]", true, "x", true, 0.5, 2, 3, "typing.List[int]"'
FOUND += ', 1, "0123456789", 6, [3]]'

CASES = Path(os.environ.get("COBALT_SAMPLE_DATA") or Path(__file__).parents[3] / "shared" / "data").parent / "cases"
CASE_OPTIONS = {"S6_call_float": {"checker": "float"}, "S8_inner_space": {"checker": "lcb"}}
CASE_NAMES = ["S1_newline", "S3_call_names", "S4_call_recursion", "S5_call_numpy", "S6_call_float", "S7_call_intkeys"]
CASE_NAMES += ["S8_inner_space", "S10_sortedcontainers"]


@pytest.fixture(scope="module")
def results(sandbox) -> dict[str, ExecutionResult]:
    """Of every call."""
    programs = []
    for argument, body, expected, options, _ in CALLS.values():
        tests = {"inputs": [argument], "outputs": [expected or FOUND], "fn_name": "f", **options}
        programs.append((f"def f(a):\n    {body}", tests))
    return dict(zip(CALLS, sandbox.run_many(programs), strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_calls_get_the_verdict_that_graders_give(name, results):
    pytest.importorskip("numpy")
    found = results[name]
    assert found.verdicts[0].value == CALLS[name][-1], (found.outputs, found.errors)


@pytest.fixture(scope="module")
def case_results(sandbox) -> dict[str, ExecutionResult]:
    """Of the cases outside the repository."""
    if not CASES.is_dir():
        pytest.skip(f"there is no {CASES}: it holds programs that other people's reports are about")
    programs = []
    for name in CASE_NAMES:
        tests = json.loads((CASES / f"{name}.tests.json").read_text())
        programs.append(((CASES / f"{name}.py").read_text(), {**tests, **CASE_OPTIONS.get(name, {})}))
    return dict(zip(CASE_NAMES, sandbox.run_many(programs), strict=True))


@pytest.mark.parametrize("name", CASE_NAMES)
def test_reported_programs_pass(name, case_results):
    if name == "S10_sortedcontainers":
        pytest.importorskip("sortedcontainers")
    assert case_results[name].solved, (case_results[name].outputs, case_results[name].errors)
