"""Where a result file comes from: model, sampling, seed and commit, as its manifest says and those behind it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.records.manifest import manifest_path

COMMIT_DIGITS = 10
START_MODEL = "actor_rollout_ref.model.path"
Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """What no manifest says is None."""

    file: str
    model: str | None = None
    sampling: Mapping[str, Any] | None = None
    seed: int | None = None
    checker: str | None = None
    commit: str | None = None
    execution: Mapping[str, Any] | None = None
    """What decided the verdicts in this file itself."""


def source_of(output: Path, manifest: Path | None = None) -> Source:
    """Of a file; ``manifest`` if it does not stand where that of an output does."""
    chain = list(_manifests(manifest or manifest_path(output), set()))
    contents = [link.get("content", {}) for link in chain]
    execution = _first(content.get("execution") for content in contents)
    commit = _first(link.get("git_commit") for link in chain)
    return Source(
        output.name,
        _first(_model(link) for link in chain),
        _first(content.get("sampling") for content in contents),
        _first(link.get("seed") for link in chain),
        execution["checker"] if execution else None,
        commit[:COMMIT_DIGITS] if commit else None,
        contents[0].get("execution") if contents else None,
    )


def _manifests(path: Path, seen: set[Path]) -> Iterator[Manifest]:
    """The manifest, then those of the files that its file was made from: where they were, or moved along with it."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    manifest = json.loads(path.read_text())
    yield manifest
    for made_from in manifest.get("inputs", {}):
        there = manifest_path(made_from)
        yield from _manifests(there if there.is_file() else path.parent / there.name, seen)


def _model(manifest: Manifest) -> str | None:
    """Of a command that asks a model, or the start of a training."""
    content = manifest.get("content", {})
    return content.get("model_id") or content.get("model") or content.get(START_MODEL)


def _first(values: Iterator[Any]) -> Any:
    return next((value for value in values if value is not None), None)
