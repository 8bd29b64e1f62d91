"""The asynchronous front of the sandbox: a pool of workers behind a bounded, fair queue.

A program runs on one worker, its tests one after the other. A worker that dies is replaced and its program retried;
only when that fails several times does the result carry ``infra_error``. Waiting in the queue costs a program nothing.
"""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_attempt, wait_incrementing

from cobalt.errors import InfraError, SetupError
from cobalt.prompts import NO_PROGRAM
from cobalt.records import ExecutionResult, TestCases, Verdict
from cobalt.sandbox.checkers import checker_identity, known_checker
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.modes import resolve_mode
from cobalt.sandbox.selftest import choose_mode
from cobalt.sandbox.wire import LENGTH, frame

MAX_ATTEMPTS = 5
RETRY_DELAY_S = 0.5
"""The first retry comes at once, each later one after a pause that is this much longer than the one before. A program
is given up after five sandboxes: 3 seconds of pauses and the time that sandboxes take to start, about 5 in all."""

Tests = str | Mapping[str, Any] | TestCases


def default_workers() -> int:
    """One per core that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass
class _Job:
    code: str
    tests: TestCases
    done: "asyncio.Future[ExecutionResult]"

    def finish(self, result: ExecutionResult) -> None:
        """Hand over the result, unless the caller has gone."""
        if not self.done.done():
            self.done.set_result(result)


class FairQueue:
    """Jobs in lanes, one lane per caller; workers take from the lanes in turn. At most ``size`` jobs wait."""

    def __init__(self, size: int):
        self._lanes: OrderedDict[object, deque[_Job]] = OrderedDict()
        self._waiting = asyncio.Semaphore(0)
        self._space = asyncio.Semaphore(size)
        self._closed = False

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    async def put(self, lane: object, job: _Job) -> None:
        """Add to the end of a lane; waits while the queue is full. Raises ``RuntimeError`` once it is closed."""
        await self._space.acquire()
        if self._closed:
            self._space.release()  # for the next one that waits
            raise RuntimeError("the executor is closed")
        self._lanes.setdefault(lane, deque()).append(job)
        self._waiting.release()

    def close(self) -> None:
        """Cancel all jobs that wait, and take no more."""
        self._closed = True
        self._space.release()
        for lane in self._lanes.values():
            for job in lane:
                job.done.cancel()

    async def get(self) -> _Job:
        """The first job of the lane that has waited longest for its turn."""
        await self._waiting.acquire()
        lane, jobs = self._lanes.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._lanes[lane] = jobs
        self._space.release()
        return job


class _Worker:
    """A worker process and the stream to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def start(cls, settings: tuple[str, Limits, str]) -> "_Worker":
        """Raises ``SetupError`` if its sandbox cannot be made, ``ConnectionError`` if it dies."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "cobalt.sandbox.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = cls(process, reader, writer)
        try:
            complaint = await worker.ask(settings)
        except BaseException:
            worker.kill()
            raise
        if complaint is not None:
            worker.kill()
            raise SetupError(f"no sandbox: {complaint}")
        return worker

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        return self.process.poll() is None

    async def ask(self, message: Any) -> Any:
        """Send a message and wait for the answer; ``ConnectionError`` if the worker dies."""
        self._writer.write(frame(message))
        try:
            await self._writer.drain()
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))
        except asyncio.IncompleteReadError:
            raise ConnectionError("the worker died") from None

    def kill(self) -> None:
        """End the worker with its sandbox."""
        self._writer.close()
        self.process.kill()
        self.process.wait()


def _environment() -> dict[str, str]:
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


class Executor:
    """Runs untrusted programs. Use as ``async with Executor() as executor``.

    ``workers``: sandboxes in parallel (default: one per core); ``checker``: ``exact``, ``lcb`` or
    ``FILE.py:NAME``; ``mode``: ``auto``,
    ``namespaces`` or ``landlock``; ``max_queue``: programs that may wait before callers do; the rest are fields of
    ``Limits``. Entering raises ``SetupError`` where no sandbox holds.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        checker: str = "exact",
        mode: str = "auto",
        max_queue: int = 4096,
        **limits: Any,
    ):
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be positive, not {workers}")
        self.workers = workers or default_workers()
        self.checker = known_checker(checker)
        self.mode: str = resolve_mode(mode)
        self.limits = Limits(**limits)
        self._max_queue = max_queue
        self._running: set[_Worker] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Executor":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Choose the mode by the self-test and start the workers."""
        self._queue = FairQueue(self._max_queue)
        self.mode = await asyncio.to_thread(choose_mode, self.mode)
        try:
            first = await asyncio.gather(*(self._start_worker() for _ in range(self.workers)))
        except BaseException:
            await self.close()
            raise
        self._tasks = [asyncio.create_task(self._work(worker)) for worker in first]

    async def close(self) -> None:
        """Stop the workers. Programs that still run or wait are cancelled, later ones get a ``RuntimeError``."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queue.close()
        for worker in list(self._running):
            self._discard(worker)

    def check_health(self) -> None:
        """Raises ``InfraError`` if no worker is alive, or one is no longer looked after."""
        if not any(worker.alive for worker in self._running) or any(task.done() for task in self._tasks):
            raise InfraError("the executor has no living worker")

    async def describe(self) -> dict[str, Any]:
        """What decides verdicts: the checker and the limits."""
        return {"checker": checker_identity(self.checker), **asdict(self.limits)}

    @property
    def queue_depth(self) -> int:
        """Programs that wait for a worker."""
        return len(self._queue)

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """Run one program on its tests. ``code`` None: no program. Raises ``ValueError`` for malformed tests."""
        return await self._submit(object(), code, TestCases.parse(tests))

    async def run_many(self, programs: Sequence[tuple[str | None, Tests]]) -> list[ExecutionResult]:
        """Results in the order of ``programs``. Other callers' programs take turns with these."""
        parsed = [(code, TestCases.parse(tests)) for code, tests in programs]
        lane = object()
        return await asyncio.gather(*(self._submit(lane, code, tests) for code, tests in parsed))

    async def _submit(self, lane: object, code: str | None, tests: TestCases) -> ExecutionResult:
        if code is None:
            return ExecutionResult.uniform(len(tests), Verdict.NO_PROGRAM, NO_PROGRAM)
        job = _Job(code, tests, asyncio.get_running_loop().create_future())
        await self._queue.put(lane, job)
        return await job.done

    async def _start_worker(self) -> _Worker:
        worker = await _Worker.start((self.mode, self.limits, self.checker))
        self._running.add(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        self._running.discard(worker)
        worker.kill()

    async def _work(self, worker: _Worker | None) -> None:
        """Feed one worker, replacing it whenever it dies."""
        while True:
            job = await self._queue.get()
            try:
                worker = await self._judge(job, worker)
            except RetryError as error:
                worker = None
                lost = f"lost {MAX_ATTEMPTS} sandboxes: {error.last_attempt.exception()}"
                job.finish(ExecutionResult.infra(len(job.tests), lost))
            finally:
                job.done.cancel()

    async def _judge(self, job: _Job, worker: _Worker | None) -> _Worker | None:
        """Finish a job on this worker or its successors; returns the last one. ``RetryError``: all were lost."""
        async for attempt in _attempts():
            if job.done.done():  # its caller has gone
                break
            with attempt:
                worker = worker or await self._start_worker()
                try:
                    job.finish(await worker.ask((job.code, job.tests)))
                except OSError:
                    self._discard(worker)
                    worker = None
                    raise
        return worker


def _attempts() -> AsyncRetrying:
    """The attempts at one program: another one whenever its sandbox is lost, or cannot be made."""
    return AsyncRetrying(
        retry=retry_if_exception_type((SetupError, OSError)),
        stop=stop_after_attempt(MAX_ATTEMPTS),
        wait=wait_incrementing(start=0, increment=RETRY_DELAY_S),
    )
