"""Blocks of flags that commands are composed of, with the bounds of each value on its field.

A command's flags are a frozen, keyword-only dataclass that inherits the blocks it needs. A bound is metadata of the
field's type (``annotated_types``), so that a library user who builds the dataclass meets it too: ``InputError``.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from annotated_types import Ge, GroupedMetadata, Gt, Interval, Le, Lt

from cobalt.errors import InputError

Positive = Annotated[int, Ge(1)]
NotNegative = Annotated[int, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
Temperature = Annotated[float, Ge(0)]
TopP = Annotated[float, Interval(gt=0, le=1)]

InputFile = Annotated[Path, tyro.conf.arg(aliases=["-i"])]
OptionalInputFile = Annotated[Path | None, tyro.conf.arg(aliases=["-i"])]
OutputFile = Annotated[Path, tyro.conf.arg(aliases=["-o"])]
OptionalOutputFile = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
NumCompletions = Annotated[int, Ge(1), tyro.conf.arg(aliases=["-n"])]

ModelName = Annotated[str, tyro.conf.arg(name="model", aliases=["--model_name"])]
OptionalModelName = Annotated[str | None, tyro.conf.arg(name="model", aliases=["--model_name"])]
ModelFolder = Annotated[Path, tyro.conf.arg(aliases=["--model_name"])]

ExecutorName = Literal["serve", "local"]

Bound = Ge | Gt | Le | Lt
_BOUNDS = {
    Ge: (operator.ge, "at least"),
    Gt: (operator.gt, "above"),
    Le: (operator.le, "at most"),
    Lt: (operator.lt, "below"),
}


class CommandConfig:
    """Base of all command flags: checks the bounds when it is built."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value, bounds = getattr(self, field.name), list(_bounds(hints[field.name]))
            if value is not None and not all(_BOUNDS[type(bound)][0](value, _limit(bound)) for bound in bounds):
                wanted = " and ".join(f"{_BOUNDS[type(bound)][1]} {_limit(bound)}" for bound in bounds)
                raise InputError(f"--{field.name} must be {wanted}, not {value}")


def _bounds(hint: Any) -> Iterator[Bound]:
    """The bounds in a type, those of ``X | None`` included."""
    if get_origin(hint) is not Annotated:
        for part in get_args(hint):
            yield from _bounds(part)
        return
    for item in hint.__metadata__:
        yield from (
            part for part in ([*item] if isinstance(item, GroupedMetadata) else [item]) if isinstance(part, Bound)
        )


def _limit(bound: Bound) -> Any:
    return getattr(bound, type(bound).__name__.lower())  # annotated_types names the field after the class


@dataclass(frozen=True, kw_only=True)
class ReadConfig(CommandConfig):
    """For commands that read JSONL."""

    skip_invalid: bool = False
    """Count and skip invalid input lines instead of stopping at the first."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig(CommandConfig):
    """For commands that run programs."""

    executor: ExecutorName = "serve"
    """Where programs run: the Ray Serve app `evaluator`, or sandboxes of this process."""
    checker: str | None = None
    """How outputs are compared: `exact` (the default), `lcb`, or a function of your own, FILE.py:NAME. An evaluator app
    must have been started with it."""
    max_infra_rate: Share = 0.01
    """Exit with 3 if a larger share of the work met an infrastructure failure."""


@dataclass(frozen=True, kw_only=True)
class UploadConfig(CommandConfig):
    """For commands that build a data set."""

    push_to_hub: str | None = None
    """Also upload the set and its card to this dataset repository."""
