"""TACO's raw rows to problems (docs/data.md, "TACO"). Pure: no execution, no files.

A raw row has ``id, question, difficulty, starter_code, input_output`` (JSON of ``inputs``, ``outputs`` and, for
problems solved by a function call, ``fn_name``; checkers and limits as in tests) and ``solutions`` (JSON list, or a
list). ``left_out`` says why a row cannot be used. A row that is a prepared problem already (the released sets) passes
through unchanged.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cobalt.perturbation import random_of
from cobalt.prompts import COBALT, PromptSet, problem_instruction
from cobalt.records import TestCases, tests_of
from cobalt.records.jsonl import Record, missing_fields
from cobalt.sandbox.checkers import usable_tests
from cobalt.sandbox.tests import OPTIONS

TEST_FIELDS = ("test_cases", "public_test_cases", "hidden_test_cases")
RAW_FIELDS = ("id", "question", "difficulty", "input_output", "solutions")
PREPARED_FIELDS = ("id", "question", "difficulty", "instruction", *TEST_FIELDS)
TRAIN, DEV = "train", "dev"
_SPLITS = {"train": TRAIN, "dev": DEV, "validation": DEV, "valid": DEV, "val": DEV, "test": DEV}
_IMAGE = re.compile(r"image|!\[[^\]]*\][(\[]", re.IGNORECASE)


@dataclass(frozen=True)
class TacoRules:
    """The constants of the preparation; defaults are the paper's."""

    min_tests: int = 8
    """Fewest well-formed tests."""
    min_alphanumeric: int = 100
    """Fewest letters and digits in the statement."""
    shortest_tests: int = 5
    """Tests with the shortest inputs that are kept."""
    longest_tests: int = 15
    """Tests with the longest inputs that are kept."""
    public_tests: int = 4
    """Tests with the shortest inputs that become public."""
    max_solutions: int = 16
    """Reference solutions tried before the problem is dropped."""


@dataclass(frozen=True)
class Candidate:
    """A problem that passed the filters; ``tests`` are public then hidden, by length of input."""

    record: Record
    tests: TestCases
    solutions: tuple[str, ...]


def is_prepared(row: Mapping[str, Any]) -> bool:
    """Whether the row is a prepared problem rather than a raw one."""
    return "public_test_cases" in row


def refuse_unusable(row: Record) -> None:
    """Raise ``ValueError`` naming the field if a row can be neither prepared nor passed through."""
    complaint = missing_fields(row, PREPARED_FIELDS if is_prepared(row) else RAW_FIELDS)
    if complaint is not None:
        raise ValueError(complaint)
    texts = {"starter_code": row.get("starter_code") or "", "instruction": row.get("instruction", "")}
    for field, text in {"question": row["question"], **texts}.items():
        if not isinstance(text, str):
            raise ValueError(f"field '{field}' must be a text")
    for field in TEST_FIELDS if is_prepared(row) else ():
        tests_of(row, field)
    split_of(row)


def split_of(row: Mapping[str, Any]) -> str | None:
    """``train``, ``dev`` or None when the row does not say. ``ValueError`` for an unknown split."""
    split = row.get("split")
    if split is None:
        return None
    if not isinstance(split, str) or split not in _SPLITS:
        raise ValueError(f"field 'split' must be one of {', '.join(_SPLITS)}, not {split!r}")
    return _SPLITS[split]


def prepare(
    row: Mapping[str, Any], rules: TacoRules, prompts: PromptSet = COBALT, keeps_unverified: bool = False
) -> Candidate | str:
    """The problem made from a raw row, or the name of the filter that drops it."""
    question = row["question"]
    if isinstance(left_out := row.get("left_out"), str):
        return left_out
    if _IMAGE.search(question):
        return "image in the statement"
    if sum(map(str.isalnum, question)) < rules.min_alphanumeric:
        return f"fewer than {rules.min_alphanumeric} alphanumeric characters"
    tests = _well_formed_tests(_parsed(row["input_output"]))
    if tests is None or len(tests) < rules.min_tests:
        return f"fewer than {rules.min_tests} well-formed tests"
    texts = _parsed(row["solutions"])
    texts = texts if isinstance(texts, list) else []
    solutions = tuple(text for text in texts if isinstance(text, str) and text.strip())
    if not solutions and not keeps_unverified:
        return "no reference solution"
    if tests.fn_name is not None and prompts.call_instruction is None:
        return "function call, for which the prompt set has no 'call_instruction'"

    # The tests by length of input: the shortest and the longest. Equal lengths keep the order of the row.
    lengths_K = [len(text) for text in tests.inputs_K]
    ranked = sorted(range(len(tests)), key=lengths_K.__getitem__)
    if len(ranked) > rules.shortest_tests + rules.longest_tests:
        ranked = ranked[: rules.shortest_tests] + ranked[-rules.longest_tests :]
    tests = tests.select(ranked)
    record = {
        **{name: value for name, value in row.items() if name not in ("input_output", "solutions", "left_out")},
        "instruction": problem_instruction(question, tests.fn_name, row.get("starter_code") or "", prompts),
        "test_cases": tests.to_json(),
        "public_test_cases": tests.select(range(rules.public_tests)).to_json(),
        "hidden_test_cases": tests.select(range(rules.public_tests, len(tests))).to_json(),
    }
    return Candidate(record, tests, solutions)


def solution_order(solutions: Sequence[str], seed: int, problem_id: Any, rules: TacoRules) -> list[str]:
    """The solutions to try, in an order shuffled by (seed, id)."""
    return random_of(seed, problem_id).sample(list(solutions), min(len(solutions), rules.max_solutions))


def dev_rank(seed: int, problem_id: Any) -> str:
    """Problems with the smallest ranks form the dev split: the choice does not depend on the order of the rows."""
    return hashlib.sha256(f"dev:{seed}:{problem_id!r}".encode()).hexdigest()


def _parsed(value: Any) -> Any:
    """A value that a row may hold as JSON; None for text that is not JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def _well_formed_tests(value: Any) -> TestCases | None:
    """The usable tests of ``input_output``; None if there are none.

    Of a function call: arguments as JSON, one per line (rows may hold that text already); the expected value as JSON.
    Else texts as they are, lists joined by spaces. Pairs with anything else, or without an output, are left out.
    """
    if not isinstance(value, Mapping):
        return None
    inputs, outputs = value.get("inputs"), value.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        return None
    options = {name: value.get(name) or None for name in OPTIONS}
    inputs_K, outputs_K = [], []
    if options["fn_name"]:
        if all(isinstance(output, list) and len(output) == 1 for output in outputs):  # each wrapped in a list
            outputs = [output[0] for output in outputs]
        for arguments, output in zip(inputs, outputs, strict=True):
            if isinstance(arguments, list):
                inputs_K.append("\n".join(map(_json, arguments)))
                outputs_K.append(_json(output))
            elif isinstance(arguments, str) and all(map(_is_json, arguments.splitlines())):
                inputs_K.append(arguments)
                outputs_K.append(output if isinstance(output, str) and _is_json(output) else _json(output))
    else:
        for pair in zip(inputs, outputs, strict=True):
            input_, output = pair
            if type(input_) is not str or type(output) is not str:
                parts = [part if isinstance(part, list) else [part] for part in pair]
                if not all(isinstance(item, str | int | float) for items in parts for item in items):
                    continue
                input_, output = (" ".join(map(str, items)) for items in parts)
            if output.strip():
                inputs_K.append(input_)
                outputs_K.append(output)
    if not inputs_K:
        return None
    try:
        return usable_tests({"inputs": inputs_K, "outputs": outputs_K, **options})
    except ValueError:
        return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
