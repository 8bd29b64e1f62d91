"""The asynchronous front of the sandbox: a pool of workers behind a fair queue.

There are three lanes, each with workers of its own. Every program first gets a turn of ``TURN_S`` seconds in the quick
lane, its tests one after the other; what is not done by then goes on in the long one, where it is in no quick program's
way. As long as sandboxes are idle there, its next tests run side by side, with the outcomes that they would have had
one after the other. Programs that rather wait than compute go on in the idle lane, where they are in no other's way:
they never have all of the places that both lanes share. A worker that dies is replaced, and its program
goes to whichever worker is free next; only when it has lost several does the result carry ``infra_error``. Waiting
costs a program nothing.
"""

import asyncio
import math
import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from cobalt.sandbox.checkers import checker_identity, read_checker, usable_tests
from cobalt.sandbox.confinement import resolve_mode
from cobalt.sandbox.errors import InfraError, SetupError
from cobalt.sandbox.limits import Limits, affordable_workers, default_workers, refuse_low_limits
from cobalt.sandbox.own_files import OwnFile
from cobalt.sandbox.results import ExecutionResult, Output, Verdict
from cobalt.sandbox.selftest import choose_mode
from cobalt.sandbox.suite import Progress
from cobalt.sandbox.tests import TestCases
from cobalt.sandbox.turns import Terms
from cobalt.sandbox.worker import LENGTH, frame

# A program is given up after five sandboxes. A lost worker is replaced at once; those that are lost one after the other
# are replaced after pauses, each this much longer than the one before.
MAX_ATTEMPTS, RETRY_DELAY_S = 5, 0.5
TURN_S = 0.5  # of a program in the quick lane: seconds of compiling, computing, sleeping, being judged
IDLE_S, TESTS_S = 1.0, 5.0  # of a turn in the long lane: seconds without computing, and of tests
LONG_NICENESS = 5  # of the other lanes' workers: a core that they and the quick lane want is shared three to one

Tests = str | Mapping[str, Any] | TestCases


def parse_program(code: str | None, tests: Tests) -> tuple[str | None, TestCases]:
    """A program as it goes to a worker. Raises ``TypeError`` for code that is no text, ``ValueError`` for bad tests."""
    if code is not None and type(code) is not str:
        raise TypeError(f"code must be a str, or None for no program, not {type(code).__name__}")
    return code, usable_tests(tests)


@dataclass
class _Job:
    """A program that waits or runs; ``done`` is cancelled once its caller has gone."""

    caller: object
    code: str
    tests: TestCases
    done: "asyncio.Future[Any]"
    files: Mapping[str, bytes] | None = None
    """Files in the working folder of a program that is run without a verdict."""
    progress: Progress | None = None
    attempts: int = 0
    """Sandboxes that were lost with it."""
    is_part: bool = False
    """Only its next test is run; ``done`` is what comes of the turn."""


class FairQueue:
    """Jobs in lanes, one lane per caller; workers take from the lanes in turn."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[object, deque[_Job]] = OrderedDict()
        self._waiting = asyncio.Semaphore(0)
        self._closed = False

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def put(self, lane: object, job: _Job) -> None:
        """Add to the end of a lane. Raises ``RuntimeError`` once the queue is closed."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        self._lanes.setdefault(lane, deque()).append(job)
        self._waiting.release()

    def put_back(self, lane: object, job: _Job) -> None:
        """Undo a ``get``: the job is the next again."""
        self._lanes.setdefault(lane, deque()).appendleft(job)
        self._lanes.move_to_end(lane, last=False)
        self._waiting.release()

    def close(self) -> None:
        """Cancel all jobs that wait, and take no more."""
        self._closed = True
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
        return job


@dataclass(frozen=True)
class _Lane:
    """Programs that wait for a worker, and what they get then. ``slots``: how many run at a time."""

    queue: FairQueue
    slots: asyncio.Semaphore
    terms: Terms
    niceness: int = LONG_NICENESS


class _Worker:
    """A worker process and the stream to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.process, self._reader, self._writer = process, reader, writer
        self._files_folder = os.path.join(gettempdir(), f"cobalt-files-{secrets.token_hex(8)}")

    @classmethod
    async def start(cls, settings: tuple[str, Limits, str | OwnFile], niceness: int) -> "_Worker":
        """Raises ``SetupError`` if its sandbox cannot be made, or it dies."""
        package_root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")]))
        ours, theirs = socket.socketpair()
        with theirs:
            # without the current folder, whose files may have names of modules
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cobalt.sandbox.worker", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = cls(process, reader, writer)
        try:
            complaint = await worker.ask((*settings, worker._files_folder, niceness))
            if complaint is not None:
                raise SetupError(f"no sandbox: {complaint}")
        except ConnectionError:
            worker.kill()
            raise SetupError("no sandbox: its worker died at the start") from None
        except BaseException:
            worker.kill()
            raise
        return worker

    @property
    def alive(self) -> bool:
        """Whether its process still runs; if not, its number stays taken until ``kill``."""
        not_reaped = self.process.returncode is None
        return not_reaped and os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

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
        """End the worker with its sandbox: first everything in its process group, which nothing in it can leave."""
        self._writer.close()
        if self.process.returncode is None:  # else its number may be another group's by now
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self._files_folder, ignore_errors=True)  # of the program that it ran


class Executor:
    """Runs untrusted programs. Use as ``async with Executor() as executor``.

    ``workers``: programs in parallel in the quick lane, and in the others (default: one per core; sandboxes of the
    others start when they are needed); ``checker``: a name in ``CHECKERS`` or ``FILE.py:NAME``, whose file is read
    here and never again; ``mode``: ``auto``, ``namespaces`` or ``landlock``; the rest are fields of ``Limits``.
    Entering raises ``SetupError`` where no sandbox holds.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        checker: str | OwnFile = "exact",
        mode: str = "auto",
        **limits: Any,
    ):
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be positive, not {workers}")
        self.limits = Limits(**limits)
        self.workers = workers or default_workers(self.limits)
        self.checker = read_checker(checker) if isinstance(checker, str) else checker
        self.mode: str = resolve_mode(mode)
        self._running: set[_Worker] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._spread: set[asyncio.Task[None]] = set()  # programs whose tests run side by side
        self._served = 0  # programs in the long lane and the idle one that have a sandbox

    async def __aenter__(self) -> "Executor":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Choose the mode by the self-test and start the workers. ``SetupError`` if none holds or memory is short."""
        slots = asyncio.Semaphore(self.workers)
        self._quick = _Lane(FairQueue(), asyncio.Semaphore(self.workers), Terms(TURN_S), niceness=0)
        self._long = _Lane(FairQueue(), slots, Terms(idle_s=IDLE_S, tests_s=TESTS_S))
        self._idle = _Lane(FairQueue(), slots, Terms(idle_s=IDLE_S, cuts_idle=False, tests_s=TESTS_S))
        refuse_low_limits(self.limits)
        affordable = affordable_workers(self.limits)
        if self.workers > affordable:
            raise SetupError(f"workers={self.workers} needs more memory than there is: use at most {affordable}")
        self.mode = await asyncio.to_thread(choose_mode, self.mode)
        starts = (self._start_worker(self._quick) for _ in range(self.workers))
        try:
            first = await asyncio.gather(*starts, return_exceptions=True)  # all of them, so that none is left behind
            if errors := [error for error in first if isinstance(error, BaseException)]:
                raise errors[0]
        except BaseException:
            await self.close()
            raise
        self._tasks = [asyncio.create_task(self._work(self._quick, worker)) for worker in self._running]
        others = [*[self._long] * self.workers, *[self._idle] * max(self.workers - 1, 1)]
        self._tasks += [asyncio.create_task(self._work(lane, None)) for lane in others]

    async def close(self) -> None:
        """Stop the workers. Programs that still run or wait are cancelled, later ones get a ``RuntimeError``."""
        tasks = [*self._tasks, *self._spread]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes:
            lane.queue.close()
        for worker in list(self._running):
            self._discard(worker)

    async def check_health(self) -> None:
        """Raises ``InfraError`` if no worker is alive, or one is no longer looked after."""
        if not any(worker.alive for worker in self._running) or any(task.done() for task in self._tasks):
            raise InfraError("the executor has no living worker")

    async def describe(self) -> dict[str, Any]:
        """What decides verdicts: the checker and the limits."""
        return {"checker": checker_identity(self.checker), **asdict(self.limits)}

    async def state(self) -> dict[str, Any]:
        """The same, with the mode, the workers and the programs that wait."""
        now = {"mode": self.mode, "workers": self.workers, "queue_depth": self.queue_depth}
        return {**now, **await self.describe()}

    @property
    def queue_depth(self) -> int:
        """Programs that wait for a worker."""
        return sum(len(lane.queue) for lane in self._lanes)

    @property
    def _lanes(self) -> tuple[_Lane, ...]:
        return self._quick, self._long, self._idle

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """Run one program on its tests. ``code`` None: no program. Raises what ``parse_program`` does."""
        return await self._submit(object(), *parse_program(code, tests))

    async def run_many(self, programs: Sequence[tuple[str | None, Tests]]) -> list[ExecutionResult]:
        """Results in the order of ``programs``. Other callers' programs take turns with these."""
        parsed = [parse_program(code, tests) for code, tests in programs]
        lane = object()
        return await asyncio.gather(*(self._submit(lane, code, tests) for code, tests in parsed))

    async def run_inputs(self, code: str, tests: Tests, files: Mapping[str, bytes]) -> list[Output]:
        """What a program prints on the inputs of ``tests``, whose expected outputs are not looked at.

        ``files`` by name lie in its working folder. Of several inputs only those are run that one turn is enough for.
        No limit is over all inputs. Raises ``InfraError``, and what ``parse_program`` does.
        """
        outcome = await self._submit(object(), *parse_program(code, tests), files)
        if isinstance(outcome, ExecutionResult):
            raise InfraError(outcome.infra_error)
        return outcome

    async def _submit(
        self, caller: object, code: str | None, tests: TestCases, files: Mapping[str, bytes] | None = None
    ) -> Any:
        if code is None:
            return ExecutionResult.uniform(len(tests), Verdict.NO_PROGRAM)
        job = _Job(caller, code, tests, asyncio.get_running_loop().create_future(), files)
        self._quick.queue.put(caller, job)
        return await job.done

    async def _start_worker(self, lane: _Lane) -> _Worker:
        worker = await _Worker.start((self.mode, self.limits, self.checker), lane.niceness)
        self._running.add(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        self._running.discard(worker)
        worker.kill()

    async def _work(self, lane: _Lane, worker: _Worker | None) -> None:
        lost = 0  # workers, one after the other
        while True:
            if lost > 1:
                await asyncio.sleep(min(lost - 1, MAX_ATTEMPTS) * RETRY_DELAY_S)
            job = await lane.queue.get()
            shares = lane is not self._quick
            try:
                async with lane.slots:
                    self._served += shares
                    try:
                        worker, onward = await self._serve(job, worker, lane)
                    finally:
                        self._served -= shares
                lost = 0
                if onward is not None and not self._spread_out(job, onward):
                    onward.queue.put(job.caller, job)
            except (SetupError, OSError) as error:
                worker, lost = None, lost + 1
                job.attempts += 1
                if job.attempts < MAX_ATTEMPTS:
                    lane.queue.put_back(job.caller, job)
                elif not job.done.done():
                    why = f"lost {MAX_ATTEMPTS} sandboxes: {error}"
                    job.done.set_result(ExecutionResult.infra(len(job.tests), why))
            except asyncio.CancelledError:
                job.done.cancel()
                raise
            except Exception as error:  # a fault of ours: this job's caller gets it, the others are served on
                worker = None
                if not job.done.done():
                    job.done.set_exception(error)
            del job  # while it waits for the next

    async def _serve(self, job: _Job, worker: _Worker | None, lane: _Lane) -> tuple[_Worker | None, _Lane | None]:
        """Finish a job, or its turn. ``SetupError`` or ``OSError`` if its worker is lost.

        Returns the worker that is left, and where a job that is not done goes on.
        """
        if job.done.done():  # its caller has gone
            return worker, None
        worker = worker or await self._start_worker(lane)
        terms = replace(lane.terms, tests_s=0.0) if job.is_part else lane.terms
        answer = asyncio.ensure_future(worker.ask((job.code, job.tests, job.files, job.progress, terms)))
        try:
            await asyncio.wait((answer, job.done), return_when=asyncio.FIRST_COMPLETED)
            outcome = answer.result() if answer.done() else None
        except BaseException:  # lost, or stopped in the middle of a program
            self._discard(worker)
            raise
        finally:
            answer.cancel()
        if outcome is None:  # its caller has gone while it ran
            self._discard(worker)
            return None, None
        if isinstance(outcome, Progress) and not job.is_part:  # its turn is over
            job.progress = outcome
            return worker, self._idle if outcome.is_idle or lane is self._idle else self._long
        if not job.done.done():
            job.done.set_result(outcome)
        return worker, None

    def _spread_out(self, job: _Job, onward: _Lane) -> bool:
        """Let the next tests of a program run side by side, if it is to go on in the long lane and sandboxes are idle.

        As many as can use up its limit, so that none runs in vain. False if it is to go on as it did.
        """
        done = job.progress
        if onward is not self._long or done is None or job.files is not None:
            return False
        cpu_limit_s = min(self.limits.cpu_limit_s, job.tests.time_limit or math.inf)
        idle = self.workers - self._served - len(self._long.queue) - len(self._idle.queue)
        left = len(job.tests) - len(done.outcomes) - 1  # the last one runs when these are added up
        count = min(idle, left, math.ceil(done.cpu_left_s / cpu_limit_s))
        if count < 2:
            return False
        # each as if it were the first that costs anything
        before, whole = len(done.outcomes), (self.limits.suite_cpu_limit_s, self.limits.suite_wall_limit_s)
        nothing = (Verdict.PASSED, "", "")
        starts = [Progress((nothing,) * (before + number), *whole) for number in range(count)]
        futures = [asyncio.get_running_loop().create_future() for _ in starts]
        for start, future in zip(starts, futures, strict=True):
            part = _Job(job.caller, job.code, job.tests, future, progress=start, is_part=True)
            part.attempts = MAX_ATTEMPTS - 1  # what loses its sandbox runs again, one after the other
            self._long.queue.put(job.caller, part)
        task = asyncio.create_task(self._collect(job, futures))
        self._spread.add(task)
        task.add_done_callback(self._spread.discard)
        return True

    async def _collect(self, job: _Job, futures: Sequence["asyncio.Future[Any]"]) -> None:
        """Add up the tests that ran side by side, and let the program go on after them.

        Those after the first that did not end, or might end otherwise in less time, count for nothing: they run again.
        """
        try:
            parts = asyncio.gather(*futures, return_exceptions=True)
            await asyncio.wait((parts, job.done), return_when=asyncio.FIRST_COMPLETED)
            if job.done.done():  # its caller has gone
                return
            for ended in parts.result():
                if (after := _added(job.progress, ended, self.limits)) is None:
                    onward = self._idle if isinstance(ended, Progress) and ended.is_idle else self._long
                    onward.queue.put(job.caller, job)
                    return
                job.progress = after
            if not self._spread_out(job, self._long):
                self._long.queue.put(job.caller, job)
        except BaseException:
            job.done.cancel()
            raise
        finally:
            for future in futures:
                future.cancel()


def _added(before: Progress | None, ended: Any, limits: Limits) -> Progress | None:
    """``before`` and its next test, which ran with all that a suite has; None if it might have ended otherwise."""
    assert before is not None
    if not isinstance(ended, Progress) or len(ended.outcomes) != len(before.outcomes) + 1 or before.cpu_left_s <= 0:
        return None
    outcome = ended.outcomes[-1]
    cpu_left_s = before.cpu_left_s - (limits.suite_cpu_limit_s - ended.cpu_left_s)
    wall_left_s = before.wall_left_s - (limits.suite_wall_limit_s - ended.wall_left_s)
    if min(cpu_left_s, wall_left_s) < 0 and outcome != (Verdict.TIME_LIMIT, "", ""):
        return None  # less time may show less of its output, or be none at all
    return Progress((*before.outcomes, outcome), cpu_left_s, wall_left_s)
