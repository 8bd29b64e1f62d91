"""Programs that run while the policy generates: an event loop with the execution service, in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.serving.execution import ExecutionService, Runs, open_execution_service
from cobalt.training.online.settings import OnlineSettings
from cobalt.training.scoring import SERVICE_ERRORS

Result = TypeVar("Result")


class BackgroundPrograms:
    """A context manager. Failures of the service are results with ``infra_error``, never exceptions."""

    def __init__(self, settings: OnlineSettings):
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="programs")
        self._stack = AsyncExitStack()
        self._opening: Future[ExecutionService]
        self._runs: Runs = {}
        self.work_done: dict[str, float] = {}
        """What was run, once this is closed (``ExecutionService.work_done``)."""

    def __enter__(self) -> "BackgroundPrograms":
        self._thread.start()
        self._opening = self._do(self._open())
        return self

    def __exit__(self, *_: Any) -> None:
        self._do(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, code: str | None, tests: TestCases) -> "Future[ExecutionResult]":
        """Run a program; equal ones run once. Returns at once, and may be called from any thread."""
        return self._do(self._run(code, tests))

    def _do(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self) -> ExecutionService:
        executor: Any = self._settings.executor
        limits, max_in_flight = self._settings.limits, self._settings.max_in_flight
        opening = open_execution_service(executor, max_in_flight=max_in_flight, patient=True, **limits)
        return await self._stack.enter_async_context(opening)

    async def _run(self, code: str | None, tests: TestCases) -> ExecutionResult:
        try:
            service = await asyncio.shield(asyncio.wrap_future(self._opening))
            return await service.run(code, tests, self._runs)
        except SERVICE_ERRORS as error:
            return ExecutionResult.infra(len(tests), str(error))

    async def _close(self) -> None:
        try:
            service = await asyncio.wrap_future(self._opening)
        except SERVICE_ERRORS:
            return
        self.work_done = service.work_done()
        await self._stack.aclose()
