"""The sealed executor: runs untrusted programs fast and lets nothing out."""

from cobalt.sandbox.executor import Executor
from cobalt.sandbox.limits import Limits

__all__ = ["Executor", "Limits"]
