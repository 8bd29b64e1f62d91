"""The Ray Serve app ``evaluator``: executors in replicas, and HTTP in front of them.

By handle of the deployment ``Evaluator``: ``run_many([(code, tests)])`` gives ``ExecutionResult``s. HTTP is the
deployment ``Http`` (``http_app.py``), a client of the replicas like any other. It runs no programs. Those whose replica
is lost it sends again.
"""

from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.serve.metrics import Counter, Gauge

from cobalt.sandbox import ExecutionResult
from cobalt.sandbox.executor import Executor, Tests
from cobalt.serving.app_settings import HEALTH, EvaluatorConfig
from cobalt.serving.execution import REPLICAS, ExecutionService
from cobalt.serving.http_app import http_app, keep_no_large_blocks, return_small_blocks
from cobalt.serving.http_guard import guard_of

MAX_CALLS = 1024
"""Calls that a replica takes in at once, more than a few clients send. Serve makes callers of a full replica wait in
ever longer pauses, which halves the throughput with 512 programs in flight. The executor's queue is fair."""


class Evaluator(Executor):
    """One replica: an executor with Prometheus metrics, which Ray's own exporter serves."""

    async def __init__(self, args: EvaluatorConfig):
        super().__init__(**args.of_executor())
        self._replicas = args.replicas
        self._queue = Gauge("cobalt_evaluator_queue_depth", description="Programs that wait for a sandbox.")
        self._tests = Counter("cobalt_evaluator_tests", description="Tests judged.", tag_keys=("verdict",))
        self._programs = Counter("cobalt_evaluator_programs", description="Programs judged.")
        self._infra_errors = Counter("cobalt_evaluator_infra_errors", description="Programs that could not be judged.")
        keep_no_large_blocks()
        await self.start()

    async def state(self) -> dict[str, Any]:
        """As ``Executor.state``, with the number of ``replicas``."""
        return {**await super().state(), "replicas": self._replicas}

    async def run_many(self, programs: Sequence[tuple[str | None, Tests]]) -> list[ExecutionResult]:
        """As ``Executor.run_many``; the programs are counted."""
        results = await super().run_many(programs)
        self._programs.inc(len(results))
        for result in results:
            if result.infra_error is not None:
                self._infra_errors.inc()
            for verdict in set(result.verdicts):
                self._tests.inc(result.verdicts.count(verdict), tags={"verdict": verdict.value})
        return results

    async def check_health(self) -> None:
        """Called by Serve every few seconds, as often as Ray exports metrics; an exception has the replica replaced."""
        self._queue.set(self.queue_depth)
        return_small_blocks()
        await super().check_health()

    async def __del__(self) -> None:
        await self.close()


def build_app(args: EvaluatorConfig) -> serve.Application:
    """The app, from ``serve run remote_reward_server:app replicas=2 workers=16 cpu_limit_s=4``."""
    executor = Executor(**args.of_executor())
    # replicas that start later, too, have the number of workers and the checker's file that are here now
    args = args.model_copy(update={"workers": executor.workers, "checker": executor.checker})
    guard = guard_of(args)  # with the token of this process
    shared: dict[str, Any] = {
        "max_ongoing_requests": MAX_CALLS,
        "logging_config": {"enable_access_log": False},
        **HEALTH,
    }
    num_cpus = {"num_cpus": args.workers if args.num_cpus is None else args.num_cpus}
    replicas = serve.deployment(
        Evaluator, name=REPLICAS, num_replicas=args.replicas, ray_actor_options=num_cpus, **shared
    )

    def build_http_app() -> Any:
        name = serve.get_replica_context().app_name
        return http_app(ExecutionService(app=serve.get_deployment_handle(REPLICAS, name)), args, guard)

    http = serve.ingress(build_http_app)()
    front = serve.deployment(http, name="Http", ray_actor_options={"num_cpus": 0}, **shared)
    return front.bind(replicas.bind(args))  # pyright: ignore[reportFunctionMemberAccess] - Ray's decorator
