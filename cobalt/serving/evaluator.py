"""The Ray Serve app ``evaluator``: executors in replicas, reachable by handle and by HTTP.

By handle: ``run(code, tests)`` and ``run_many([(code, tests)])`` give ``ExecutionResult``s. By HTTP: POST
``{"code", "test_cases"}`` (object or JSON string) gives a result's record, ``{"programs": [...]}`` gives
``{"results": [...]}``; a bad payload gets 422 with what is wrong. GET tells the mode, what decides verdicts, the queue.
Who may ask, and how: ``http_guard.py``.
"""

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ray import serve
from ray.serve.metrics import Counter, Gauge
from starlette.requests import Request
from starlette.responses import Response

from cobalt.prompts import with_feedback
from cobalt.sandbox import ExecutionResult, Limits, TestCases
from cobalt.sandbox.executor import Executor, Tests, parse_program
from cobalt.sandbox.limits import default_workers
from cobalt.serving.app_settings import HEALTH
from cobalt.serving.evaluator_config import EvaluatorConfig
from cobalt.serving.http_guard import UNPROCESSABLE, HttpGuard, Refusal, guard_of, json_response

MAX_CALLS = 1024
"""Calls that a replica takes in at once, more than a few clients send. Serve makes callers of a full replica wait in
ever longer pauses, which halves the throughput with 512 programs in flight. The executor's queue is fair."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BLOCK = 128 << 10


def keep_no_large_blocks() -> None:
    """Have the C library return large blocks, such as bodies, to the system when they are freed.

    It does so at first. But each large block that is freed raises its bound (mallopt(3)), up to 32 MiB. Blocks below
    the bound come from heaps of the threads, which keep up to 64 MiB that ``malloc_trim`` passes over. A bound that is
    set stays.
    """
    c_library = ctypes.CDLL(None)
    for bound in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        c_library.mallopt(bound, _LARGE_BLOCK)


def return_small_blocks() -> None:
    """Return the pages between small blocks that are in use."""
    ctypes.CDLL(None).malloc_trim(0)


def parse_payload(body: bytes) -> tuple[list[tuple[str | None, TestCases]], bool]:
    """``(programs, whether a list was asked for)``; raises ``ValueError`` saying what is wrong."""
    payload = json.loads(body)
    if not isinstance(payload, Mapping):
        raise ValueError("the body must be an object")
    given = payload.get("programs", [payload])
    if not isinstance(given, list):
        raise ValueError("'programs' must be a list")
    programs = []
    for program in given:
        if not isinstance(program, Mapping) or not {"code", "test_cases"} <= program.keys():
            raise ValueError("a program is an object with 'code' and 'test_cases'")
        try:
            programs.append(parse_program(program["code"], program["test_cases"]))
        except TypeError:
            raise ValueError("'code' must be a text, or null for no program") from None
    return programs, "programs" in payload


class Evaluator:
    """One replica: an executor and its Prometheus metrics, which Ray's own exporter serves."""

    async def __init__(self, args: EvaluatorConfig, guard: HttpGuard):
        self._executor = Executor(args.workers, checker=args.checker, mode=args.mode, **args.limits())
        self._guard = guard
        self._queue = Gauge("cobalt_evaluator_queue_depth", description="Programs that wait for a sandbox.")
        self._tests = Counter("cobalt_evaluator_tests", description="Tests judged.", tag_keys=("verdict",))
        self._programs = Counter("cobalt_evaluator_programs", description="Programs judged.")
        self._infra_errors = Counter("cobalt_evaluator_infra_errors", description="Programs that could not be judged.")
        keep_no_large_blocks()
        await self._executor.start()

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """One program."""
        return (await self.run_many([(code, tests)]))[0]

    async def run_many(self, programs: Sequence[tuple[str | None, Tests]]) -> list[ExecutionResult]:
        """Several programs; they take turns with other callers' programs."""
        results = await self._executor.run_many(programs)
        self._programs.inc(len(results))
        for result in results:
            if result.infra_error is not None:
                self._infra_errors.inc()
            for verdict in set(result.verdicts):
                self._tests.inc(result.verdicts.count(verdict), tags={"verdict": verdict.value})
        return results

    async def __call__(self, request: Request) -> Response:
        """HTTP."""
        try:
            self._guard.admit(request)
            if request.method == "GET":
                state = {name: getattr(self._executor, name) for name in ("mode", "workers", "queue_depth")}
                return json_response({**state, **await self.describe()})
            try:
                programs, many = parse_payload(await self._guard.body(request))
            except (ValueError, RecursionError) as error:
                raise Refusal(UNPROCESSABLE, str(error)) from None
        except Refusal as refusal:
            return refusal.response
        judged = zip(await self.run_many(programs), programs, strict=True)
        records = [with_feedback(result, tests).to_record() for result, (_, tests) in judged]
        return json_response({"results": records} if many else records[0])

    async def describe(self) -> dict[str, Any]:
        """What decides verdicts: the checker and the limits."""
        return await self._executor.describe()

    async def check_health(self) -> None:
        """Called by Serve every few seconds, as often as Ray exports metrics; an exception has the replica replaced."""
        self._queue.set(self._executor.queue_depth)
        return_small_blocks()
        self._executor.check_health()

    async def __del__(self) -> None:
        await self._executor.close()


def build_app(args: EvaluatorConfig) -> serve.Application:
    """The app, from ``serve run remote_reward_server:app replicas=2 workers=16 cpu_limit_s=4``."""
    workers = args.workers or default_workers(Limits(**args.limits()))
    deployment = serve.deployment(
        Evaluator,
        name="Evaluator",
        num_replicas=args.replicas,
        max_ongoing_requests=MAX_CALLS,
        **HEALTH,
        logging_config={"enable_access_log": False},
        ray_actor_options={"num_cpus": workers if args.num_cpus is None else args.num_cpus},
    )
    return deployment.bind(args.model_copy(update={"workers": workers}), guard_of(args))
