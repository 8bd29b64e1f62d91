"""A checker from a user's file: ``NAME(output, expected) -> bool``, called in the worker, outside the sandbox."""

from collections.abc import Callable
from functools import cache

from cobalt.cli.own_files import load_own


class CheckerFailed(Exception):
    """The user's checker raised an error: nothing is known about the program."""


@cache
def own_checker(name: str) -> Callable[[str, str], bool]:
    """The checker ``FILE.py:NAME``; once loaded, its file is not read again. Its errors become ``CheckerFailed``."""
    function = load_own(name)

    def check(output: str, expected: str) -> bool:
        try:
            return bool(function(output, expected))
        except Exception as error:
            raise CheckerFailed(f"checker {name}: {type(error).__name__}: {error}") from error

    return check
