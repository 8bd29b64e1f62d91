"""Where commands run programs: the Ray Serve app ``evaluator``, or an executor in this process.

Both give the same object: ``run`` one program, ``run_many`` programs. There is no silent fallback from one to the
other. Infrastructure faults are retried here; what remains is an ``ExecutionResult`` with ``infra_error``.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

from cobalt.errors import SetupError
from cobalt.records import ExecutionResult, TestCases
from cobalt.sandbox.executor import Executor, Tests

APP_NAME = "evaluator"
START_HINT = "start it with: serve run remote_reward_server:app --name evaluator --route-prefix /evaluator"

PROGRAMS_PER_CALL = 8
"""A call costs milliseconds whatever it carries; more programs per call would leave replicas idle at the end."""

MAX_ATTEMPTS = 6
FIRST_DELAY_S = 0.5
"""Doubled after each attempt: about 16 s in all, enough for Serve to start another replica."""

Program = tuple[str | None, Tests]


class ExecutionService(Protocol):
    """What ``open_execution_service`` gives. ``ValueError`` for malformed tests, never an exception for infra."""

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """One program on its tests; ``code`` None: no program could be extracted."""
        ...

    async def run_many(self, programs: Sequence[Program]) -> list[ExecutionResult]:
        """Results in the order of ``programs``."""
        ...


@asynccontextmanager
async def open_execution_service(executor: Literal["serve", "local"], **limits: Any) -> AsyncIterator[ExecutionService]:
    """Connect to the ``evaluator`` app, or start an ``Executor(**limits)`` here.

    The app has its own limits, so ``limits`` are for ``local`` only. Raises ``SetupError`` if there is no service, or
    no sandbox.
    """
    if executor == "serve":
        if limits:
            raise ValueError("limits are set when the evaluator app is started, not by its clients")
        yield ServedEvaluator(await asyncio.to_thread(_app_handle))
    else:
        async with Executor(**limits) as local:
            yield local


def _app_handle() -> Any:
    """The running app's handle; connects to the Ray cluster of this machine or of ``RAY_ADDRESS``."""
    import ray
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        if not ray.is_initialized():
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        return serve.get_app_handle(APP_NAME)
    except (ConnectionError, RayServeException, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise SetupError(f"no execution service ({reason}); {START_HINT}, or pass --executor local") from None


class ServedEvaluator:
    """Client of the ``evaluator`` app by handle. One call carries several programs."""

    def __init__(self, handle: Any):
        self._handle = handle

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """See ``ExecutionService``."""
        return (await self.run_many([(code, tests)]))[0]

    async def run_many(self, programs: Sequence[Program]) -> list[ExecutionResult]:
        """See ``ExecutionService``."""
        parsed = [(code, TestCases.parse(tests)) for code, tests in programs]
        calls = [parsed[start : start + PROGRAMS_PER_CALL] for start in range(0, len(parsed), PROGRAMS_PER_CALL)]
        results = await asyncio.gather(*(self._call(programs) for programs in calls))
        return [result for part in results for result in part]

    async def _call(self, programs: list[tuple[str | None, TestCases]]) -> list[ExecutionResult]:
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        delay_s = FIRST_DELAY_S
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return await self._handle.run_many.remote(programs)
            except (RayError, RayServeException, ConnectionError) as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if attempt < MAX_ATTEMPTS:
                await asyncio.sleep(delay_s)
                delay_s *= 2
        return [ExecutionResult.infra(len(tests), f"execution service failed ({reason})") for _, tests in programs]
