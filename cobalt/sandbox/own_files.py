"""What a user brings in a Python file of their own, named ``FILE.py:NAME``: a checker, an engine, a perturbation.

The file runs in the process that needs it and with that process's rights. Only a checker judges in a sandbox, and there
it may import what programs may. Outputs record the file by the hash of its text.
"""

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from cobalt.sandbox.errors import InputError

SEPARATOR = ".py:"
HASH_DIGITS = 12


def is_own(name: str) -> bool:
    """Whether ``name`` has the form ``FILE.py:NAME``."""
    return SEPARATOR in name


def _parts(name: str) -> tuple[Path, str]:
    """File and attribute; ``InputError`` if there is no such file."""
    stem, _, attribute = name.rpartition(SEPARATOR)
    path = Path(f"{stem}.py")
    if not path.is_file():
        raise InputError(f"{name}: no such file {path}")
    return path.resolve(), attribute


def with_absolute_path(name: str) -> str:
    """The same object for processes with another working directory."""
    path, attribute = _parts(name)
    return f"{path}:{attribute}"


def identity_of(name: str) -> str:
    """``FILE.py:NAME@hash``, without the folder: what an output records."""
    path, attribute = _parts(name)
    return f"{path.name}:{attribute}@{hashlib.sha256(path.read_bytes()).hexdigest()[:HASH_DIGITS]}"


def source_of(name: str) -> tuple[str, str]:
    """The file's text, and what it defines."""
    path, attribute = _parts(name)
    return path.read_text(encoding="utf-8"), attribute


def load_own(name: str) -> Any:
    """The callable that ``name`` means. ``InputError`` for a file that cannot be run, or has nothing of that name."""
    path, attribute = _parts(name)
    module_name = f"own_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None, "the name ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look it up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise InputError(f"{path} defines no function or class '{attribute}'")
    return function
