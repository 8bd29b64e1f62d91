"""What the data commands share: refusing to overwrite an input, skipping invalid lines, opening a manifest."""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cobalt.errors import InputError
from cobalt.records import Manifest

Item = TypeVar("Item")


class InvalidLines:
    """Counts invalid input lines when ``--skip_invalid`` is given; otherwise the first one is an error.

    ``quiet`` for a second pass over the same lines.
    """

    def __init__(self, skip: bool, quiet: bool = False):
        self.count = 0
        self.handler: Callable[[InputError], None] | None = self._skip if skip else None
        self._quiet = quiet

    def _skip(self, error: InputError) -> None:
        self.count += 1
        if not self._quiet:
            print(f"skipped: {error}", file=sys.stderr)


def open_manifests(
    command: str,
    config: Any,
    content: Mapping[str, Any],
    inputs: Sequence[str | Path],
    outputs: Sequence[str | Path],
) -> list[Manifest]:
    """Check the paths and start one manifest per output; all of them are finished by ``finish``.

    Raises ``InputError`` for a missing input, an output that is an input or another output, and an output that was
    made with other settings. Nothing is written before all checks have passed.
    """
    for path in inputs:
        if not Path(path).is_file():
            raise InputError.at(path, None, "no such file")
    taken = {Path(path).resolve(): "the input" for path in inputs}
    for path in outputs:
        if Path(path).resolve() in taken:
            raise InputError.at(path, None, f"output and {taken[Path(path).resolve()]} are the same file")
        taken[Path(path).resolve()] = "another output"
    manifests = [Manifest(path, command, dataclasses.asdict(config), content, inputs) for path in outputs]
    for manifest in manifests:
        manifest.refuse_other_content()
    for manifest in manifests:
        manifest.start()
    return manifests


def finish(manifests: Iterable[Manifest], counts: Mapping[str, Any]) -> None:
    """Write the final manifests with the same ``counts``."""
    for manifest in manifests:
        manifest.counts = dict(counts)
        manifest.done()


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of up to ``size`` items (``itertools.batched`` needs Python 3.12)."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
