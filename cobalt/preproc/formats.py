"""Rows of other data sets as TACO's raw rows (docs/data.md). Pure: no execution, no files.

Each function takes a row as its source has it and raises ``ValueError``, which names the field, if it cannot be read.
A row that can be read but not used says why in ``left_out``. Rows without an id are known by their statement.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cobalt.completion import joined
from cobalt.preproc import asserts
from cobalt.preproc.asserts import text_of
from cobalt.prompts import COBALT, PROBLEM_MARKER
from cobalt.records.jsonl import Record, load_json
from cobalt.sandbox.tests import LIMITS

ID_LENGTH = 16
CALLED = ("functional", "function_call")
PYTHON_3 = 3  # of CodeContests' languages
PLATFORMS: dict[Any, str] = dict(
    enumerate(("unknown", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu"))
)
LEVELS = ("UNKNOWN", "EASY", "MEDIUM", "HARD", "HARDER", "HARDEST", "EXTERNAL", *"ABCDEFGHIJKLMNOPQRSTUV")
DIFFICULTIES: dict[Any, str] = dict(enumerate(LEVELS))
CODE_REQUEST = re.compile(r"\s*Write Python code to solve the problem\. Present the code in\s*```python.*\Z", re.DOTALL)
"""How Eurus' prompts end; our own instruction says it in our words."""
CHECKER = """\
import builtins, contextlib, io, json, sys

case = json.load(sys.stdin)
files = {{"input.txt": case["input"], "correct_output.txt": case["expected"], "solution_output.txt": case["output"]}}
opened = builtins.open


def open_text(file, mode="r", *arguments, **named):
    if str(file) not in files:
        return opened(file, mode, *arguments, **named)
    return io.BytesIO(files[str(file)].encode()) if "b" in mode else io.StringIO(files[str(file)])


builtins.open = io.open = open_text
sys.argv = ["checker.py", *files]
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
    exec(compile({source!r}, "checker.py", "exec"), {{"__name__": "__main__"}})
if not said.getvalue().split():
    raise SystemExit("the checker printed no score")
print("accepted" if said.getvalue().split() in (["1"], ["1.0"]) else "rejected")
"""
"""A checker of open-r1 as a checker program: it gets its three files' names, and prints 1 for a right output. One that
raises or prints nothing has not judged: the sandbox asks it about the expected output then (docs/sandbox.md)."""


def taco(row: Record) -> Record:
    question = row.get("question")
    return row if "id" in row or not isinstance(question, str) else {"id": _statement_id("taco", question), **row}


def deepcoder(row: Record) -> Record:
    """DeepCoder-Preview: ``problem, tests, solutions, starter_code, metadata``."""
    solutions = parsed(row, "solutions") if row.get("solutions") else []
    if not isinstance(solutions, list):
        raise ValueError("field 'solutions' must be a list of texts")
    copied = {name: row[name] for name in ("id", "difficulty", "starter_code") if row.get(name)}
    tests = _tests(row, "tests", row.get("metadata"))
    return _raw("deepcoder", text_of(row, "problem"), tests, solutions=solutions, **copied)


def codeforces(row: Record) -> Record:
    """open-r1/codeforces: the statement in parts, official tests, limits, generated checkers. It has no solutions."""
    parts = [text_of(row, "description")]
    for title, field in (("Input", "input_format"), ("Output", "output_format"), ("Note", "note")):
        if text := text_of(row, field, optional=True):
            parts.append(f"{title}\n{text}")
    for given, shown in zip(*_columns(row.get("examples"), "examples", "input", "output"), strict=True):
        if not isinstance(given, str) or not isinstance(shown, str):
            raise ValueError("field 'examples' must hold texts")
        parts.append(f"Example\nInput:\n{given}\nOutput:\n{shown}")
    checker = text_of(row, "generated_checker", optional=True)
    reasons = {
        "interactive problem": row.get("interaction_format"),
        "input or output in files": (row.get("input_mode") or "stdio") != "stdio",
        "checker in C++, which the sandbox cannot run": "#include" in checker,
    }
    tests = _tests(row, "official_tests")
    for name in LIMITS:
        limit = tests[name] = row.get(name)
        if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
            raise ValueError(f"field '{name}' must be a positive number, not {limit!r}")
    if checker:
        tests["checker_program"] = CHECKER.format(source=checker)
    left_out = next(filter(reasons.get, reasons), None)
    known = {"id": row.get("id"), "difficulty": row.get("rating"), "left_out": left_out}
    return _raw("codeforces", "\n\n".join(parts), tests, **known)


def codecontests(row: Record) -> Record:
    """CodeContests: public, private and generated tests in this order, limits, solutions in many languages."""
    inputs, outputs = [], []
    for name in ("public_tests", "private_tests", "generated_tests"):
        for column, texts in zip((inputs, outputs), _columns(parsed(row, name), name, "input", "output"), strict=True):
            column += texts
    limit, memory = row.get("time_limit"), row.get("memory_limit_bytes") or 0
    try:
        seconds = (limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9 if limit else None
    except (AttributeError, TypeError):
        raise ValueError("field 'time_limit' needs numbers 'seconds' and 'nanos'") from None
    if not isinstance(memory, int):
        raise ValueError("field 'memory_limit_bytes' must be a whole number")
    for name in ("difficulty", "source"):
        if not isinstance(row.get(name), str | int | None):
            raise ValueError(f"field '{name}' must be a text or a whole number")
    tests = {"inputs": inputs, "outputs": outputs, "time_limit": seconds, "memory_limit": memory / (1 << 20)}
    pairs = zip(*_columns(parsed(row, "solutions"), "solutions", "language", "solution"), strict=True)
    return _raw(
        "codecontests",
        text_of(row, "description"),
        tests,
        id=text_of(row, "name"),
        solutions=[code for language, code in pairs if language in (PYTHON_3, "PYTHON3")],
        difficulty=DIFFICULTIES.get(row.get("difficulty"), row.get("difficulty")),
        platform=PLATFORMS.get(row.get("source"), row.get("source")),
        left_out="input or output in files" if row.get("input_file") or row.get("output_file") else None,
    )


def verl(row: Record) -> Record:
    """Rows for veRL, Eurus' among them: the statement is the last user message, the tests are the ground truth."""
    try:
        content = joined([message["content"] for message in row["prompt"] if message["role"] == "user"][-1], "text")
        truth = {"ground_truth": row["reward_model"]["ground_truth"]}
    except (KeyError, TypeError, IndexError):
        raise ValueError("fields 'prompt' and 'reward_model' need a user message and a 'ground_truth'") from None
    if not content:
        raise ValueError("field 'prompt' has no text in its last user message")
    _, marker, rest = content.partition(PROBLEM_MARKER)
    statement = rest if marker else content.removeprefix(COBALT.instruction.partition("{question}")[0])
    question, source = CODE_REQUEST.sub("", statement).strip(), str(row.get("data_source"))
    if row.get("ability", "code") != "code":
        return _raw(source, question, {}, left_out=f"not code, but {row['ability']}")
    return _raw(source, question, _tests(truth, "ground_truth"))


@dataclass(frozen=True)
class Format:
    """How a source's rows are read, and whether it has reference solutions to verify its tests with."""

    title: str
    convert: Callable[[Record], Record]
    has_solutions: bool
    generate: int = 0
    """Tests that a problem with too few of them is filled up to."""


Name = Literal["taco", "deepcoder", "codeforces", "codecontests", "verl", "mbpp", "humaneval", "leetcode"]
FORMATS: dict[Name, Format] = {
    "taco": Format("TACO", taco, has_solutions=True),
    "deepcoder": Format("DeepCoder", deepcoder, has_solutions=False),  # two of its four subsets have some
    "codeforces": Format("Codeforces", codeforces, has_solutions=False),
    "codecontests": Format("CodeContests", codecontests, has_solutions=True),
    "verl": Format("veRL", verl, has_solutions=False),
    "mbpp": Format("MBPP", asserts.mbpp, has_solutions=True, generate=24),
    "humaneval": Format("HumanEval", asserts.humaneval, has_solutions=True, generate=24),
    "leetcode": Format("LeetCode", asserts.leetcode, has_solutions=True, generate=24),
}


def _raw(source: str, question: str, tests: Record, **fields: Any) -> Record:
    """A raw row; the id is by default a hash of the statement."""
    row = {"question": question, "source": source, "input_output": tests, "solutions": [], "difficulty": None, **fields}
    return {**row, "id": row.get("id") or _statement_id(source, question)}


def _statement_id(source: str, question: str) -> str:
    return f"{source}-{hashlib.sha256(question.encode('utf-8', 'surrogatepass')).hexdigest()[:ID_LENGTH]}"


def parsed(row: Mapping[str, Any], field: str) -> Any:
    """A value that a row may hold as JSON."""
    try:
        return load_json(row[field]) if isinstance(row[field], str) else row[field]
    except KeyError:
        raise ValueError(f"missing field '{field}'") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"field '{field}' is not JSON: {error}") from None


def _columns(value: Any, field: str, *names: str) -> list[list[Any]]:
    """The columns of a table that is a list of objects or an object of lists; null is an empty one."""
    columns: list[Any] = [[] for _ in names] if value is None else []
    if isinstance(value, Mapping):
        columns = [value.get(name) for name in names]
    elif isinstance(value, list) and all(isinstance(entry, Mapping) and {*names} <= entry.keys() for entry in value):
        columns = [[entry[name] for entry in value] for name in names]
    lengths = {len(column) if isinstance(column, list) else None for column in columns}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(f"field '{field}' needs as many of each: {', '.join(names)}")
    return columns


def _tests(row: Record, field: str, metadata: Any = None) -> Record:
    """TACO's dictionary, from one or from a list of tests with ``input`` and ``output``.

    Tests of a function call have a ``testtype`` or ``type`` that says so. Its name stands at them, or in ``metadata``.
    """
    value = parsed(row, field)
    if isinstance(value, Mapping) and "inputs" in value:
        inputs, outputs = _columns(value, field, "inputs", "outputs")
        return {"inputs": inputs, "outputs": outputs, "fn_name": value.get("fn_name")}
    inputs, outputs = _columns(value, field, "input", "output")
    called = (
        [test for test in value if test.get("testtype", test.get("type")) in CALLED] if isinstance(value, list) else []
    )
    if not called:
        return {"inputs": inputs, "outputs": outputs}
    if len(called) < len(inputs):
        raise ValueError(f"field '{field}' mixes tests of programs and of function calls")
    names = [test.get("fn_name") for test in called]
    for found in (metadata, *(test.get("metadata") for test in called)):
        found = parsed({"metadata": found}, "metadata")
        names.append(found.get("func_name") if isinstance(found, Mapping) else None)
    name, *others = [name for name in names if name is not None] or [None]
    if not isinstance(name, str) or any(other != name for other in others):
        raise ValueError(f"field '{field}' needs one name of the function that its tests call")
    return {"inputs": inputs, "outputs": outputs, "fn_name": name}
