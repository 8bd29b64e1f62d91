"""Running the programs of one batch: identical programs once, many per call, a bounded number in flight."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from cobalt.records import ExecutionResult

Program = tuple[str, str]
"""Code and the JSON string of its tests."""


class ExecutionService(Protocol):
    """What is needed of ``cobalt.serving.execution.open_execution_service``."""

    async def run_many(self, programs: list[tuple[str | None, str]]) -> list[ExecutionResult]: ...


@dataclass(frozen=True)
class InFlight:
    """Bounds on what is sent to the service at once."""

    programs: int = 512
    """Programs in flight. More only queue in the service: queueing costs nothing but memory."""
    per_call: int = 16
    """Programs in one call: a call costs milliseconds of CPU, a program of 20 tests tens of them."""


class BatchExecution:
    """Collects the programs of one batch and sends them to ``service``. Lives within one event loop."""

    def __init__(self, service: ExecutionService, bounds: InFlight):
        self._service = service
        self._per_call = bounds.per_call
        self._calls = asyncio.Semaphore(max(1, bounds.programs // bounds.per_call))
        self._results: dict[Program, asyncio.Future[ExecutionResult]] = {}
        self._waiting: list[Program] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self, code: str, tests: str) -> ExecutionResult:
        """Run ``code`` on ``tests`` (JSON); a program that was asked for before is not run again."""
        program = (code, tests)
        if program not in self._results:
            loop = asyncio.get_running_loop()
            self._results[program] = loop.create_future()
            if not self._waiting:
                loop.call_soon(self._send)  # after all that are about to ask have asked
            self._waiting.append(program)
        return await self._results[program]

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), self._per_call):
            task = asyncio.ensure_future(self._call(waiting[first : first + self._per_call]))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _call(self, programs: list[Program]) -> None:
        async with self._calls:
            try:
                results = await self._service.run_many([(code, tests) for code, tests in programs])
            except BaseException as error:
                for program in programs:
                    self._results[program].set_exception(error)
                return
        for program, result in zip(programs, results, strict=True):
            self._results[program].set_result(result)
