"""The errors that a user meets, and what makes one line of them.

They stand in ``cobalt.sandbox``, which can be used without the rest of the package.
"""

import traceback

from cobalt.sandbox.errors import CobaltError, InfraError, InputError, SetupError

__all__ = ["EXIT_INTERRUPTED", "CobaltError", "InfraError", "InputError", "SetupError", "first_line", "raised"]

EXIT_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


def first_line(error: object) -> str:
    """The first line of an error's text, for a message of one line."""
    return str(error).strip().partition("\n")[0]


def raised(error: BaseException) -> str:
    """What a user's own function raised, and where, for a message of one line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"raised {type(error).__name__}: {first_line(error)} ({place.filename}, line {place.lineno})"
