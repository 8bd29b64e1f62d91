"""Is this output the expected one? Pure functions, called outside the sandbox.

``exact``: both texts stripped, then equal (the paper's rule). ``lcb``: LiveCodeBench's rule: the same number of lines,
each stripped; a pair of lines is equal as text, or token by token as exact decimal numbers. ``unordered``: the same
stripped lines in any order. ``float`` or ``float TOLERANCE``: the same tokens, numbers with an absolute or relative
error of at most the tolerance (one millionth). ``FILE.py:NAME``: a function of the user's, which runs in a sandbox.
Function calls compare JSON values under any rule.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import zip_longest
from typing import Any

from cobalt.sandbox.own_files import identity_of, is_own, load_own, with_absolute_path
from cobalt.sandbox.tests import TestCases

Checker = Callable[[str, str], bool]

_TOKEN = re.compile(r"\S+")
# each digit can match in one place only, so that a long text which is no number is rejected in one pass
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TOLERANCE = 1e-6

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
    for left, right in zip(output.split("\n"), expected.split("\n"), strict=True):
        if left.strip() == right.strip():
            continue
        # token by token, so that a hostile line costs no more than the expected one
        for ours, theirs in zip_longest(_TOKEN.finditer(left), _TOKEN.finditer(right)):
            if ours is None or theirs is None or not _same_decimal(ours.group(), theirs.group()):
                return False
    return True


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

    Without a tolerance, or where one of them is beyond the largest float, they are equal as exact decimals.

    >>> within(1e-6, "yes 0.3333333", "yes 0.33333334"), within(1e-6, "1.1", "1.0"), within(0.5, "1 2", "1")
    (True, False, False)
    """
    for mine, given in zip_longest(_TOKEN.finditer(output), _TOKEN.finditer(expected)):
        if mine is None or given is None:
            return False
        ours, theirs = mine.group(), given.group()
        if ours == theirs:
            continue
        if not (_NUMBER.fullmatch(ours) and _NUMBER.fullmatch(theirs)):
            return False
        left, right = float(ours), float(theirs)
        if tolerance == 0 or not (math.isfinite(left) and math.isfinite(right)):
            if not _same_decimal(ours, theirs):
                return False
        elif abs(left - right) > tolerance * max(1.0, abs(right)):
            return False
    return True


def _same_decimal(ours: str, theirs: str) -> bool:
    try:
        return Decimal(ours) == Decimal(theirs)
    except InvalidOperation:  # no number, or an exponent that no decimal has
        return False


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
    try:
        wanted = json.loads(expected)
    except (ValueError, RecursionError):
        wanted = expected.strip()  # a text that is not JSON stands for itself
    pairs = [(result, wanted)]
    while pairs:  # without recursion, since values may be as deep as Python allows
        ours, theirs = pairs.pop()
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            pairs += zip(ours, theirs, strict=True)
        elif isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
            pairs += ((value, theirs[key]) for key, value in ours.items())
        else:
            same_kind = not isinstance(ours, list | dict) and isinstance(ours, bool) is isinstance(theirs, bool)
            both_nan = ours != ours and theirs != theirs
            if not same_kind or not (ours == theirs or both_nan):
                return False
    return True


CHECKERS: dict[str, Checker] = {
    "exact": exact,
    "lcb": lcb,
    "unordered": unordered,
    "float": partial(within, _TOLERANCE),
}


def checker_of(name: str) -> Checker:
    """Our checker of that name. ``ValueError`` if there is none."""
    kind, _, tolerance = name.partition(" ")
    if kind == "float" and _NUMBER.fullmatch(tolerance) and 0 <= float(tolerance) < 1:
        return partial(within, float(tolerance))
    if name not in CHECKERS:
        raise ValueError(
            f"checker must be one of {', '.join(CHECKERS)}, 'float TOLERANCE' or FILE.py:NAME, not {name!r}"
        )
    return CHECKERS[name]


def known_checker(name: str) -> str:
    """``name`` as other processes understand it; ``ValueError`` or ``InputError`` if there is no such checker."""
    if is_own(name):
        load_own(name)  # a mistake in it is known before anything runs
        return with_absolute_path(name)
    checker_of(name)
    return name


def checker_identity(name: str) -> str:
    """What outputs record: the name, for a user's own checker with the hash of its file."""
    return identity_of(name) if is_own(name) else name


def usable_tests(value: str | Mapping[str, Any] | TestCases) -> TestCases:
    """What ``TestCases.parse`` makes of it. ``ValueError`` also for a checker that does not exist, or more than one."""
    tests = TestCases.parse(value)
    if tests.checker is None:
        return tests
    if is_own(tests.checker):
        raise ValueError("'checker' of a problem must be one of ours: FILE.py:NAME is an argument of the executor")
    checker_of(tests.checker)
    if tests.fn_name is not None or tests.checker_program is not None:
        raise ValueError("'checker' is for what programs print, and not beside 'checker_program'")
    return tests
