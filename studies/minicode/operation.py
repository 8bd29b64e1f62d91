"""What an operation of MiniCode is, and how one is written down.

An operation is one *family* of sentences with a parameter. A pipeline is some middle steps and one final step, all on a
list of integers or all on a line of text. Every operation names its look-alike: the operation that a careless reader
would write instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Domain(str, Enum):
    """What the input line holds."""

    NUMBERS = "numbers"
    TEXT = "text"


class Kind(str, Enum):
    """Where an operation stands in a program: as a comprehension, as an expression, or in the final ``print``."""

    FILTER = "filter"
    MAP = "map"
    WHOLE = "whole"
    FINAL = "final"


@dataclass(frozen=True)
class Operation:
    """One family of statements.

    ``expression``: Python in ``x`` (an item, FILTER and MAP) or ``A`` (the whole value); ``{c}`` is the constant.
    ``phrases``: ways to ask for it; ``plan``: its short name in a policy's thinking.
    ``hidden_phrases``: ways to ask for it without saying which constant, or which of ``hidden_choices``, is meant.
    """

    name: str
    domain: Domain
    kind: Kind
    expression: str
    plan: str
    look_alike: str
    phrases: tuple[str, ...]
    constants: tuple[int, ...] = ()
    hidden_phrases: tuple[str, ...] = ()
    hidden_choices: tuple[str, ...] = ()


WIDE = tuple(range(2, 10))
DIVISORS = tuple(range(2, 6))
COUNTS = (2, 3, 4)
SHIFTS = (1, 2, 3)


def filter_(
    name: str,
    look_alike: str,
    condition: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
) -> Operation:
    return Operation(
        name, Domain.NUMBERS, Kind.FILTER, condition, f"keep {condition}", look_alike, tuple(phrases), constants,
        tuple(hidden), choices,
    )  # fmt: skip


def map_(
    name: str,
    look_alike: str,
    expression: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
) -> Operation:
    return Operation(
        name, Domain.NUMBERS, Kind.MAP, expression, expression, look_alike, tuple(phrases), constants, tuple(hidden)
    )


def whole_(
    name: str,
    look_alike: str,
    expression: str,
    plan: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
    domain: Domain = Domain.NUMBERS,
    kind: Kind = Kind.WHOLE,
) -> Operation:
    return Operation(
        name, domain, kind, expression, plan, look_alike, tuple(phrases), constants, tuple(hidden), choices
    )


def final_(
    name: str,
    look_alike: str,
    expression: str,
    plan: str,
    phrases: Sequence[str],
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
    domain: Domain = Domain.NUMBERS,
) -> Operation:
    return whole_(name, look_alike, expression, plan, phrases, (), hidden, choices, domain, Kind.FINAL)


def text_(
    name: str,
    look_alike: str,
    expression: str,
    plan: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
) -> Operation:
    return whole_(name, look_alike, expression, plan, phrases, constants, hidden, choices, Domain.TEXT)


def text_final_(name: str, look_alike: str, expression: str, plan: str, phrases: Sequence[str]) -> Operation:
    return final_(name, look_alike, expression, plan, phrases, domain=Domain.TEXT)
