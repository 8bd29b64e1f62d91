"""The operations that MiniCode problems are composed of: what a statement says, what a program does.

An operation is one *family* of sentences with a parameter. A pipeline is some middle steps and one final step, all on a
list of integers or all on a line of text. Every operation names its look-alike: the operation that a careless reader
would write instead. All of them stand in ``operations.toml``.
"""

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass


class Domain(StrEnum):
    """What the input line holds."""

    NUMBERS = "numbers"
    TEXT = "text"


class Kind(StrEnum):
    """Where an operation stands in a program: as a comprehension, as an expression, or in the final ``print``."""

    FILTER = "filter"
    MAP = "map"
    WHOLE = "whole"
    FINAL = "final"


@dataclass(frozen=True)
class Operation:
    """One family of statements."""

    domain: Domain
    kind: Kind
    name: str
    look_alike: str
    expression: str
    """Python in ``x`` (an item, FILTER and MAP) or ``A`` (the whole value); ``{c}`` is the constant."""
    phrases: tuple[str, ...]
    """Ways to ask for it."""
    constants: tuple[int, ...] = ()
    hidden_phrases: tuple[str, ...] = ()
    """Ways to ask for it without saying which constant, or which of ``hidden_choices``, is meant."""
    hidden_choices: tuple[str, ...] = ()
    other_words: str = ""
    """How the wider part of the world asks for a common operation."""
    own_plan: str = ""

    @property
    def plan(self) -> str:
        """Its short name in a policy's thinking."""
        return self.own_plan or ("keep " if self.kind is Kind.FILTER else "") + self.expression


def _read(part: str) -> tuple[Operation, ...]:
    """Those of a part of the world, in the file's order."""
    found: Any = tomllib.loads(Path(__file__).with_name("operations.toml").read_text(encoding="utf-8"))[part]
    return tuple(
        Operation(domain=domain, kind=kind, name=name, **fields)
        for domain, by_kind in found.items()
        for kind, by_name in by_kind.items()
        for name, fields in by_name.items()
    )


_COMMON = _read("common")
WIDER = _read("wider")
"""Only the *wider* part of the world has these. ``research.minicode.problems`` says who meets them."""

OPERATIONS = {operation.name: operation for operation in (*_COMMON, *WIDER)}
COMMON = tuple(operation.name for operation in _COMMON)
"""Names of the operations that problems to learn from and dev problems consist of."""


def operations_of(domain: Domain, final: bool, wider: bool = False) -> tuple[Operation, ...]:
    """The final, or the middle, operations of a domain: the common ones, or those of the wider part alone."""
    operations = WIDER if wider else _COMMON
    return tuple(o for o in operations if o.domain is domain and (o.kind is Kind.FINAL) is final)
