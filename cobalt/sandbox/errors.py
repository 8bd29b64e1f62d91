"""The errors that a user meets, and the exit code of each.

An error is raised where the fact is known and passes through everything untouched. Only ``cobalt.cli.entry.run``
turns it into one line on stderr and an exit code.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


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
    """One unit of work failed through no fault of the program or the model.

    It never leaves the layer that retries: past the last retry it becomes ``infra_error`` text in a record.
    """

    exit_code = 3
