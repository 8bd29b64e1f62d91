"""The sealed executor: runs untrusted programs fast and lets nothing out (``docs/sandbox.md``).

It imports nothing else of ``cobalt``, and nothing but Python's standard library.
"""

from typing import TYPE_CHECKING, Any

from cobalt.sandbox.limits import Limits
from cobalt.sandbox.results import ExecutionResult, Verdict
from cobalt.sandbox.tests import TestCases

if TYPE_CHECKING:
    from cobalt.sandbox.executor import Executor

__all__ = ["ExecutionResult", "Executor", "Limits", "TestCases", "Verdict"]


def __getattr__(name: str) -> Any:
    if name == "Executor":  # found on first use: workers import this package too, and have no need of asyncio
        from cobalt.sandbox.executor import Executor

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
