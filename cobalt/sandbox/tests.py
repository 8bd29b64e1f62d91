"""Test cases as stored in data sets: a JSON string of ``{"inputs": [str], "outputs": [str]}``."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

TEXTS, LIMITS = ("fn_name", "checker", "checker_program"), ("time_limit", "memory_limit")
OPTIONS = (*TEXTS, *LIMITS)
"""What a problem's tests may say beside inputs and outputs. Missing, null, "" and 0 are the same."""


@dataclass(frozen=True)
class TestCases:
    """K tests of one problem.

    ``inputs_K`` and ``outputs_K`` are texts; with ``fn_name`` the problem is solved by calling a function (or the
    ``Solution`` method) of that name, each input holding its arguments as JSON, one per line. ``checker`` names how
    outputs are compared (None: as the executor compares them), ``checker_program`` is the source of a program that
    judges them (``docs/formats.md``). ``time_limit`` (CPU seconds per test) and ``memory_limit`` (MiB) are the
    problem's own limits; those of the executor hold, too.
    """

    __test__ = False  # not a pytest class

    inputs_K: tuple[str, ...]
    outputs_K: tuple[str, ...]
    fn_name: str | None = None
    checker: str | None = None
    checker_program: str | None = None
    time_limit: float | None = None
    memory_limit: float | None = None

    def __post_init__(self) -> None:
        for name, texts_K in (("inputs", self.inputs_K), ("outputs", self.outputs_K)):
            if not all(type(text) is str for text in texts_K):  # a class derived from it may mean anything
                raise ValueError(f"tests need texts in '{name}'")
        for name in LIMITS:
            limit = getattr(self, name)
            if limit is not None and not (type(limit) in (int, float) and 0 < limit < math.inf):
                raise ValueError(f"'{name}' must be a positive number")

    def __len__(self) -> int:
        return len(self.inputs_K)

    @classmethod
    def parse(cls, value: "str | Mapping[str, Any] | TestCases") -> "TestCases":
        """Read the JSON string, or the mapping, of a data set.

        Raises ``ValueError`` saying what is wrong: not JSON, missing lists, unequal lengths, non-text, no tests, an
        argument of a function call that is not JSON.
        """
        if isinstance(value, TestCases):
            return value
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"tests are not JSON ({error})") from None
        if not isinstance(value, Mapping):
            raise ValueError("tests must be an object with 'inputs' and 'outputs'")
        inputs, outputs = value.get("inputs"), value.get("outputs")
        for name, texts in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(texts, Sequence) or isinstance(texts, str):
                raise ValueError(f"tests need a list '{name}'")
        assert inputs is not None and outputs is not None
        if len(inputs) != len(outputs):
            raise ValueError(f"tests have {len(inputs)} inputs but {len(outputs)} outputs")
        if not inputs:
            raise ValueError("there are no tests")
        options: dict[str, Any] = {name: value.get(name) or None for name in OPTIONS}
        for name in TEXTS:
            if options[name] is not None and type(options[name]) is not str:
                raise ValueError(f"'{name}' must be a text")
        tests = cls(tuple(inputs), tuple(outputs), **options)
        if tests.fn_name:
            for number, text in enumerate(tests.inputs_K):
                for line in filter(str.strip, text.split("\n")):
                    try:
                        json.loads(line, parse_int=str)  # ``int`` refuses long ones
                    except (ValueError, RecursionError) as error:
                        raise ValueError(f"test {number}: an argument is not JSON ({error})") from None
        return tests

    def select(self, indices: Sequence[int]) -> "TestCases":
        """The tests at ``indices``, in that order."""
        return self.with_pairs([self.inputs_K[i] for i in indices], [self.outputs_K[i] for i in indices])

    def with_pairs(self, inputs_K: Sequence[str], outputs_K: Sequence[str]) -> "TestCases":
        """Other inputs and expected outputs of the same problem."""
        return replace(self, inputs_K=tuple(inputs_K), outputs_K=tuple(outputs_K))

    def __add__(self, other: "TestCases") -> "TestCases":
        if any(getattr(self, name) != getattr(other, name) for name in OPTIONS):
            raise ValueError("tests of different call types, checkers or limits cannot be joined")
        return self.with_pairs(self.inputs_K + other.inputs_K, self.outputs_K + other.outputs_K)

    def to_mapping(self) -> dict[str, Any]:
        """The mapping that ``parse`` reads."""
        options = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        return {"inputs": list(self.inputs_K), "outputs": list(self.outputs_K), **options}

    def to_json(self) -> str:
        """The JSON string stored in data sets."""
        return json.dumps(self.to_mapping(), ensure_ascii=False)
