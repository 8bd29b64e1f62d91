"""The life of a run: paths are checked, manifests say what is running, and in the end what came of it.

Nothing is written before all checks have passed, and bad input that is found later puts things back as they were.
"""

import contextlib
import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cobalt.errors import InputError, SetupError
from cobalt.records import Manifest


@dataclasses.dataclass
class Run:
    """A run that has begun. What its manifests will say: fill it before the block ends."""

    counts: dict[str, Any] = dataclasses.field(default_factory=dict)
    origin: dict[str, Any] = dataclasses.field(default_factory=dict)
    """``model`` and ``prompts`` that the output's conversations come from, for later stages."""


@contextlib.contextmanager
def recorded_run(
    command: str,
    config: Mapping[str, Any],
    inputs: Sequence[str | Path],
    contents: Mapping[Path, Mapping[str, Any]],
    adopt: bool = False,
) -> Iterator[Run]:
    """One manifest per output, from ``status: running`` to ``done``.

    ``config``: all flags; ``contents``: per output the settings that shape it; ``adopt``: an output without a manifest
    may be taken over. Raises ``InputError``
    for a missing input, an output that is an input or another output, and an output that was made with other settings.
    """
    check_paths(inputs, list(contents))
    manifests = [Manifest(path, command, config, content, inputs) for path, content in contents.items()]
    for manifest in manifests:
        manifest.refuse_other_content(adopt)
    before = [_content_of(manifest) for manifest in manifests]
    foreign = [
        content is None and manifest.output.exists() for content, manifest in zip(before, manifests, strict=True)
    ]
    for manifest in manifests:
        manifest.start()
    begun = [_content_of(manifest) for manifest in manifests]
    run = Run()
    try:
        yield run
    except InputError:
        for manifest, old, ours, was_foreign in zip(manifests, before, begun, foreign, strict=True):
            if _content_of(manifest) == ours:  # else a run beside this one has written it by now
                _put_back(manifest, old, was_foreign)
        raise
    for manifest in manifests:
        manifest.counts, manifest.origin = dict(run.counts), dict(run.origin)
        manifest.done()


def check_paths(inputs: Sequence[str | Path], outputs: Sequence[str | Path]) -> None:
    """Raise ``InputError`` for a missing input, an output that is an input or another one, or cannot be written."""
    for path in inputs:
        if not Path(path).is_file():
            raise InputError.at(path, None, "no such file")
    taken = {Path(path).resolve(): "the input" for path in inputs}
    for path in outputs:
        if Path(path).resolve() in taken:
            raise InputError.at(path, None, f"output and {taken[Path(path).resolve()]} are the same file")
        taken[Path(path).resolve()] = "another output"
        refuse_unwritable(Path(path).parent)


def refuse_unwritable(folder: str | Path) -> None:
    """Raise ``InputError`` if files cannot be made in ``folder``, which need not exist yet."""
    there = next(path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError.at(there, None, "is a file, not a folder")
    if not os.access(there, os.W_OK):
        raise InputError.at(there, None, "no permission to write in this folder")


@contextlib.contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A folder that appears complete or not at all: write to the path that this gives, beside ``output``.

    What a run that broke off left there is removed. ``output`` must not exist (``refuse_existing``).
    """
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    yield partial
    os.replace(partial, output)


def refuse_existing(output: Path) -> None:
    """Raise ``InputError`` if ``output`` exists."""
    if output.exists():
        raise InputError.at(output, None, "exists already; move it away or choose another output")


def _content_of(manifest: Manifest) -> bytes | None:
    return manifest.path.read_bytes() if manifest.path.exists() else None


def _put_back(manifest: Manifest, old: bytes | None, foreign: bool) -> None:
    """The manifest that was there before; none if there was none and the output holds nothing, or is not ours."""
    if old is not None:
        manifest.path.write_bytes(old)
    elif foreign and manifest.output.stat().st_size > 0:
        manifest.path.unlink()
    elif not manifest.output.exists() or manifest.output.stat().st_size == 0:
        manifest.path.unlink()
        manifest.output.unlink(missing_ok=True)


def refuse_infra_rate(failed: int, total: int, units: str, limit: float, causes: Counter[str] | None = None) -> None:
    """Raise ``SetupError`` if more than the share ``limit`` (--max_infra_rate) of all ``units`` failed.

    ``causes``: texts of the failures, of which the commonest is told.
    """
    if failed > limit * total:
        told = "".join(f"; {count} x {cause}" for cause, count in (causes or Counter()).most_common(1))
        raise SetupError(
            f"{failed} of {total} {units} met an infrastructure failure (--max_infra_rate {limit:g}); "
            f"run the same command again to retry them{told}"
        )
