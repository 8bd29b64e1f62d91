"""The client that runs programs: on the Ray Serve app ``evaluator``, or on an executor in this process.

It never falls back from one to the other.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from cobalt.cli.flags import ExecutionConfig, ExecutorName
from cobalt.errors import InfraError, InputError, SetupError, first_line
from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.sandbox.checkers import checker_identity, read_checker
from cobalt.sandbox.executor import Executor, Tests, parse_program
from cobalt.sandbox.results import Output
from cobalt.serving.app_settings import ExecutorConfig, parse_arguments
from cobalt.serving.handles import cluster_address

APP_NAME, REPLICAS = "evaluator", "Evaluator"
"""The app, and its deployment that runs programs."""
START_HINT = (
    "start it with: serve run remote_reward_server:app --name evaluator --route-prefix /evaluator, "
    "or pass --executor local (trainings: EXECUTOR=local, which is reward.reward_kwargs.executor=local)"
)

PROGRAMS_PER_CALL = 4
"""More programs share the milliseconds that a call costs. Fewer wait for the slowest of their call."""
PROBLEMS_PER_WORKER = 4
"""Problems that are open for each worker: one waits for the slowest of its programs, and often for nothing else."""

MAX_ATTEMPTS = 6
FIRST_DELAY_S = 0.5
"""Doubled after each attempt: about 16 s in all, enough for Serve to start another replica."""

Runs = dict[tuple[str | None, Tests], "asyncio.Task[ExecutionResult]"]
"""Runs by program and tests. A caller shares one for as long as equal programs should run once."""


def _attempts(*errors: type[Exception]) -> AsyncRetrying:
    """The one retry policy of the app's clients."""
    return AsyncRetrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(MAX_ATTEMPTS),
        wait=wait_exponential(FIRST_DELAY_S),
        reraise=True,
    )


def ray_errors() -> tuple[type[Exception], ...]:
    """What a call raises if the app or a replica is gone, beside ``ConnectionError``. Ray takes a second to import."""
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    return RayError, RayServeException


def app_handle() -> Any:
    """The handle of the app's replicas, in the Ray cluster of ``RAY_ADDRESS`` or of this machine.

    Raises ``SetupError`` if there is none.
    """
    import ray
    from ray import serve

    try:
        if not ray.is_initialized():
            ray.init(address=cluster_address(), log_to_driver=False, logging_level=logging.ERROR)
        logging.getLogger("ray.serve").setLevel(logging.WARNING)  # it tells of its objects' addresses
        serve.get_app_handle(APP_NAME)  # says in words if there is no such app
        return serve.get_deployment_handle(REPLICAS, APP_NAME)
    except (*ray_errors(), OSError, SetupError, RuntimeError) as error:
        raise SetupError(f"no execution service ({first_line(error)}); {START_HINT}") from None


@asynccontextmanager
async def open_execution_service(
    executor: ExecutorName,
    checker: str | None = None,
    *,
    max_in_flight: int | None = None,
    patient: bool = False,
    **limits: Any,
) -> AsyncIterator["ExecutionService"]:
    """Connect to the ``evaluator`` app, or start an ``Executor(checker=checker, **limits)`` here.

    The app has its own checker and limits: ``limits`` are for ``local`` only, and an app with another ``checker`` is an
    ``InputError`` (None: any). Raises ``SetupError`` if there is no service, or no sandbox; if ``patient``, only after
    the usual attempts.
    """
    try:
        wanted = None if checker is None else read_checker(checker)
    except ValueError as error:
        raise InputError(str(error)) from None
    if executor == "serve" and limits:
        raise ValueError("limits are set when the evaluator app is started, not by its clients")

    async def open_it() -> ExecutionService:
        if executor == "local":
            local = Executor(**limits if wanted is None else {**limits, "checker": wanted})
            await local.start()
            return ExecutionService(local, max_in_flight=max_in_flight)
        service = ExecutionService(app=await asyncio.to_thread(app_handle), max_in_flight=max_in_flight)
        if wanted is not None and checker_identity(wanted) != (running := (await service.describe())["checker"]):
            raise InputError(f"the evaluator app compares with checker {running}: start it with checker={wanted}")
        return service

    service = await (_attempts(SetupError, InfraError)(open_it) if patient else open_it())
    try:
        yield service
    finally:
        await service.close()


def executor_args(config: ExecutionConfig) -> dict[str, Any]:
    """What ``--executor_args`` gives. Raises ``InputError`` if the executor would not take it."""
    given = parse_arguments(config.executor_args, ExecutorConfig, "--executor_args")
    if given and config.executor == "serve":
        raise InputError("--executor_args are of --executor local: the evaluator app has those it was started with")
    if "checker" in given:
        raise InputError("--executor_args: the checker has a flag of its own, --checker")
    return given


def service_of(config: ExecutionConfig) -> AbstractAsyncContextManager["ExecutionService"]:
    """What a command's flags name, as ``open_execution_service`` does. Raises ``InputError`` for ``executor_args``."""
    return open_execution_service(config.executor, config.checker, **executor_args(config))


def start_for(
    waiting: Collection["asyncio.Future[Any]"], work: Coroutine[Any, Any, None], running: set["asyncio.Task[None]"]
) -> None:
    """Start ``work``, which sets the results that callers wait for. Each of them gets its error.

    It is stopped once nobody waits. It is in ``running`` meanwhile: the event loop keeps no strong reference.
    """

    async def answer() -> None:
        try:
            await work
        except Exception as error:
            for result in waiting:
                if not result.done():
                    result.set_exception(error)

    def stop_if_nobody_waits(result: "asyncio.Future[Any]") -> None:
        if result.cancelled() and all(other.done() for other in waiting):
            task.cancel()

    task = asyncio.ensure_future(answer())
    running.add(task)
    task.add_done_callback(running.discard)
    for result in waiting:
        result.add_done_callback(stop_if_nobody_waits)


Submitted = dict["asyncio.Future[ExecutionResult]", tuple[str | None, TestCases]]
"""Programs on their way to the app, by their future results."""


class ExecutionService:
    """The one client of what runs programs: an ``executor`` in this process, or the ``app`` by its handle.

    It counts programs and runs equal ones once. Programs that are submitted together share calls to the app. What a
    replica could not judge is sent again, unless it was the checker that could not. A service lives within one event
    loop. ``max_in_flight`` bounds the programs of ``run`` that are under way.

    Raises ``TypeError`` for code that is no text and ``ValueError`` for malformed tests. A failure of the
    infrastructure raises nothing: after the last attempt it is a result with ``infra_error``.
    """

    def __init__(self, executor: Any = None, *, app: Any = None, max_in_flight: int | None = None):
        self._executor, self._app = executor, app
        self._slots = asyncio.Semaphore(max_in_flight) if max_in_flight is not None else nullcontext()
        self._submitted: Submitted = {}
        self._calls: set[asyncio.Task[None]] = set()
        self.active = 0
        """Programs that run now."""
        self.programs_done = self.tests_done = 0
        self.cpu_s = 0.0

    async def close(self) -> None:
        if self._executor is not None:
            await self._executor.close()

    async def run(self, code: str | None, tests: Tests, runs: Runs | None = None) -> ExecutionResult:
        """One program on its tests; ``code`` None: no program was extracted. What is in ``runs`` runs only once."""
        if runs is not None:
            if (code, tests) not in runs:
                runs[code, tests] = asyncio.ensure_future(self.run(code, tests))
            return await asyncio.shield(runs[code, tests])
        async with self._slots:
            self.active += 1
            try:
                running = self._submit(code, tests) if self._executor is None else self._executor.run(code, tests)
                return self._counted(await running)
            finally:
                self.active -= 1

    async def run_many(self, programs: Sequence[tuple[str | None, Tests]]) -> list[ExecutionResult]:
        """Results in the order of ``programs``. An executor has other callers' programs take turns with these."""
        self.active += len(programs)
        try:
            if self._executor is not None:
                results = await self._executor.run_many(programs)
            else:
                parsed = [parse_program(code, tests) for code, tests in programs]
                results = await asyncio.gather(*(self._submit(code, tests) for code, tests in parsed))
        finally:
            self.active -= len(programs)
        return [self._counted(result) for result in results]

    async def run_inputs(self, code: str, tests: TestCases, files: Mapping[str, bytes]) -> list[Output]:
        """What a program prints, as ``Executor.run_inputs``, without a verdict. ``InfraError`` after the last try."""
        async for attempt in _attempts(InfraError):
            with attempt:
                return await self._ask("run_inputs", code, tests, files)
        raise AssertionError("the last attempt returns or raises")

    async def describe(self) -> dict[str, Any]:
        """What decides verdicts: ``checker`` and the fields of ``Limits``. ``SetupError`` if the service is gone."""
        return await self._ask_or_refuse("describe")

    async def state(self) -> dict[str, Any]:
        """The same, with ``mode``, ``workers`` and ``queue_depth`` of one executor, and the app's ``replicas``."""
        return await self._ask_or_refuse("state")

    async def problems_at_once(self) -> int:
        """How many open problems keep all workers busy, also if a program of each hangs."""
        return PROBLEMS_PER_WORKER * await self.programs_at_once()

    async def programs_at_once(self) -> int:
        """How many programs can run at the same time."""
        state = await self.state()
        return state["workers"] * state.get("replicas", 1)

    def work_done(self) -> dict[str, float]:
        """Numbers of programs, tests and CPU seconds, for manifests and metrics."""
        return {"programs_run": self.programs_done, "tests_run": self.tests_done, "executor_cpu_s": self.cpu_s}

    def _counted(self, result: ExecutionResult) -> ExecutionResult:
        self.programs_done += 1
        self.tests_done += len(result.verdicts)
        self.cpu_s += result.cpu_s
        return result

    def _submit(self, code: str | None, tests: Tests) -> "asyncio.Future[ExecutionResult]":
        """The future result of a program; what is submitted in this turn of the event loop goes to the app together."""
        program, loop = parse_program(code, tests), asyncio.get_running_loop()

        def send() -> None:
            submitted, self._submitted = list(self._submitted.items()), {}
            for start in range(0, len(submitted), PROGRAMS_PER_CALL):
                together = dict(submitted[start : start + PROGRAMS_PER_CALL])
                start_for(together, self._call(together), self._calls)

        if not self._submitted:
            loop.call_soon(send)
        result = loop.create_future()
        self._submitted[result] = program
        return result

    async def _call(self, submitted: Submitted) -> None:
        """Send programs to the app until each has its result."""
        async for attempt in _attempts(InfraError):
            with attempt:
                is_last = attempt.retry_state.attempt_number == MAX_ATTEMPTS
                waiting = {result: program for result, program in submitted.items() if not result.done()}
                try:
                    results = await self._ask("run_many", list(waiting.values())) if waiting else []
                except InfraError as error:
                    results = [ExecutionResult.infra(len(tests), str(error)) for _, tests in waiting.values()]
                for result, found in zip(waiting, results, strict=True):
                    if not result.done() and (is_last or found.is_final or found.infra_error is None):
                        result.set_result(found)
                if not all(result.done() for result in submitted):
                    raise InfraError("a replica could not judge them all")

    async def _ask_or_refuse(self, method: str) -> dict[str, Any]:
        try:
            return await self._ask(method)
        except InfraError as error:
            raise SetupError(f"{error}; {START_HINT}") from None

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """A method of the executor here, or of a replica. ``InfraError`` if the replica is lost."""
        if self._executor is not None:
            return await getattr(self._executor, method)(*arguments)
        try:
            response = getattr(self._app, method).remote(*arguments)
            try:
                return await response
            except asyncio.CancelledError:
                response.cancel()  # in the replica too
                raise
        except (*ray_errors(), ConnectionError) as error:
            reason = f"execution service failed ({type(error).__name__}: {first_line(error)})"
            raise InfraError(reason) from None
