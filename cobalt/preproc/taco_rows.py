"""TACO's raw rows to problems (docs/data.md, "TACO"). Pure: no execution, no files.

A raw row has ``id, question, difficulty, starter_code, input_output`` (JSON of ``inputs``, ``outputs`` and, for
problems solved by a function call, ``fn_name``; checkers and limits as in tests) and ``solutions`` (JSON list, or a
list). ``left_out`` says why a row cannot be used. A row that is a prepared problem already (the released sets) passes
through unchanged.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cobalt.fences import blocks_of
from cobalt.perturbation import random_of
from cobalt.preproc.asserts import text_of
from cobalt.prompts import COBALT, PromptSet, problem_instruction
from cobalt.records import TestCases, tests_of
from cobalt.records.jsonl import LongInteger, Record, load_json, missing_fields
from cobalt.sandbox.checkers import usable_tests
from cobalt.sandbox.tests import OPTIONS

COLUMNS = ("inputs", "outputs")
TEST_FIELDS = ("test_cases", "public_test_cases", "hidden_test_cases")
RAW_FIELDS = ("id", "question", "difficulty", "input_output", "solutions")
PREPARED_FIELDS = ("id", "question", "difficulty", "instruction", *TEST_FIELDS)
SEVERAL_ANSWERS = "several_answers"
"""Field of a problem whose tests know one of several right answers, though they have no checker."""
GENERATED = "generated"
"""Of ``input_output`` and of problems: for each test whether its input was made from others."""
TRAIN, DEV = "train", "dev"
_SPLITS = {"train": TRAIN, "dev": DEV, "validation": DEV, "valid": DEV, "val": DEV, "test": DEV}
_IMAGE = re.compile(
    r"!\[[^\]]*\][(\[]|<(?:img|image)\b|\\includegraphics\b"
    r"|\b(?:see|shown (?:in|on|by)|illustrated (?:in|on|by)) the (?:\w+ )?images?\b|\bimages? (?:above|below)\b",
    re.IGNORECASE,
)
"""One that is embedded, or pointed at. The bare word is no image."""
_SEVERAL_ANSWERS = re.compile(
    r"\bany of (?:them|these|those)\b"
    r"|\bany (?:valid|correct|possible|suitable|optimal) (?:answer|solution|output|one)\b"
    r"|\b(?:multiple|several|more than one|many) (?:\w+ ){0,2}(?:answer|solution|output)s?\b[^.]{0,60}\bany\b",
    re.IGNORECASE,
)
_RETURNS_LIST = re.compile(r"->\s*['\"]?(?:typing\.)?(?:list|tuple)\b", re.IGNORECASE)
_DECIMAL_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_LONG_TEXT = 200
READINGS_VERSION = "2"
"""Raise it with a change of how tests are read: outcomes of verification then do not stay."""


@dataclass(frozen=True)
class TacoRules:
    """The constants of the preparation; defaults are the paper's."""

    min_tests: int = 8
    """Fewest well-formed tests."""
    min_alphanumeric: int = 100
    """Fewest letters and digits in the statement."""
    shortest_tests: int = 5
    """Tests with the shortest inputs that are kept, or as many as become public if those are more."""
    longest_tests: int = 15
    """Tests with the longest inputs that are kept."""
    public_tests: int = 4
    """Tests with the shortest inputs that become public."""
    max_solutions: int = 16
    """Reference solutions tried before the problem is dropped."""
    allow_images: bool = False
    """Whether a statement may have images."""


@dataclass(frozen=True)
class Candidate:
    """A problem that passed the filters. Its tests are public then hidden, by length of input."""

    fields: Record
    """The record but for its tests."""
    readings: tuple[TestCases, ...]
    """What the row's tests may mean, the likeliest first. A reference solution that passes one tells which."""
    solutions: tuple[str, ...]
    public_tests: int
    unusable_tests: int
    """Tests of the row that were cut, cannot be read, or have no output."""

    def record(self, reading: int = 0) -> Record:
        """The problem with its tests in a reading."""
        tests = self.readings[reading]
        return {
            **self.fields,
            "test_cases": tests.to_json(),
            "public_test_cases": tests.select(range(self.public_tests)).to_json(),
            "hidden_test_cases": tests.select(range(self.public_tests, len(tests))).to_json(),
        }


def is_prepared(row: Mapping[str, Any]) -> bool:
    """Whether the row is a prepared problem rather than a raw one."""
    return "public_test_cases" in row


def refuse_unusable(row: Record) -> None:
    """Raise ``ValueError`` naming the field if a row can be neither prepared nor passed through."""
    complaint = missing_fields(row, PREPARED_FIELDS if is_prepared(row) else RAW_FIELDS)
    if complaint is not None:
        raise ValueError(complaint)
    text_of(row, "question")
    text_of(row, "starter_code", optional=True)
    text_of(row, "instruction", optional=not is_prepared(row))
    split_of(row)
    if not isinstance(row.get(SEVERAL_ANSWERS), bool | None):
        raise ValueError(f"field '{SEVERAL_ANSWERS}' must be true or false")
    if is_prepared(row):
        for field in TEST_FIELDS:
            tests_of(row, field)
    else:
        _refuse_other_types(row)
    generated_of(row)


def generated_of(row: Mapping[str, Any]) -> list[bool] | None:
    """Which tests of a row or problem are generated, of ``input_output`` or ``test_cases``; None: it does not say.

    Raises ``ValueError`` for anything but a flag for each test.
    """
    flags, number = None, 0
    if is_prepared(row):
        flags = row.get(GENERATED)
        number = 0 if flags is None else len(tests_of(row, "test_cases"))
    elif isinstance(tests := row.get("input_output"), str | Mapping) and GENERATED in tests:  # no other is parsed twice
        tests = parsed(tests)
        has_pairs = isinstance(tests, Mapping) and all(isinstance(tests.get(name), list) for name in COLUMNS)
        if has_pairs and tests.get("fn_name"):
            flags, number = tests.get(GENERATED), len(tests["inputs"])
    if flags is not None and not (isinstance(flags, list) and [bool] * number == list(map(type, flags))):
        raise ValueError(f"field '{GENERATED}' must be a list of true and false, one for each test")
    return flags


def _refuse_other_types(row: Record) -> None:
    """Raise ``ValueError`` for tests or solutions of another type. To have none is no mistake of the file."""
    tests = row["input_output"]
    if not isinstance(tests, str | Mapping | None) or (isinstance(tests, str) and tests.strip()[:1] not in ("", "{")):
        raise ValueError("field 'input_output' must be an object with 'inputs' and 'outputs', or its JSON text")
    solutions = row["solutions"]
    programs = parsed(solutions)
    is_none = solutions is None or (isinstance(solutions, str) and not solutions.strip())
    if not is_none and not (isinstance(programs, list) and (not programs or any(isinstance(p, str) for p in programs))):
        raise ValueError("field 'solutions' must be a list of programs as texts, or its JSON text")


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
    if complaint := refusal(row, rules):
        return complaint
    starter_code, row_tests = row.get("starter_code") or "", parsed(row["input_output"])
    readings = readings_of(row_tests, starter_code)
    if isinstance(readings, str):
        return readings
    if not readings or len(readings[0]) < rules.min_tests:
        return f"fewer than {rules.min_tests} well-formed tests"
    solutions = references(row)
    if not solutions and not keeps_unverified:
        return "no reference solution"
    tests = readings[0]
    if tests.fn_name is not None and prompts.call_instruction is None:
        return "function call, for which the prompt set has no 'call_instruction'"

    # The tests by length of input: the shortest and the longest. Equal lengths keep the order of the row.
    lengths_K = [len(text) for text in tests.inputs_K]
    ranked = sorted(range(len(tests)), key=lengths_K.__getitem__)
    shortest = max(rules.shortest_tests, rules.public_tests)
    if len(ranked) > shortest + rules.longest_tests:
        ranked = ranked[:shortest] + ranked[-rules.longest_tests :]
    used = ("input_output", "solutions", "left_out", SEVERAL_ANSWERS, GENERATED)
    fields = {name: value for name, value in row.items() if name not in used}
    fields["instruction"] = problem_instruction(question, tests.fn_name, starter_code, prompts)
    said = row.get(SEVERAL_ANSWERS)
    has_several = _SEVERAL_ANSWERS.search(question) is not None if said is None else said
    if has_several and tests.checker is None and tests.checker_program is None:
        fields[SEVERAL_ANSWERS] = True
    selected = tuple(reading.select(ranked) for reading in readings)
    if (flags := row_tests.get(GENERATED)) and tests.fn_name:
        calls = map(_call, row_tests["inputs"], row_tests["outputs"])
        made = {call[0] for call, flag in zip(calls, flags, strict=True) if call and flag}
        fields[GENERATED] = [text in made for text in selected[0].inputs_K]
    return Candidate(fields, selected, solutions, rules.public_tests, len(row_tests["inputs"]) - len(tests))


def refusal(row: Mapping[str, Any], rules: TacoRules) -> str | None:
    """The filter that drops a raw row whatever its tests and solutions are, if there is one."""
    if isinstance(left_out := row.get("left_out"), str):
        return left_out
    if not rules.allow_images and _IMAGE.search(row["question"]):
        return "image in the statement"
    if sum(map(str.isalnum, row["question"])) < rules.min_alphanumeric:
        return f"fewer than {rules.min_alphanumeric} alphanumeric characters"
    return None


def references(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The reference solutions of a raw row. One in a Markdown fence, as DeepCoder has them, is taken out of it."""
    texts = parsed(row["solutions"])
    programs = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    unfenced = (blocks_of(text)[0].code if text.lstrip().startswith("```") else text for text in programs)
    return tuple(code for code in unfenced if code.strip())


def solution_order(solutions: Sequence[str], seed: int, problem_id: Any, rules: TacoRules) -> list[str]:
    """The solutions to try, in an order shuffled by (seed, id)."""
    return random_of(seed, problem_id).sample(list(solutions), min(len(solutions), rules.max_solutions))


def dev_rank(seed: int, problem_id: Any) -> str:
    """Problems with the smallest ranks form the dev split: the choice does not depend on the order of the rows."""
    return hashlib.sha256(f"dev:{seed}:{problem_id!r}".encode()).hexdigest()


def parsed(value: Any) -> Any:
    """A value that a row may hold as JSON; None for text that is not JSON."""
    try:
        return load_json(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def readings_of(value: Any, starter_code: str) -> list[TestCases] | str:
    """The usable tests of ``input_output`` in each way to read them, the likeliest first; [] if there are none.

    Pairs that cannot be read, that were cut, or that have no output are left out. A text says why the checker or a
    limit is refused.
    """
    if not isinstance(value, Mapping):
        return []
    inputs, outputs = value.get("inputs"), value.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        return []
    options = {name: value.get(name) or None for name in OPTIONS}
    try:
        usable_tests({"inputs": [""], "outputs": [""], **options})
    except ValueError as error:
        return f"refused tests: {str(error)[:200]}"
    readings = _call_readings(inputs, outputs, starter_code) if options["fn_name"] else _stdin_readings(inputs, outputs)
    found = [usable_tests({"inputs": ins, "outputs": outs, **options}) for ins, outs in map(_columns, readings) if ins]
    return list(dict.fromkeys(found))


Pairs = list[tuple[str, str]]


def _columns(pairs: Pairs) -> tuple[list[str], list[str]]:
    return [input_ for input_, _ in pairs], [output for _, output in pairs]


def _call_readings(inputs: list[Any], outputs: list[Any], starter_code: str) -> list[Pairs]:
    """Arguments as JSON, one per line (rows may hold that text already); the expected value as JSON.

    If each output is a list of one, it may be the value, or hold it. Graders take either.
    """
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    readings = [[output[0] for output in outputs], outputs] if wrapped else [outputs]
    if wrapped and _RETURNS_LIST.search(starter_code) and not any(isinstance(output[0], list) for output in outputs):
        readings.reverse()
    return [list(filter(None, map(_call, inputs, reading))) for reading in readings]


def _call(arguments: Any, output: Any) -> tuple[str, str] | None:
    try:
        if isinstance(arguments, list):
            return "\n".join(map(_json, arguments)), _json(output)
        if isinstance(arguments, str) and all(map(_is_json, filter(str.strip, arguments.split("\n")))):
            return arguments, output if isinstance(output, str) and _is_json(output) else _json(output)
    except ValueError:
        pass
    return None


def _stdin_readings(inputs: list[Any], outputs: list[Any]) -> list[Pairs]:
    """Texts as they are. Lists of texts are lines, or joined by spaces; of numbers the other way round."""
    has_lists = any(isinstance(value, list) and len(value) > 1 for value in itertools.chain(inputs, outputs))
    separators = (None, " ", "\n") if has_lists else (None,)
    return [
        list(filter(None, (_stdin(*pair, *how) for pair in zip(inputs, outputs, strict=True))))
        for how in itertools.product(separators, repeat=2)
    ]


def _stdin(input_: Any, output: Any, of_inputs: str | None, of_outputs: str | None) -> tuple[str, str] | None:
    shown, expected = _joined(input_, of_inputs), _joined(output, of_outputs)
    if shown is None or not expected or not expected.strip() or _is_cut(shown) or _is_cut(expected):
        return None
    return shown, expected


def _joined(value: Any, separator: str | None) -> str | None:
    """A text, or what a list of texts and numbers stands for; None for anything else. Without a separator: as usual."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        return None
    if separator is None:
        separator = "\n" if all(isinstance(item, str) for item in items) else " "
    return separator.join(map(str, items)).replace("\r\n", "\n")  # programs print the line ends of Linux


def _is_cut(text: str) -> bool:
    """Whether a text ends in the dots that some sites put where they cut it. The dots of a picture are others."""
    text = text.rstrip()
    kept = text.removesuffix("\u2026").removesuffix("...")
    if kept == text or "." in _DECIMAL_POINT.sub("", kept):
        return False
    return len(kept) > _LONG_TEXT or kept.rstrip()[-1:].isdigit()


def _json(value: Any) -> str:
    """Raises ``ValueError`` for an integer with too many digits."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, LongInteger):
            raise ValueError("an integer has too many digits")
        waiting += one if isinstance(one, list) else one.values() if isinstance(one, dict) else ()
    return json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
