"""The life of a run, and the manifest beside each output, ``<output>.manifest.json``: what ran, on what, how it ended.

Paths are checked first. Then the manifest is written (``status: running``), and at the end replaced (``done``). A rerun
compares ``content_hash``, a hash of the settings that change the output's content: not paths, concurrency or secrets.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cobalt.errors import InputError, SetupError, first_line
from cobalt.records.jsonl import no_file, refuse_other_writer, write_whole

SECRET_WORDS = ("api_key", "secret", "access_key", "token_id", "session_token", "bearer_token", "password")
USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
SHOWN_CHARACTERS = 80
"""Characters of a setting's value in an error message."""
COMPRESSED_ENDINGS = (".gz", ".xz")
"""Endings of files that are read as what they hold."""
_SECTIONS = ("config", "content", "inputs", "origin", "counts")
REPORTED_PACKAGES = (
    *("cobalt-rl", "torch", "transformers", "verl", "vllm", "sglang", "ray", "litellm"),
    *("numpy", "datasets"),
)


def manifest_path(output: str | Path) -> Path:
    return Path(f"{Path(output)}.manifest.json")


def journal_path(output: str | Path) -> Path:
    """Where a run may keep work that is not in ``output`` yet."""
    return Path(f"{Path(output)}.journal")


def origin_of(output: str | Path) -> dict[str, Any]:
    """``model``, ``model_id``, ``prompts`` and ``checker`` that a file comes from, as far as its manifest says it."""
    return _stored(output).get("origin", {})


def _stored(output: str | Path) -> dict[str, Any]:
    """The manifest of a file, or of what it is a link to or was compressed from; empty if there is none."""
    names = [str(output), os.path.realpath(output)]
    names += [name.removesuffix(suffix) for name in names for suffix in COMPRESSED_ENDINGS]
    found = (manifest_path(name) for name in names)
    path = next((path for path in found if path.exists()), None)
    return {} if path is None else read_manifest(path)


def tell_other_origin(path: str | Path, **here: str | None) -> None:
    """One line on stderr for each of ``here``, ``model_id`` or ``checker``, that differs where ``path`` was made.

    None, and what no manifest says, is not compared.
    """
    there = origin_of(path)
    for name, value in here.items():
        if None not in (value, there.get(name)) and value != there[name]:
            word = name.removesuffix("_id")
            told = f"the {word} is {value} here, and was {there[name]} where {path} was made"
            print(f"note: {told}; if that is not meant, use one --{word} for both", file=sys.stderr, flush=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest at ``path``. Raises ``InputError`` if it is none."""
    try:
        manifest = json.loads(path.read_text())
        if not all(isinstance(part, dict) for part in (manifest, *(manifest.get(name, {}) for name in _SECTIONS))):
            raise ValueError("no object")
    except (ValueError, AttributeError) as error:
        raise InputError.at(path, None, f"no manifest ({first_line(error)}); move it away with its output") from None
    return manifest


def file_sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_hash(content: Mapping[str, Any]) -> str:
    """Hash of the settings that change an output's content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def is_secret(name: str) -> bool:
    """Whether a flag or an environment variable of this name holds a secret."""
    return any(word in name.lower() for word in SECRET_WORDS)


def without_userinfo(text: str) -> str:
    """``text`` without the ``user:password@`` of its addresses.

    >>> without_userinfo("http://me:word@host/v1")
    'http://host/v1'
    """
    return USERINFO.sub("", text)


def without_secrets(value: Any) -> Any:
    """A setting, or nested ones, without what is secret."""
    if isinstance(value, Mapping):
        return {name: without_secrets(inner) for name, inner in value.items() if not is_secret(str(name))}
    if isinstance(value, list | tuple):
        return [without_secrets(inner) for inner in value]
    return without_userinfo(value) if isinstance(value, str) else value


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """``NAME: OLD -> NEW`` for each setting that differs; "" if none does."""
    changed = []
    for name in sorted({*old, *new}):
        values = [settings.get(name) for settings in (old, new)]
        if json.dumps(values[0], default=str) != json.dumps(values[1], default=str):
            texts = [repr(value) for value in values]
            before, after = (t if len(t) <= SHOWN_CHARACTERS else f"{t[:SHOWN_CHARACTERS]}..." for t in texts)
            changed.append(f"{name}: {before} -> {after}")
    return ", ".join(changed)


@functools.cache
def _software() -> dict[str, Any]:
    """The ``versions`` of packages, and the ``git_commit`` of the checkout that holds this file, if there is one."""
    versions, commit = {"python": platform.python_version()}, None
    for package in REPORTED_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    with contextlib.suppress(FileNotFoundError):
        asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--verify", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or None
    return {"versions": versions, "git_commit": commit}


class Manifest:
    """One output's manifest: ``start``, fill ``counts`` and ``origin``, then ``done``."""

    def __init__(
        self,
        output: str | Path,
        command: str,
        config: Mapping[str, Any],
        content: Mapping[str, Any],
        inputs: Iterable[str | Path] = (),
    ):
        """``config``: all flags (secrets are dropped); ``content``: those that change the output's content."""
        self.output, self.path = Path(output), manifest_path(output)
        self.counts: dict[str, Any] = {}
        self.origin: dict[str, Any] = {}
        """``model``, ``model_id``, ``prompts`` and ``checker`` that the output comes from, for later stages."""
        self._started, self._earlier_s = time.time(), 0.0
        self._fields: dict[str, Any] = {
            "command": command,
            "config": without_secrets(config),
            "content": dict(content),
            "content_hash": content_hash(content),
            "seed": config.get("seed"),
            "inputs": {str(path): file_sha256(path) for path in inputs},
            **_software(),
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started)),
        }

    def refuse_other_content(self) -> None:
        """Raise ``InputError`` if the output was made or begun with other settings, or has no manifest."""
        begun = self.written()
        if not begun:
            return
        if not self.path.exists():
            raise InputError.at(min(begun), None, "exists but has no manifest; move it away or choose another output")
        stored = read_manifest(self.path)
        if stored.get("content_hash") == self._fields["content_hash"]:
            return
        changed = changes(stored.get("content", {}), self._fields["content"])
        problem = f"was made with other settings ({changed}); move it away or choose another output"
        raise InputError.at(self.output, None, problem)

    def written(self) -> dict[Path, tuple[int, int]]:
        """Inode and size of the output and of its journal, of those that hold anything."""
        found = {path: path.stat() for path in (self.output, journal_path(self.output)) if path.exists()}
        return {path: (stat.st_ino, stat.st_size) for path, stat in found.items() if stat.st_size}

    def start(self) -> None:
        """Write the manifest with ``status: running``, and the wall time and origin of earlier runs."""
        if (begun := self.written()) and self.path.exists():  # a training's folder has logs before it has one
            stored, written = read_manifest(self.path), max(path.stat().st_mtime for path in begun)
            self.origin = self.origin or stored.get("origin", {})
            self._earlier_s = stored.get("wall_time_s") or 0.0
            if stored.get("status") == "running":  # it was killed: until its last record
                self._earlier_s += max(written - self.path.stat().st_mtime, 0.0)
        self._write("running", self._earlier_s)

    def done(self) -> None:
        """Replace the manifest by the final one: ``status: done``, counts, wall time of all runs in seconds."""
        self._write("done", round(self._earlier_s + time.time() - self._started, 3))

    def _write(self, status: str, wall_time_s: float) -> None:
        outcome = {"origin": self.origin, "counts": self.counts, "wall_time_s": wall_time_s}
        write_whole(self.path, json.dumps({"status": status, **self._fields, **outcome}, indent=2, default=str) + "\n")


@contextlib.contextmanager
def recorded_run(
    command: str,
    config: Mapping[str, Any],
    inputs: Sequence[str | Path],
    contents: Mapping[Path, Mapping[str, Any]],
    origin: Mapping[str, Any] | None = None,
) -> Iterator[Manifest]:
    """One manifest per output, from ``status: running`` to ``done``. Yields the first; all get its counts and origin.

    ``config``: all flags; ``contents``: per output the settings that shape it; ``origin``: where it is known before the
    run, so that the output of a killed one has it, too. An input whose own run has not ended is told on stderr. Nothing
    is written before ``InputError`` is raised for a missing input, an output that is an input or another output, and an
    output that was made with other settings, or that another run is writing. If the block raises ``InputError`` and has
    written nothing, the manifest is put back as it was. Otherwise it stays, ``running``: the next run goes on from
    there.
    """
    check_paths(inputs, list(contents), config)
    manifests = [Manifest(path, command, config, content, inputs) for path, content in contents.items()]
    for path in inputs:
        if _stored(path).get("status") == "running":
            told = "is unfinished: the run that makes it was ended, or goes on"
            print(f"note: {path} {told}", file=sys.stderr, flush=True)
    with contextlib.ExitStack() as held:
        for manifest in manifests:
            held.enter_context(_alone(manifest.output))
        for manifest in manifests:
            manifest.refuse_other_content()
        before = [
            (manifest.path.read_bytes() if manifest.path.exists() else None, manifest.written())
            for manifest in manifests
        ]
        for manifest in manifests:
            manifest.origin = dict(origin or {})
            manifest.start()
        try:
            yield manifests[0]
        except InputError:
            for manifest, (old, written) in zip(manifests, before, strict=True):
                if manifest.written() != written:
                    continue
                if old is not None:
                    manifest.path.write_bytes(old)
                else:
                    for path in (manifest.path, manifest.output, journal_path(manifest.output)):
                        path.unlink(missing_ok=True)
            raise
        for manifest in manifests:
            manifest.counts, manifest.origin = manifests[0].counts, manifests[0].origin
            manifest.done()


@contextlib.contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Keep other runs from ``output``, by a locked file beside it. Raises ``InputError`` if one is writing it."""
    path = Path(f"{output}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        refuse_other_writer(file, path, output)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def check_paths(
    inputs: Sequence[str | Path], outputs: Sequence[str | Path], config: Mapping[str, Any] | None = None
) -> None:
    """Raise ``InputError`` for a missing input, an output that is an input or another one, or cannot be written.

    ``config``: all flags, one of which is named with a missing input. It may be a default that nobody has typed.
    """
    flags = {str(path): f" (--{name})" for name, path in (config or {}).items() if isinstance(path, Path)}
    for path in inputs:
        if not Path(path).is_file():
            raise InputError.at(path, None, f"{no_file(path)}{flags.get(str(path), '')}")
    taken = {Path(path).resolve(): "the input" for path in inputs}
    for path in outputs:
        if Path(path).resolve() in taken:
            raise InputError.at(path, None, f"output and {taken[Path(path).resolve()]} are the same file")
        taken[Path(path).resolve()] = "another output"
        refuse_unwritable(Path(path).parent)


def existing(folder: str | Path) -> Path:
    """``folder``, or else the nearest one above it that exists."""
    absolute = Path(folder).absolute()
    return next(path for path in (absolute, *absolute.parents) if path.exists())


def refuse_unwritable(folder: str | Path) -> None:
    """Raise ``InputError`` if files cannot be made in ``folder``, which need not exist yet."""
    there = existing(folder)
    if not there.is_dir():
        raise InputError.at(there, None, "is a file, not a folder")
    if not os.access(there, os.W_OK):
        raise InputError.at(there, None, "no permission to write in this folder")


def refuse_existing(output: Path) -> None:
    """Raise ``InputError`` if ``output`` exists."""
    if output.exists():
        raise InputError.at(output, None, "exists already; move it away or choose another output")


@contextlib.contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A path beside ``output`` to write a folder to; it becomes ``output`` at the end, so that no half of it appears.

    What an interrupted run left there is removed. ``output`` must not exist (``refuse_existing``).
    """
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    yield partial
    usual_modes(partial)
    os.replace(partial, output)


def usual_modes(folder: Path) -> None:
    """Give the files in ``folder`` the mode of the umask. safetensors lets only their owner read its own."""
    os.umask(mask := os.umask(0))
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~mask)


def refuse_infra_rate(failed: int, total: int, units: str, limit: float, causes: Counter[str] | None = None) -> None:
    """Raise ``SetupError`` if more than the share ``limit`` (--max_infra_rate) of all ``units`` failed.

    It tells the commonest of ``causes``, the texts of the failures.
    """
    if failed > limit * total:
        commonest = "".join(f"; {count} x {cause}" for cause, count in (causes or Counter()).most_common(1))
        raise SetupError(
            f"{failed} of {total} {units} met an infrastructure failure (--max_infra_rate {limit:g}); "
            f"run the same command again to retry them{commonest}"
        )
