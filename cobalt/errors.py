"""The errors that a user meets, and the exit code that each one means.

An error is raised where the fact is known, passes through everything untouched, and is turned into one line on
stderr and an exit code in one place only: ``cobalt.cli.entry.run``.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


EXIT_INTERRUPTED = 130
"""Of a command that Ctrl-C ended."""


def first_line(error: object) -> str:
    """The first line of an error's text, for a message of one line."""
    return str(error).strip().partition("\n")[0]


class CobaltError(Exception):
    """Base class. ``exit_code`` is what a command returns when the error reaches the top."""

    exit_code = 1


class InputError(CobaltError):
    """Bad input or flags: names the file, the line and the field. Nothing has been overwritten."""

    exit_code = 2

    @classmethod
    def at(cls, path: object, line: int | None, message: str) -> "InputError":
        """``FILE: line N: message``, the form of every complaint about a file."""
        where = f"{path}: line {line}" if line is not None else f"{path}"
        return cls(f"{where}: {message}")

    @classmethod
    def of_setting(cls, error: "ValidationError", prefix: str = "", known: Iterable[str] = ()) -> "InputError":
        """One line on the first setting that pydantic refuses; ``known`` names the settings, for an unknown one."""
        first = error.errors()[0]
        name = f"{prefix}{'.'.join(map(str, first['loc']))}"
        if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            return cls(f"{name}: no such setting; there are {', '.join(known)}")
        given = "" if first["type"].startswith("missing") else f"={first['input']}"
        return cls(f"{name}{given}: {first['msg'].removeprefix('Value error, ')}")


class SetupError(CobaltError):
    """The surroundings cannot do the work: no service, no sandbox, no such device, too many infra failures."""

    exit_code = 3


class InfraError(CobaltError):
    """One unit of work could not be carried out through no fault of the program or the model.

    It never leaves the layer that retries: past the last retry it becomes ``infra_error`` text in a record.
    """

    exit_code = 3
