"""A package that is not installed here."""

import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock


class StandIn:
    """Any module of ``package``, with any names; for ``sys.meta_path``. ``names``: what stands in each of them."""

    def __init__(self, package: str, **names: Any):
        self.package, self.names = package, names

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        if name.split(".")[0] == self.package:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock()
        for name, value in {"__path__": [], "__spec__": spec, **self.names}.items():
            setattr(module, name, value)
        return module

    def exec_module(self, _module: Any) -> None: ...


@contextmanager
def stood_in(*stand_ins: StandIn) -> Iterator[None]:
    """Imports of the body find them. They are forgotten afterwards, as are veRL's modules for engines."""
    before = set(sys.modules)
    sys.meta_path[:0] = stand_ins  # type: ignore[arg-type]
    try:
        yield
    finally:
        del sys.meta_path[: len(stand_ins)]
        forgotten = (
            *(stand_in.package for stand_in in stand_ins),
            "verl.workers.rollout",
            "verl.utils.vllm",
            "verl.third_party.vllm",
        )
        for name in set(sys.modules) - before:
            if name.startswith(forgotten):
                del sys.modules[name]
