"""The errors that a user meets, and what makes one line of them.

They stand in ``cobalt.sandbox``, which can be used without the rest of the package.
"""

import re
import sysconfig
import traceback

from cobalt.sandbox.errors import CobaltError, InfraError, InputError, SetupError

__all__ = [
    "ABOVE",
    "EXIT_INTERRUPTED",
    "CobaltError",
    "InfraError",
    "InputError",
    "SetupError",
    "first_line",
    "raised",
    "raised_in",
    "root_cause",
]

EXIT_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_RAISED = re.compile(r"^(?:\[rank\d+\]: |\([^)]*\) )*((?:\w+\.)*\w*(?:Error|Exception)\b.*)", re.MULTILINE)
"""The last line of a traceback, behind the names of processes that torch, Ray and vLLM put before it."""
ABOVE = "See root cause above"
"""How vLLM 0.24 ends the error of an engine that did not start."""


def first_line(error: object) -> str:
    """The first line of an error's text, for a message of one line."""
    return str(error).strip().partition("\n")[0]


def raised(error: BaseException) -> str:
    """What a user's own function raised, and where, for a message of one line.

    The place is the last one outside Python's standard library: a user's line that reads a file, not that of ``open``.
    """
    places = traceback.extract_tb(error.__traceback__)
    library = (sysconfig.get_path("stdlib"), "<frozen ")
    own = [one for one in places if not one.filename.startswith(library) or "site-packages" in one.filename]
    place = (own or places)[-1]
    return f"raised {type(error).__name__}: {first_line(error)} ({place.filename}, line {place.lineno})"


def raised_in(log: str) -> list[str]:
    """The line of each error in a log, without the names of processes before it."""
    return _RAISED.findall(_COLOUR.sub("", log))


def root_cause(log: str) -> str | None:
    """The last error of a log before the one that points above, for a message of one line; None if there is none."""
    above, _, _ = log.partition(ABOVE)
    found = raised_in(above[: above.rfind("\n") + 1])  # without the line that points above
    return found[-1] if found else None
