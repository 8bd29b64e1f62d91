"""Running the programs of one batch: all at once, identical ones once, a bounded number in flight."""

import asyncio

from cobalt.records import ExecutionResult
from cobalt.serving.execution import ExecutionService

MAX_IN_FLIGHT = 512
"""Programs at the service at once. More would only wait there."""


class BatchExecution:
    """Hands the programs of one batch to ``service``. Lives within one event loop."""

    def __init__(self, service: ExecutionService, max_in_flight: int = MAX_IN_FLIGHT):
        self._service = service
        self._slots = asyncio.Semaphore(max_in_flight)
        self._tasks: dict[tuple[str, str], asyncio.Task[ExecutionResult]] = {}

    async def run(self, code: str, tests: str) -> ExecutionResult:
        """Run ``code`` on ``tests`` (JSON); a program that was asked for before is not run again."""
        program = (code, tests)
        if program not in self._tasks:
            self._tasks[program] = asyncio.create_task(self._run(code, tests))
        return await asyncio.shield(self._tasks[program])

    async def _run(self, code: str, tests: str) -> ExecutionResult:
        async with self._slots:
            return await self._service.run(code, tests)
