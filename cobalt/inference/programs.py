"""Execution as the drivers see it: each distinct program of a problem runs once per set of tests."""

import asyncio
from collections.abc import Sequence

from cobalt.records import ExecutionResult, TestCases
from cobalt.serving.execution import ExecutionService


class ExecutionCounter:
    """An execution service that counts: programs running now, tests done."""

    def __init__(self, service: ExecutionService):
        self._service = service
        self.active = 0
        self.tests_done = 0

    async def run(self, code: str | None, tests: TestCases) -> ExecutionResult:
        """See ``ExecutionService``."""
        return (await self.run_many([(code, tests)]))[0]

    async def run_many(self, programs: Sequence[tuple[str | None, TestCases]]) -> list[ExecutionResult]:
        """See ``ExecutionService``."""
        self.active += len(programs)
        try:
            return await self._service.run_many(programs)
        finally:
            self.active -= len(programs)
            self.tests_done += sum(len(tests) for _, tests in programs)


class ProblemPrograms:
    """Runs programs on one problem's tests, equal programs once."""

    def __init__(self, execution: ExecutionCounter, tests: TestCases):
        self._execution = execution
        self.tests = tests
        self._runs: dict[str | None, asyncio.Task[ExecutionResult]] = {}

    async def run(self, code: str | None) -> ExecutionResult:
        """The result of ``code``, from the first time it was asked for."""
        if code not in self._runs:
            self._runs[code] = asyncio.ensure_future(self._execution.run(code, self.tests))
        return await asyncio.shield(self._runs[code])
