"""Is this output the expected one? Pure functions, called outside the sandbox.

``exact``: both texts stripped, then equal (the paper's rule). ``lcb``: LiveCodeBench's rule: the same number of lines,
each stripped; a pair of lines is equal as text, or token by token as exact decimal numbers. Function calls compare
JSON values under either rule.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any

from cobalt.commands.own_files import identity_of, is_own, with_absolute_path
from cobalt.sandbox.own_checker import own_checker

Checker = Callable[[str, str], bool]

_TOKEN = re.compile(r"\S+")

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


def same_value(output: str, expected: str) -> bool:
    """A function's JSON result against the expected one, which may be wrapped in a one-element list.

    >>> same_value("[1, 2]", "[[1,2]]"), same_value("3", "[3]"), same_value("3", "4")
    (True, True, False)
    """
    if len(output) > _LONGEST_ANSWER * len(expected) + _ALWAYS_READ:
        return False
    try:
        result = json.loads(output)
    except (ValueError, RecursionError):
        return False
    wanted = expected_value(expected)
    return result == wanted or [result] == wanted


def expected_value(expected: str) -> Any:
    """An expected output of a function call: JSON, or the text itself where it is none."""
    try:
        return json.loads(expected)
    except (ValueError, RecursionError):
        return expected.strip()


CHECKERS: dict[str, Checker] = {"exact": exact, "lcb": lcb}


def checker_of(name: str) -> Checker:
    """The checker of that name, or the user's own (``FILE.py:NAME``). ``ValueError`` if there is none."""
    if is_own(name):
        return own_checker(name)
    if name not in CHECKERS:
        raise ValueError(f"checker must be one of {', '.join(CHECKERS)} or FILE.py:NAME, not {name!r}")
    return CHECKERS[name]


def known_checker(name: str) -> str:
    """``name`` as other processes understand it; ``ValueError`` or ``InputError`` if there is no such checker."""
    checker_of(name)
    return with_absolute_path(name) if is_own(name) else name


def checker_identity(name: str) -> str:
    """What outputs record: the name, for a user's own checker with the hash of its file."""
    return identity_of(name) if is_own(name) else name
