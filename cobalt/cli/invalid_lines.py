"""Input lines that cannot be used: the first one is an error, or all are counted and skipped (``--skip_invalid``)."""

import sys
from collections.abc import Callable

from cobalt.errors import InputError


class InvalidLines:
    """``handler`` is what ``read_jsonl`` takes as ``on_invalid``. ``quiet`` for a second pass over the same lines."""

    def __init__(self, skip: bool, quiet: bool = False):
        self.count = 0
        self.handler: Callable[[InputError], None] | None = self._skip if skip else None
        self._quiet = quiet

    def _skip(self, error: InputError) -> None:
        self.count += 1
        if not self._quiet:
            print(f"skipped: {error}", file=sys.stderr)
