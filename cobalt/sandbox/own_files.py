"""What a user brings in a Python file of their own, named ``FILE.py:NAME``: a checker, an engine, a perturbation.

The file runs in the process that needs it and with that process's rights. Only a checker judges in a sandbox, and there
it may import what programs may. Outputs record the file by the hash of its text.
"""

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.sandbox.errors import InputError

SEPARATOR = ".py:"
HASH_DIGITS = 12


def is_own(name: str) -> bool:
    """Whether ``name`` has the form ``FILE.py:NAME``."""
    return SEPARATOR in name


@dataclass(frozen=True)
class OwnFile:
    """A file as it was when it was read, and the name of what it defines. ``str`` gives ``FILE.py:NAME``."""

    path: Path
    attribute: str
    text: bytes

    @classmethod
    def read(cls, name: str) -> "OwnFile":
        """``InputError`` for another form, or if there is no such file."""
        if not is_own(name):
            raise InputError(f"{name} must be FILE.py:NAME")
        stem, _, attribute = name.rpartition(SEPARATOR)
        path = Path(f"{stem}.py")
        if not path.is_file():
            raise InputError(f"{name}: no such file {path}")
        return cls(path.resolve(), attribute, path.read_bytes())

    def __str__(self) -> str:
        return f"{self.path}:{self.attribute}"

    @property
    def identity(self) -> str:
        """``FILE.py:NAME@hash``, without the folder: what an output records."""
        return f"{self.path.name}:{self.attribute}@{hashlib.sha256(self.text).hexdigest()[:HASH_DIGITS]}"

    @property
    def source(self) -> str:
        """The text, in the encoding that it declares."""
        return importlib.util.decode_source(self.text)

    def load(self) -> Any:
        """The callable. ``InputError`` for a file that cannot be run, or has nothing of that name."""
        module_name = f"own_{self.path.stem}"
        spec = importlib.util.spec_from_file_location(module_name, self.path)
        assert spec is not None, "the name ends in .py"
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses and pickle look it up
        try:
            exec(compile(self.text, str(self.path), "exec"), vars(module))
        except (Exception, SystemExit) as error:
            raise InputError(f"{self.path} cannot be run: {type(error).__name__}: {error}") from error
        function = getattr(module, self.attribute, None)
        if not callable(function):
            raise InputError(f"{self.path} defines no function or class '{self.attribute}'")
        return function
