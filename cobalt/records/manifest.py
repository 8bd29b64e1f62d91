"""The manifest beside each output, ``<output>.manifest.json``: what was run, on what, and with which outcome.

It is written at the start (``status: running``) and replaced atomically at the end (``done``). Resuming compares
``content_hash``: a hash of what changes the content of the output, not of paths, concurrency, hosts or secrets.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cobalt.errors import InputError

SECRET_WORDS = ("api_key", "secret", "access_key", "token_id", "session_token", "bearer_token", "password")
USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
SHOWN_CHARACTERS = 80
"""Of a setting's value, in an error message."""

REPORTED_PACKAGES = ("cobalt-rl", "torch", "transformers", "verl", "vllm", "ray", "litellm", "numpy", "datasets")


def manifest_path(output: str | Path) -> Path:
    """Where the manifest of ``output`` lives."""
    output = Path(output)
    return output.with_name(output.name + ".manifest.json")


def origin_of(output: str | Path) -> dict[str, Any]:
    """``model`` and ``prompts`` that a file's conversations come from, as its manifest says; {} without a manifest."""
    path = manifest_path(output)
    return json.loads(path.read_text()).get("origin", {}) if path.exists() else {}


def journal_path(output: str | Path) -> Path:
    """Where a run may keep work that is not in ``output`` yet."""
    output = Path(output)
    return output.with_name(output.name + ".journal")


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def content_hash(content: Mapping[str, Any]) -> str:
    """Hash of the settings that change an output's content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def is_secret(name: str) -> bool:
    """Whether a flag or an environment variable of this name holds a secret."""
    return any(word in name.lower() for word in SECRET_WORDS)


def without_userinfo(text: str) -> str:
    """``text`` with the addresses in it freed from ``user:password@``.

    >>> without_userinfo("http://me:word@host/v1")
    'http://host/v1'
    """
    return USERINFO.sub("", text)


def _public(config: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` without secrets."""
    return {
        name: without_userinfo(value) if isinstance(value, str) else value
        for name, value in config.items()
        if not is_secret(name)
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git_commit() -> str | None:
    """Commit of the checkout that holds this file, or None (installed package, no git)."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


class Manifest:
    """One output's manifest. ``start``, fill ``counts`` and ``origin`` (what later stages ask about), then ``done``."""

    def __init__(
        self,
        output: str | Path,
        command: str,
        config: Mapping[str, Any],
        content: Mapping[str, Any],
        inputs: Iterable[str | Path] = (),
    ):
        """``config``: all flags (secrets are dropped); ``content``: those that change the output's content."""
        self.output = Path(output)
        self.path = manifest_path(output)
        self.counts: dict[str, Any] = {}
        self.origin: dict[str, Any] = {}
        self._started = time.time()
        self._fields: dict[str, Any] = {
            "command": command,
            "config": _public(config),
            "content": dict(content),
            "content_hash": content_hash(content),
            "seed": config.get("seed"),
            "inputs": {str(path): file_sha256(path) for path in inputs},
            "versions": _versions(),
            "git_commit": _git_commit(),
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started)),
        }

    def refuse_other_content(self, adopt: bool = False) -> None:
        """Raise ``InputError`` if the output was made or begun with other settings, or by something else.

        ``adopt``: an output without a manifest may be taken over.
        """
        begun = (self.output, journal_path(self.output))
        if not any(path.exists() and path.stat().st_size for path in begun):
            return
        if not self.path.exists():
            if adopt:
                return
            raise InputError.at(
                self.output,
                None,
                "exists but has no manifest; move it away, choose another output, or try --adopt",
            )
        old = json.loads(self.path.read_text())
        if old.get("content_hash") != self._fields["content_hash"]:
            changed = _differences(old.get("content", {}), self._fields["content"])
            raise InputError.at(
                self.output, None, f"was made with other settings ({changed}); move it away or choose another output"
            )

    def start(self) -> None:
        """Write the manifest with ``status: running``."""
        self._write("running")

    def done(self) -> None:
        """Replace the manifest by the final one: ``status: done``, counts, wall time in seconds."""
        self._write("done")

    def _write(self, status: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        wall = round(time.time() - self._started, 3) if status == "done" else None
        found = {"origin": self.origin, "counts": self.counts, "wall_time_s": wall}
        fields = {"status": status, **self._fields, **found}
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text(json.dumps(fields, indent=2, default=str) + "\n")
        os.replace(temporary, self.path)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    names = sorted(
        name
        for name in {*old, *new}
        if json.dumps(old.get(name), default=str) != json.dumps(new.get(name), default=str)
    )
    return ", ".join(f"{name}: {_short(old.get(name))} -> {_short(new.get(name))}" for name in names)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
