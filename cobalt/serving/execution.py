"""Where commands run programs: the Ray Serve app ``evaluator``, or an executor in this process.

Both give the same object: ``run`` one program, ``run_many`` programs. There is no silent fallback from one to the
other. Infrastructure faults are retried here; what remains is an ``ExecutionResult`` with ``infra_error``.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_attempt, wait_exponential

from cobalt.cli.flags import ExecutorName
from cobalt.errors import InputError, SetupError, first_line
from cobalt.records import ExecutionResult, TestCases
from cobalt.sandbox.checkers import checker_identity, known_checker
from cobalt.sandbox.executor import Executor, Tests, parse_program
from cobalt.serving.handles import app_handle
from cobalt.serving.shared_calls import SharedCalls, Submission

APP_NAME = "evaluator"
START_HINT = (
    "start it with: serve run remote_reward_server:app --name evaluator --route-prefix /evaluator, "
    "or pass --executor local"
)

PROGRAMS_PER_CALL = 4
"""A call costs milliseconds whatever it carries, but its programs come back together: the slowest holds the others."""

MAX_ATTEMPTS = 6
FIRST_DELAY_S = 0.5
"""Doubled after each attempt: about 16 s in all, enough for Serve to start another replica."""

Program = tuple[str | None, Tests]
_Parsed = tuple[str | None, TestCases]


class ExecutionService(Protocol):
    """What ``open_execution_service`` gives. ``TypeError`` for code that is no text, ``ValueError`` for
    malformed tests, never an exception for infra."""

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """One program on its tests; ``code`` None: no program could be extracted."""
        ...

    async def run_many(self, programs: Sequence[Program]) -> list[ExecutionResult]:
        """Results in the order of ``programs``."""
        ...

    async def describe(self) -> dict[str, Any]:
        """What decides verdicts: ``checker`` and the fields of ``Limits``. ``SetupError`` if the service is gone."""
        ...


@asynccontextmanager
async def open_execution_service(
    executor: ExecutorName, checker: str | None = None, **limits: Any
) -> AsyncIterator[ExecutionService]:
    """Connect to the ``evaluator`` app, or start an ``Executor(checker=checker, **limits)`` here.

    The app has its own checker and limits: ``limits`` are for ``local`` only, and an app with another ``checker`` is an
    ``InputError`` (None: any). Raises ``SetupError`` if there is no service, or no sandbox.
    """
    wanted = None if checker is None else _known_checker(checker)
    if executor == "serve":
        if limits:
            raise ValueError("limits are set when the evaluator app is started, not by its clients")
        app = ServedEvaluator(await asyncio.to_thread(app_handle, APP_NAME, "execution service", START_HINT))
        if wanted is not None:
            _refuse_other_checker(wanted, (await app.describe())["checker"])
        yield app
    else:
        chosen: dict[str, Any] = limits if wanted is None else {**limits, "checker": wanted}
        async with Executor(**chosen) as local:
            yield local


def _known_checker(name: str) -> str:
    try:
        return known_checker(name)
    except ValueError as error:
        raise InputError(str(error)) from None


def _refuse_other_checker(wanted: str, running: str) -> None:
    if checker_identity(wanted) != running:
        raise InputError(f"the evaluator app compares with checker {running}: start it with checker={wanted}")


class ServedEvaluator:
    """Client of the ``evaluator`` app by handle. Programs that are submitted together share calls."""

    def __init__(self, handle: Any):
        self._handle = handle
        self._calls: SharedCalls[_Parsed, ExecutionResult] = SharedCalls(self._call, PROGRAMS_PER_CALL)

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """See ``ExecutionService``."""
        return await self._calls.submit(parse_program(code, tests))

    async def run_many(self, programs: Sequence[Program]) -> list[ExecutionResult]:
        """See ``ExecutionService``."""
        parsed = [parse_program(code, tests) for code, tests in programs]
        return await asyncio.gather(*(self._calls.submit(program) for program in parsed))

    async def describe(self) -> dict[str, Any]:
        """See ``ExecutionService``."""
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        try:
            return await self._handle.describe.remote()
        except (RayError, RayServeException, ConnectionError) as error:
            raise SetupError(
                f"the execution service does not answer ({type(error).__name__}: {first_line(error)}); {START_HINT}"
            ) from None

    async def _call(self, submissions: list[Submission[_Parsed, ExecutionResult]]) -> None:
        """Send programs until each has its result; those that a replica could not judge may go to another one.

        Programs that nobody waits for any more are stopped, if all of the call are such.
        """
        call = asyncio.current_task()

        def stop_if_nobody_waits(answer: "asyncio.Future[ExecutionResult]") -> None:
            if answer.cancelled() and call is not None and all(s.answer.done() for s in submissions):
                call.cancel()

        for submission in submissions:
            submission.answer.add_done_callback(stop_if_nobody_waits)
        retrying = AsyncRetrying(
            retry=retry_if_result(bool), stop=stop_after_attempt(MAX_ATTEMPTS), wait=wait_exponential(FIRST_DELAY_S)
        )
        try:
            await retrying(self._send, submissions)
        except RetryError as error:
            for submission, result in error.last_attempt.result():
                _settle(submission.answer, result)
        except Exception as error:  # of the app itself: each caller gets it
            for submission in submissions:
                if not submission.answer.done():
                    submission.answer.set_exception(error)

    async def _send(
        self, submissions: list[Submission[_Parsed, ExecutionResult]]
    ) -> list[tuple[Submission[_Parsed, ExecutionResult], ExecutionResult]]:
        """Send what is not settled and settle what was judged; returns the others with their infra errors."""
        waiting = [submission for submission in submissions if not submission.answer.done()]
        if not waiting:
            return []
        results = await self._results([submission.request for submission in waiting])
        for submission, result in zip(waiting, results, strict=True):
            if result.infra_error is None:
                _settle(submission.answer, result)
        return [pair for pair in zip(waiting, results, strict=True) if not pair[0].answer.done()]

    async def _results(self, programs: list[_Parsed]) -> list[ExecutionResult]:
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        response = self._handle.run_many.remote(programs)
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()  # in the replica too
            raise
        except (RayError, RayServeException, ConnectionError) as error:
            reason = f"execution service failed ({type(error).__name__}: {first_line(error)})"
            return [ExecutionResult.infra(len(tests), reason) for _, tests in programs]


def _settle(answer: "asyncio.Future[ExecutionResult]", result: ExecutionResult) -> None:
    if not answer.done():  # its caller may have gone
        answer.set_result(result)
