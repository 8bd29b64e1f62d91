"""Where the numbers of a report come from: model, sampling, seed and commit, as the manifests of its files say."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cobalt.records.manifest import manifest_path
from cobalt.records.training_run import METRICS_FILE, training_manifest
from cobalt.reporting.runs import KINDS, NamedRun
from cobalt.tables import Cell, Table

COMMIT_DIGITS = 10
START_MODEL = "actor_rollout_ref.model.path"
Manifest = Mapping[str, Any]


def files_table(runs: Sequence[NamedRun]) -> Table:
    """What was given, and so what could be shown."""
    kinds = [kind for kind in KINDS if any(run.of(kind) for run in runs)]
    rows = [[run.name, *(len(run.of(kind)) or None for kind in kinds)] for run in runs]
    return Table(
        "files",
        "Files of each run",
        "A run is missing from the tables of kinds that it has no file of.",
        ("run", *kinds),
        rows,
    )


def origins_table(runs: Sequence[NamedRun]) -> Table:
    """One row per file. What no manifest says is left empty."""
    rows = [[run.name, kind, *_origin(path)] for run in runs for kind, paths in run.files.items() for path in paths]
    return Table(
        "origins",
        "Where the numbers come from",
        "From the manifests of the files, and of those that they were made from.",
        ("run", "kind", "file", "model", "sampling", "seed", "checker", "commit"),
        rows,
    )


def _origin(path: Path) -> list[Cell]:
    chain = list(
        _manifests(training_manifest(path.parent) if path.name == METRICS_FILE else manifest_path(path), set())
    )
    contents = [manifest.get("content", {}) for manifest in chain]
    sampling = _first(content.get("sampling") for content in contents)
    execution = _first(content.get("execution") for content in contents)
    commit = _first(manifest.get("git_commit") for manifest in chain)
    return [
        path.name,
        _first(_model(manifest) for manifest in chain),
        ", ".join(f"{name} {value}" for name, value in sampling.items()) if sampling else None,
        _first(manifest.get("seed") for manifest in chain),
        execution["checker"] if execution else None,
        commit[:COMMIT_DIGITS] if commit else None,
    ]


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
