"""Is this output the expected one? Pure functions, called outside the sandbox.

``exact``: both texts stripped, then equal (the paper's rule). ``lcb``: LiveCodeBench's rule: the same number of lines,
each stripped; a pair of lines is equal as text, or token by token as exact decimal numbers. ``unordered``: the same
stripped lines in any order. ``float`` or ``float TOLERANCE``: the same tokens, numbers with an absolute or relative
error of at most the tolerance (one millionth). Function calls compare JSON values under any rule.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import zip_longest
from typing import Any

from cobalt.cli.own_files import identity_of, is_own, with_absolute_path
from cobalt.records import TestCases
from cobalt.sandbox.own_checker import own_checker

Checker = Callable[[str, str], bool]

_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TOLERANCE = 1e-6
_LONGEST_NUMBER = 400
"""Characters; the largest float has 309 digits before its point. The expected one may be longer."""

_LONGEST_ANSWER, _ALWAYS_READ = 16, 1 << 16
"""An answer is not parsed if it is longer than 16 times the expected one and 64 KiB: no spelling of JSON is."""


def exact(output: str, expected: str) -> bool:
    r"""Stripped texts are equal.

    >>> exact("1 2\n", "1 2"), exact("1 \n2", "1\n2")
    (True, False)
    """
    return output.strip() == expected.strip()


def lcb(output: str, expected: str) -> bool:
    r"""LiveCodeBench: lines stripped, tokens equal as exact decimals.

    >>> lcb("1 \r\n2.50", "1\n2.5"), lcb("1\n\n2", "1\n2"), lcb("Yes", "YES")
    (True, False, False)
    """
    output, expected = output.strip(), expected.strip()
    if output.count("\n") != expected.count("\n"):  # before millions of lines are taken apart
        return False
    pairs = zip(output.split("\n"), expected.split("\n"), strict=True)
    return all(left.strip() == right.strip() or _same_numbers(left, right) for left, right in pairs)


def _same_numbers(left: str, right: str) -> bool:
    """Token by token, so that a hostile line costs no more than the expected one."""
    try:
        return all(
            ours is not None and theirs is not None and Decimal(ours.group()) == Decimal(theirs.group())
            for ours, theirs in zip_longest(_TOKEN.finditer(left), _TOKEN.finditer(right))
        )
    except InvalidOperation:
        return False


def unordered(output: str, expected: str) -> bool:
    r"""The same stripped lines, in any order.

    >>> unordered("2\n1 \n", "1\n2"), unordered("1\n1\n2", "1\n2\n2")
    (True, False)
    """
    output, expected = output.strip(), expected.strip()
    if output.count("\n") != expected.count("\n"):
        return False
    mine, theirs = (Counter(map(str.strip, text.split("\n"))) for text in (output, expected))
    return mine == theirs


def within(tolerance: float, output: str, expected: str) -> bool:
    """The same tokens; numbers may differ by ``tolerance`` times the expected one, or 1 if that is smaller.

    >>> within(1e-6, "yes 0.3333333", "yes 0.33333334"), within(1e-6, "1.1", "1.0"), within(0.5, "1 2", "1")
    (True, False, False)
    """
    pairs = zip_longest(_TOKEN.finditer(output), _TOKEN.finditer(expected))
    return all(ours and theirs and _close(tolerance, ours.group(), theirs.group()) for ours, theirs in pairs)


def _close(tolerance: float, ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    if len(ours) > _LONGEST_NUMBER or not (_NUMBER.fullmatch(ours) and _NUMBER.fullmatch(theirs)):
        return False
    return abs(float(ours) - float(theirs)) <= tolerance * max(1.0, abs(float(theirs)))


def same_value(output: str, expected: str) -> bool:
    """A function's JSON result against the expected one: numbers by value, anything else also by type; NaN is NaN.

    >>> same_value("[1, 2.0]", "[1,2]"), same_value("5", "[5]"), same_value("true", "1"), same_value("[NaN]", "[NaN]")
    (True, False, False, True)
    """
    if len(output) > _LONGEST_ANSWER * len(expected) + _ALWAYS_READ:
        return False
    try:
        result = json.loads(output)
    except (ValueError, RecursionError):
        return False
    return _same(result, expected_value(expected))


def _same(result: Any, wanted: Any) -> bool:
    """Equality of JSON values; without recursion, since values may be as deep as Python allows."""
    pairs = [(result, wanted)]
    while pairs:
        ours, theirs = pairs.pop()
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            pairs += zip(ours, theirs, strict=True)
        elif isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
            pairs += ((value, theirs[key]) for key, value in ours.items())
        elif not _same_scalar(ours, theirs):
            return False
    return True


def _same_scalar(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list | dict) or isinstance(ours, bool) is not isinstance(theirs, bool):
        return False
    return ours == theirs or (ours != ours and theirs != theirs)


def expected_value(expected: str) -> Any:
    """An expected output of a function call: JSON, or the text itself where it is none."""
    try:
        return json.loads(expected)
    except (ValueError, RecursionError):
        return expected.strip()


CHECKERS: dict[str, Checker] = {
    "exact": exact,
    "lcb": lcb,
    "unordered": unordered,
    "float": partial(within, _TOLERANCE),
}


def checker_of(name: str) -> Checker:
    """The checker of that name, or the user's own (``FILE.py:NAME``). ``ValueError`` if there is none."""
    if is_own(name):
        return own_checker(name)
    kind, _, tolerance = name.partition(" ")
    if kind == "float" and _NUMBER.fullmatch(tolerance) and 0 <= float(tolerance) < 1:
        return partial(within, float(tolerance))
    if name not in CHECKERS:
        raise ValueError(
            f"checker must be one of {', '.join(CHECKERS)} 'float TOLERANCE' or FILE.py:NAME, not {name!r}"
        )
    return CHECKERS[name]


def known_checker(name: str) -> str:
    """``name`` as other processes understand it; ``ValueError`` or ``InputError`` if there is no such checker."""
    checker_of(name)
    return with_absolute_path(name) if is_own(name) else name


def checker_identity(name: str) -> str:
    """What outputs record: the name, for a user's own checker with the hash of its file."""
    return identity_of(name) if is_own(name) else name


def require_usable(tests: TestCases) -> None:
    """Raises ``ValueError`` if ``tests`` name a checker that does not exist, or more than one."""
    if tests.checker is None:
        return
    if is_own(tests.checker):
        raise ValueError("'checker' of a problem must be one of ours: FILE.py:NAME is an argument of the executor")
    checker_of(tests.checker)
    if tests.fn_name is not None or tests.checker_program is not None:
        raise ValueError("'checker' is for what programs print, and not beside 'checker_program'")
