"""The errors that a user meets, and what makes one line of them.

They stand in ``cobalt.sandbox``, which can be used without the rest of the package.
"""

from cobalt.sandbox.errors import CobaltError, InfraError, InputError, SetupError

__all__ = ["EXIT_INTERRUPTED", "CobaltError", "InfraError", "InputError", "SetupError", "first_line"]

EXIT_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


def first_line(error: object) -> str:
    """The first line of an error's text, for a message of one line."""
    return str(error).strip().partition("\n")[0]
