"""Running many programs: equal ones once, a bounded number in flight, with a count of what is running and done."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext

from cobalt.records import ExecutionResult, TestCases
from cobalt.serving.execution import ExecutionService


class ExecutionCounter:
    """An execution service that counts: programs running now; programs, tests and CPU-seconds done."""

    def __init__(self, service: ExecutionService):
        self._service = service
        self.active = 0
        self.programs_done = self.tests_done = 0
        self.cpu_s = 0.0

    async def run(self, code: str | None, tests: str | TestCases) -> ExecutionResult:
        """See ``ExecutionService``."""
        self.active += 1
        try:
            result = await self._service.run(code, tests)
        finally:
            self.active -= 1
        self._count(result)
        return result

    async def run_many(self, programs: Sequence[tuple[str | None, TestCases]]) -> list[ExecutionResult]:
        """See ``ExecutionService``."""
        self.active += len(programs)
        try:
            results = await self._service.run_many(programs)
        finally:
            self.active -= len(programs)
        for result in results:
            self._count(result)
        return results

    def work_done(self) -> dict[str, float]:
        """For manifests and metrics."""
        return {"programs_run": self.programs_done, "tests_run": self.tests_done, "executor_cpu_s": self.cpu_s}

    def _count(self, result: ExecutionResult) -> None:
        self.programs_done += 1
        self.tests_done += len(result.passing)
        self.cpu_s += result.cpu_s


class DistinctPrograms:
    """Runs each distinct program on the same tests once, however often it is asked for. Lives within one event loop.

    It keeps every result: make one for a problem, or for a batch. ``max_in_flight``: programs at the service at once.
    """

    def __init__(self, service: ExecutionService | ExecutionCounter, max_in_flight: int | None = None):
        self._service = service
        self._slots = asyncio.Semaphore(max_in_flight) if max_in_flight is not None else nullcontext()
        self._runs: dict[tuple[str | None, str | TestCases], asyncio.Task[ExecutionResult]] = {}

    async def run(self, code: str | None, tests: str | TestCases) -> ExecutionResult:
        """The result of ``code`` on ``tests``, from the first time that it was asked for."""
        program = (code, tests)
        if program not in self._runs:
            self._runs[program] = asyncio.ensure_future(self._run(code, tests))
        return await asyncio.shield(self._runs[program])

    async def _run(self, code: str | None, tests: str | TestCases) -> ExecutionResult:
        async with self._slots:
            return await self._service.run(code, tests)
