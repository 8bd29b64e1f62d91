"""The errors that a user meets, and the exit code that each one means.

An error is raised where the fact is known, passes through everything untouched, and is turned into one line on
stderr and an exit code in one place only: ``cobalt.cli.entry.run``.
"""


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


class SetupError(CobaltError):
    """The surroundings cannot do the work: no service, no sandbox, no such device, too many infra failures."""

    exit_code = 3


class InfraError(CobaltError):
    """One unit of work could not be carried out through no fault of the program or the model.

    It never leaves the layer that retries: past the last retry it becomes ``infra_error`` text in a record.
    """

    exit_code = 3
