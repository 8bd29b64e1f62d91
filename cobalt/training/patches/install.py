"""Applies the table of patches: each right after (or around) the import of the veRL module that it names.

``install`` is the training job's ``worker_process_setup_hook``: Ray calls it in every worker before anything else.
Each patch that becomes active says so on stdout.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from cobalt.errors import SetupError
from cobalt.training.online.settings import ONLINE_VARIABLE
from cobalt.training.patches.table import BACKEND_VARIABLE, SHARE_VARIABLE, Patch, patches_of

HOOK = f"{__name__}.install"
"""``install``, by the name that Ray's workers resolve."""
APPLIED = "__cobalt_patches__"
"""Attribute of a patched module: the patches that it has, so that none is applied twice."""


def install() -> None:
    """Make the patches of the backend in ``COBALT_BACKEND`` active in this process. Calling it again is harmless.

    Modules that are imported already are patched at once. Raises ``SetupError`` for another version of veRL.
    """
    share_prompts, online = os.environ.get(SHARE_VARIABLE) == "1", bool(os.environ.get(ONLINE_VARIABLE))
    patches = usable_patches(os.environ.get(BACKEND_VARIABLE, "verl"), share_prompts, online)
    others = [finder for finder in sys.meta_path if not isinstance(finder, PatchingFinder)]
    sys.meta_path[:] = [PatchingFinder(patches), *others]
    for patch in patches:
        if patch.apply is not None and patch.module in sys.modules:
            _apply(patch, sys.modules[patch.module])


def usable_patches(backend: str, share_prompts: bool, online: bool = False) -> tuple[Patch, ...]:
    """The patches of a backend. Raises ``SetupError`` for an unknown one, and if any is not for the installed veRL."""
    installed = version("verl")
    patches = patches_of(backend, share_prompts, online)
    for patch in patches:
        if installed not in patch.versions:
            raise SetupError(
                f"veRL {installed} is installed, and {patch.apply or patch.during} is for veRL "
                f"{', '.join(patch.versions)} only: install that one"
            )
    return patches


class PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds modules as usual, and patches those in the table when they are executed."""

    def __init__(self, patches: Sequence[Patch]):
        self._patches = patches

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """See ``importlib``; None for modules that have no patch."""
        patches = [patch for patch in self._patches if patch.module == fullname]
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if patches else None
        if spec is None or spec.loader is None:
            return None
        spec.loader.exec_module = partial(_execute, spec.loader.exec_module, patches)
        return spec


def _execute(execute: Callable[[ModuleType], None], patches: Sequence[Patch], module: ModuleType) -> None:
    vars(module).pop(APPLIED, None)  # a module that is executed again (reload) has its own definitions back
    with ExitStack() as stack:
        for patch in patches:
            if patch.during is not None:
                stack.enter_context(resolve_name(patch.during)())
        execute(module)
    for patch in patches:
        _apply(patch, module)


def _apply(patch: Patch, module: ModuleType) -> None:
    applied: set[Patch] = vars(module).setdefault(APPLIED, set())
    if patch in applied:
        return
    if patch.apply is not None:
        resolve_name(patch.apply)(module)
    applied.add(patch)
    print(f"cobalt: patches {patch.module} ({patch.what})", flush=True)
