"""The sealed executor: runs untrusted programs fast and lets nothing out. ``docs/sandbox.md`` describes it.

``Executor`` and ``Limits`` are found on first use: the workers, which import this package too, have no need of
asyncio, and the check of a machine (``cobalt.sandbox.check``) runs before anything is installed.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cobalt.sandbox.executor import Executor
    from cobalt.sandbox.limits import Limits

__all__ = ["Executor", "Limits"]

_HOMES = {"Executor": "cobalt.sandbox.executor:Executor", "Limits": "cobalt.sandbox.limits:Limits"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return resolve_name(_HOMES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
