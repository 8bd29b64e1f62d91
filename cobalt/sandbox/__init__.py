"""The sealed executor: runs untrusted programs fast and lets nothing out. ``docs/sandbox.md`` describes it."""

from typing import TYPE_CHECKING, Any

from cobalt.sandbox.limits import Limits

if TYPE_CHECKING:
    from cobalt.sandbox.executor import Executor

__all__ = ["Executor", "Limits"]


def __getattr__(name: str) -> Any:
    """``Executor`` on first use: the workers, which import this package too, have no need of asyncio."""
    if name == "Executor":
        from cobalt.sandbox.executor import Executor

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
