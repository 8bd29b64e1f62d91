"""MBPP, HumanEval and LeetCodeDataset, and EvalPlus' versions: their asserts become tests of function calls. Pure.

Sources are parsed, never run. An assert becomes a test if it compares one call with a literal, and JSON has all values;
tuples become lists. Any other assert is a pair of nulls, which the preparation counts as an unusable test.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cobalt.records.jsonl import Record

SHOWN = 3  # asserts in a statement of MBPP, as in its usual prompt
DEFAULT_TOLERANCE = 1e-9  # of math.isclose
NO_TEST = "no assert that can be expressed as a function call with JSON values"
UNANSWERED = "unanswered"
"""Key of ``input_output``: inputs whose outputs the references have to tell, as [text, whether it is generated]."""
_ANY_ORDER = re.compile(r"\bin any order\b", re.IGNORECASE)
_TEXT_IN_JSON = re.compile(r'"(?:[^"\\]|\\.)*"')
_NO_LITERAL = (ValueError, TypeError, SyntaxError, KeyError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Call:
    """One test: the arguments and the expected value as JSON, and the assert as a statement shows it."""

    arguments: str
    expected: str
    shown: str
    tolerance: float


def mbpp(row: Record) -> Record:
    """MBPP, original, sanitized or of EvalPlus. The text does not tell the signature, so asserts are shown below it."""
    if "base_input" in row:
        question, *asserts = re.split(r"\n(?=assert\b)", text_of(row, "prompt").strip("\"' \n"))
        reference = text_of(row, "prompt") + text_of(row, "canonical_solution")
    else:
        question = text_of(row, "prompt", "text")
        setup = text_of(row, "test_setup_code", optional=True)
        reference = "\n".join([*_list(row, "test_imports", str), setup, text_of(row, "code")])
        asserts = _list(row, "test_list", str) + _list(row, "challenge_test_list", str)
        row = _with_inputs(row)
    found, functions = _asserts(_tree("\n".join(asserts))), _functions(reference)
    called = (_callee(node) for one in found for node in ast.walk(one) if _callee(node) in functions)
    name = next(called, None) or text_of(row, "entry_point", optional=True)
    calls = [_call(one, name, name, functions.get(name)) for one in found]
    question = f"{question.strip()}\n\nYour function must be named `{name}`."
    if shown := [f"\nassert {call.shown}" for call in calls[:SHOWN] if call]:
        question += " It should pass these tests:" + "".join(shown)
    return _raw("mbpp", row, question, name, reference, calls)


def humaneval(row: Record) -> Record:
    """HumanEval, original or of EvalPlus: the statement is the beginning of the program."""
    row, prompt, name = _with_inputs(row), text_of(row, "prompt"), text_of(row, "entry_point")
    reference = prompt + text_of(row, "canonical_solution")
    calls = [] if "base_input" in row and not row.get("test") else _calls_of_check(row, name, reference)
    return _raw("humaneval", row, f"Complete this Python function:\n\n{prompt}", name, reference, calls)


def leetcode(row: Record) -> Record:
    """LeetCodeDataset. Results that the statement takes in any order are compared so."""
    question, name = text_of(row, "problem_description"), text_of(row, "entry_point").split(".")[-1]
    reference = f"{text_of(row, 'prompt', optional=True)}\n\n{text_of(row, 'completion')}"
    raw = _raw("leetcode", row, question, name, reference, _calls_of_check(row, name, reference))
    if _ANY_ORDER.search(question):
        raw["input_output"]["checker"] = "unordered"
    return {**raw, "difficulty": row.get("difficulty"), "starter_code": row.get("starter_code") or ""}


def checker_for(outputs: Iterable[str], tolerance: float = 0.0) -> str | None:
    """The checker for these expected values. Floats are never compared exactly."""
    if tolerance:
        return f"float {tolerance!r}"
    return "float" if any("." in _TEXT_IN_JSON.sub("", text) for text in outputs) else None


def json_lines(arguments: Sequence[Any]) -> str:
    """Arguments as JSON, one on a line."""
    return "\n".join(json.dumps(argument, ensure_ascii=False) for argument in arguments)


def json_form(value: Any) -> Any:
    """The value as a program gets it from JSON, with lists for tuples. ``ValueError`` for what JSON cannot hold.

    >>> json_form((1, [("a", None)]))
    [1, [['a', None]]]
    """
    if isinstance(value, list | tuple):
        return [json_form(item) for item in value]
    if isinstance(value, dict):
        # texts that look like integers would come back as integers
        is_named = all(type(key) is str and not re.fullmatch(r"-?\d+", key) for key in value)
        if is_named or all(type(key) is int for key in value):
            return {key: json_form(item) for key, item in value.items()}
    elif value is None or type(value) in (bool, int, float, str):
        return value
    raise ValueError(f"JSON has no form for {type(value).__name__}")


def _call(found: ast.Assert, called: str, name: str, function: ast.FunctionDef | None) -> Call | None:
    """The test that an assert about the function ``name`` is, there ``called`` so; None if it cannot be one."""
    tolerance, value = 0.0, ast.Constant(True)
    try:
        match found.test:
            case ast.UnaryOp(ast.Not(), call):
                value = ast.Constant(False)
            case ast.Compare(
                ast.Call(ast.Name("abs") | ast.Attribute(attr="fabs"), [ast.BinOp(call, ast.Sub(), value)]),
                [ast.Lt() | ast.LtE()],
                [limit],
            ):
                tolerance = float(ast.literal_eval(limit))
            case ast.Call(ast.Name("isclose") | ast.Attribute(attr="isclose"), [call, value], keywords):
                limits = [ast.literal_eval(keyword.value) for keyword in keywords]
                tolerance = float(max(limits, default=DEFAULT_TOLERANCE))
            case ast.Compare(call, [ast.Eq() | ast.Is()], [value]):
                pass
            case call:
                pass
        if _callee(call) != called:
            call, value = value, call
        if not isinstance(call, ast.Call) or _callee(call) != called or tolerance >= 1:
            return None
        given = [ast.literal_eval(argument) for argument in call.args]
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        parameters = [one.arg for one in function.args.args if one.arg != "self"] if function else []
        order = parameters[len(given) : len(given) + len(named)]
        arguments = json_form([*given, *(named.pop(key) for key in order)])  # KeyError: a default in between
        expected = json_form(ast.literal_eval(value))
        shown = f"{name}({', '.join(map(repr, arguments))})"
        shown = f"abs({shown} - {expected!r}) < {tolerance!r}" if tolerance else f"{shown} == {expected!r}"
        return None if named else Call(json_lines(arguments), json_lines([expected]), shown, tolerance)
    except _NO_LITERAL:
        return None


def _calls_of_check(row: Record, name: str, reference: str) -> list[Call | None]:
    """The tests in ``check(candidate)``; asserts of constants say nothing."""
    check = _functions(text_of(row, "test")).get("check")
    if check is None or not check.args.args:
        raise ValueError("field 'test' must define 'check(candidate)'")
    function, candidate = _functions(reference).get(name), check.args.args[0].arg
    found = [one for one in _asserts(check) if not isinstance(one.test, ast.Constant)]
    return [_call(one, candidate, name, function) for one in found]


def _with_inputs(row: Record) -> Record:
    """EvalPlus' rows on the hub as those of its files, whose references tell the outputs.

    There ``test`` assigns ``inputs`` and calls ``assertion(output, expected, atol)`` for each.
    """
    written: list[ast.expr] = []
    limit = None
    for node in ast.walk(_tree(text_of(row, "test", optional=True))):
        match node:
            case ast.Assign([ast.Name("inputs")], ast.List(written)):
                pass
            case ast.Call(ast.Name("assertion"), [_, _, ast.Constant(limit)]):
                pass
    if "base_input" in row or not written or limit is None:
        return row
    inputs: list[Any] = []
    for arguments in written:
        with suppress(*_NO_LITERAL):
            inputs.append(ast.literal_eval(arguments))
    return {**row, "test": None, "base_input": inputs, "atol": limit}


def _raw(source: str, row: Record, question: str, name: str, reference: str, calls: list[Call | None]) -> Record:
    """A raw row of TACO with these tests. The inputs of EvalPlus have no outputs yet."""
    task = row.get("task_id")
    if task in (None, ""):
        raise ValueError("missing field 'task_id'")
    if not isinstance(task, str | int):
        raise ValueError("field 'task_id' must be a text or a whole number")
    usable = {call.arguments: call for call in calls if call}
    missing, outputs = [None] * calls.count(None), [call.expected for call in usable.values()]
    tests: Record = {"fn_name": name, "inputs": [*usable, *missing], "outputs": [*outputs, *missing]}
    tolerance = row.get("atol") or 0
    if not (isinstance(tolerance, int | float) and 0 <= tolerance < 1):
        raise ValueError("field 'atol' must be a number below 1")
    tests["checker"] = checker_for(outputs, max([tolerance, *(call.tolerance for call in usable.values())]))
    tests[UNANSWERED] = unanswered = []
    for field in ("base_input", "plus_input"):
        for arguments in _list(row, field, list):
            with suppress(ValueError, RecursionError):
                unanswered.append([json_lines(json_form(arguments)), field == "plus_input"])
    starter_code = ""
    if function := _functions(reference).get(name):
        returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
        starter_code = f"def {name}({ast.unparse(function.args)}){returns}:"
    left_out = None if usable or (unanswered and not calls) else NO_TEST
    fields = {"starter_code": starter_code, "difficulty": None, "left_out": left_out, "source": source}
    id_ = f"{source}-{re.sub(f'^{source}/', '', str(task), flags=re.IGNORECASE)}"
    return {"id": id_, "question": question, "input_output": tests, "solutions": [reference], **fields}


def _callee(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _tree(source: str) -> ast.AST:
    """An empty one for what is not Python 3: its problem has no test then, or no reference that passes."""
    try:
        return ast.parse(source)
    except _NO_LITERAL:
        return ast.Module([], [])


def _asserts(tree: ast.AST) -> list[ast.Assert]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]


def _functions(source: str) -> dict[str, ast.FunctionDef]:
    """Functions by name; of several with one name, the outermost."""
    nodes = [node for node in ast.walk(_tree(source)) if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in reversed(nodes)}


def _list(row: Record, field: str, kind: type) -> list[Any]:
    """Null and a missing field are an empty list."""
    value = row.get(field) or []
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise ValueError(f"field '{field}' must be a list, of {'lists' if kind is list else 'texts'}")
    return value


def text_of(row: Mapping[str, Any], *fields: str, optional: bool = False) -> str:
    """The first of the fields that is a text; with ``optional`` an empty one if all are null or missing."""
    found = next((row[field] for field in fields if isinstance(row.get(field), str)), None)
    if found is None and not (optional and all(row.get(field) is None for field in fields)):
        raise ValueError(f"field {' or '.join(map(repr, fields))} must be a text")
    return found or ""
