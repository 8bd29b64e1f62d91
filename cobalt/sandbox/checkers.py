"""Is this output the expected one? Pure functions, called outside the sandbox.

``exact``: both texts stripped, then equal (the paper's rule). ``lcb``: LiveCodeBench's rule: the same number of lines,
each stripped; a pair of lines is equal as text, or token by token as exact decimal numbers. ``unordered``: the same
stripped lines in any order. ``float`` or ``float TOLERANCE``: the same tokens, numbers with an absolute or relative
error of at most the tolerance (one millionth). ``FILE.py:NAME``: a function of the user's, which runs in a sandbox.

What a function returns is a JSON value. ``exact`` and ``lcb`` compare it as Python's ``==`` does, except that
``true`` is not ``1``. ``float`` compares the numbers in it within the tolerance, ``unordered`` its lists in any order,
at every level, unless the expected value tells that the order inside counts.
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import zip_longest
from operator import eq
from typing import Any

from cobalt.sandbox.own_files import OwnFile, is_own
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


def same_value(output: str, expected: str, same: Callable[[Any, Any], bool] = eq) -> bool:
    """A function's JSON result equals the expected one; ``same`` compares what is no list or object. NaN is NaN.

    >>> same_value("[1, 2.0]", "[1,2]"), same_value("5", "[5]"), same_value("true", "1"), same_value("[NaN]", "[NaN]")
    (True, False, False, True)
    """
    pairs = [_values(output, expected)]
    while pairs:  # without recursion, since values may be as deep as Python allows
        ours, theirs = pairs.pop()
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            pairs += zip(ours, theirs, strict=True)
        elif isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
            pairs += ((value, theirs[key]) for key, value in ours.items())
        else:
            same_kind = not isinstance(ours, list | dict) and isinstance(ours, bool) is isinstance(theirs, bool)
            if not same_kind or not (same(ours, theirs) or (ours != ours and theirs != theirs)):
                return False
    return True


def unordered_value(output: str, expected: str) -> bool:
    """The same, with the members of every list in any order. A set is such a list.

    Where members of the expected list differ in nothing but the order inside them, as permutations do, that order
    counts.

    >>> unordered_value('[[2, 1], {"a": []}]', '[{"a": []}, [1, 2]]'), unordered_value("[1, 1, 2]", "[1, 2, 2]")
    (True, False)
    >>> unordered_value("[[1, 2], [1, 2]]", "[[2, 1], [1, 2]]"), unordered_value("[[1, 2], [2, 1]]", "[[2, 1], [1, 2]]")
    (False, True)
    """
    ours, theirs = _values(output, expected)
    if isinstance(theirs, list) and isinstance(ours, list | _Set):
        as_given = Counter(_canonical(member, in_order=True) for member in theirs)
        if len(as_given) > len(set(map(_canonical, theirs))):
            members = ours if isinstance(ours, list) else ours.members
            return Counter(_canonical(member, in_order=True) for member in members) == as_given
    return _canonical(ours) == _canonical(theirs)


def value_within(tolerance: float, output: str, expected: str) -> bool:
    """The same, with numbers compared as those of ``within``.

    >>> value_within(1e-6, "[0.30000000000000004]", "[0.3]"), value_within(1e-6, "[0.31]", "[0.3]")
    (True, False)
    """

    def close(ours: Any, theirs: Any) -> bool:
        if ours == theirs or not tolerance:
            return ours == theirs
        ours = ours.near if isinstance(ours, _Inexact) else ours
        if not (isinstance(ours, _NUMBERS) and isinstance(theirs, _NUMBERS)):
            return False
        try:
            left, right = float(ours), float(theirs)
        except OverflowError:  # of an integer, which equals no float then
            return False
        return math.isfinite(left) and math.isfinite(right) and abs(left - right) <= tolerance * max(1.0, abs(right))

    return same_value(output, expected, close)


_NUMBERS = (int, float, Decimal)


@dataclass(frozen=True, eq=False)
class _Set:
    """A result that is a set. It equals no list."""

    members: list[Any]


@dataclass(frozen=True, eq=False)
class _Inexact:
    """A result that is a fraction or a decimal, and no JSON number equals it. ``near``: the next float."""

    near: float


_NOTHING = object()
_MARKED: dict[str, tuple[type, Any]] = {
    "<set>": (list, _Set),
    "<Fraction>": (float, _Inexact),
    "<Decimal>": (float, _Inexact),
}
"""What ``inside/program.py`` makes of results that JSON has no form for: an object with one of these keys."""


def _values(output: str, expected: str) -> tuple[Any, Any]:
    """A result and the expected value; ``_NOTHING``, which equals nothing, for a result that is not JSON."""
    ours: Any = _NOTHING
    if len(output) <= _LONGEST_ANSWER * len(expected) + _ALWAYS_READ:
        with suppress(ValueError, RecursionError):
            ours = json.loads(output, parse_int=_integer, object_hook=_unmarked)
    try:
        return ours, json.loads(expected, parse_int=_integer)
    except (ValueError, RecursionError):
        return ours, expected.strip()  # a text that is not JSON stands for itself


def _integer(text: str) -> int | Decimal:
    """``int`` takes time with the square of the digits, and refuses many."""
    return int(text) if len(text) <= sys.int_info.default_max_str_digits else Decimal(text)


def _unmarked(value: dict[str, Any]) -> Any:
    kind = next(iter(value), "") if len(value) == 1 else ""
    written, made = _MARKED.get(kind, (None, None))  # a program may have written anything itself
    return made(value[kind]) if made is not None and type(value[kind]) is written else value


def _canonical(value: Any, in_order: bool = False) -> str:
    """A text that is the same for values which are equal with their lists in any order, or ``in_order``."""
    waiting, texts = [value], list[str]()
    while waiting:  # without recursion; a tuple stands behind the members that it is made of
        one = waiting.pop()
        if isinstance(one, tuple):
            keys, count = one
            first = len(texts) - count
            members = texts[first:] if keys is None else map("{}:{}".format, keys, texts[first:])
            ends = "[]" if keys is None else "{}"
            ordered = members if in_order and keys is None else sorted(members)
            texts[first:] = [f"{ends[0]}{','.join(ordered)}{ends[1]}"]
        elif isinstance(one, list | _Set):
            members = one if isinstance(one, list) else one.members
            waiting += [(None, len(members)), *members]
        elif isinstance(one, dict):
            waiting += [([json.dumps(key) for key in reversed(one)], len(one)), *one.values()]
        elif isinstance(one, str):
            texts.append(json.dumps(one))
        else:  # equal numbers have equal texts
            texts.append(str(int(one) if isinstance(one, float) and one.is_integer() else one))
    return texts[0]


CHECKERS: dict[str, tuple[Checker, Checker]] = {
    "exact": (exact, same_value),
    "lcb": (lcb, same_value),
    "unordered": (unordered, unordered_value),
    "float": (partial(within, _TOLERANCE), partial(value_within, _TOLERANCE)),
}
"""For what programs print, and for what functions return."""


def checker_of(name: str, is_call: bool = False) -> Checker:
    """Our checker of that name, for the results of functions if ``is_call``. ``ValueError`` if there is none."""
    kind, _, tolerance = name.partition(" ")
    if kind == "float" and _NUMBER.fullmatch(tolerance) and 0 <= float(tolerance) < 1:
        return partial(value_within if is_call else within, float(tolerance))
    if name not in CHECKERS:
        raise ValueError(
            f"checker must be one of {', '.join(CHECKERS)}, 'float TOLERANCE' or FILE.py:NAME, not {name!r}"
        )
    return CHECKERS[name][is_call]


def read_checker(name: str) -> str | OwnFile:
    """One of ours, or a user's own as its file is now; ``ValueError`` or ``InputError`` if there is no such checker."""
    if is_own(name):
        own = OwnFile.read(name)
        own.load()  # a mistake in it is known before anything runs
        return own
    checker_of(name)
    return name


def known_checker(name: str) -> str:
    """``name`` as other processes understand it. Raises what ``read_checker`` does."""
    return str(read_checker(name))


def checker_identity(checker: str | OwnFile) -> str:
    """What outputs record: the name, for a user's own checker with the hash of its file."""
    if isinstance(checker, str):
        return OwnFile.read(checker).identity if is_own(checker) else checker
    return checker.identity


def usable_tests(value: str | Mapping[str, Any] | TestCases) -> TestCases:
    """What ``TestCases.parse`` makes of it. ``ValueError`` also for a checker that does not exist, or more than one."""
    tests = TestCases.parse(value)
    if tests.checker is None:
        return tests
    if is_own(tests.checker):
        raise ValueError("'checker' of a problem must be one of ours: FILE.py:NAME is an argument of the executor")
    checker_of(tests.checker)
    if tests.checker_program is not None:
        raise ValueError("'checker' is not beside 'checker_program': remove one of them")
    return tests


def tests_of(row: Mapping[str, Any], field: str) -> TestCases:
    """The usable tests in a field of a row. ``ValueError`` names the field."""
    try:
        return usable_tests(row[field])
    except ValueError as error:
        raise ValueError(f"field '{field}': {error}") from None
