"""What the data commands share: opening manifests without overwriting, skipping invalid lines, showing progress."""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cobalt.cli import progress_bar
from cobalt.errors import InputError
from cobalt.records import Manifest, count_lines
from cobalt.records.jsonl import Record

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


@contextlib.contextmanager
def open_manifests(
    command: str, config: Any, inputs: Sequence[str | Path], contents: Mapping[Path, Mapping[str, Any]]
) -> Iterator[list[Manifest]]:
    """Check the paths and start one manifest per output; ``contents`` maps an output to the settings that shape it.

    Raises ``InputError`` for a missing input, an output that is an input or another output, and an output that was
    made with other settings. Nothing is written before all checks have passed, and an ``InputError`` inside the block
    puts things back as they were.
    """
    check_paths(inputs, list(contents))
    config_fields = dataclasses.asdict(config)
    manifests = [Manifest(path, command, config_fields, content, inputs) for path, content in contents.items()]
    for manifest in manifests:
        manifest.refuse_other_content()
    before = [manifest.path.read_bytes() if manifest.path.exists() else None for manifest in manifests]
    for manifest in manifests:
        manifest.start()
    try:
        yield manifests
    except InputError:
        for manifest, old in zip(manifests, before, strict=True):
            _put_back(manifest, old)
        raise


def check_paths(inputs: Sequence[str | Path], outputs: Sequence[str | Path]) -> None:
    """Raise ``InputError`` for a missing input, and for an output that is an input or another output."""
    for path in inputs:
        if not Path(path).is_file():
            raise InputError.at(path, None, "no such file")
    taken = {Path(path).resolve(): "the input" for path in inputs}
    for path in outputs:
        if Path(path).resolve() in taken:
            raise InputError.at(path, None, f"output and {taken[Path(path).resolve()]} are the same file")
        taken[Path(path).resolve()] = "another output"


def _put_back(manifest: Manifest, old: bytes | None) -> None:
    """The manifest that was there before; none if there was none and the output holds nothing."""
    if old is not None:
        manifest.path.write_bytes(old)
    elif not manifest.output.exists() or manifest.output.stat().st_size == 0:
        manifest.path.unlink()
        manifest.output.unlink(missing_ok=True)


def finish(manifests: Iterable[Manifest], counts: Mapping[str, Any]) -> None:
    """Write the final manifests with the same ``counts``."""
    for manifest in manifests:
        manifest.counts = dict(counts)
        manifest.done()


def with_progress(rows: Iterable[Record], path: str | Path) -> Iterable[Record]:
    """The rows of ``path`` under a progress bar."""
    return progress_bar(iterable=rows, total=count_lines(path), desc=Path(path).name, unit=" rows")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of up to ``size`` items (``itertools.batched`` needs Python 3.12)."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
