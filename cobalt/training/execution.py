"""Programs of a training step: the execution service, waited for where it restarts, and what running them cost."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from cobalt.cli.flags import ExecutorName
from cobalt.errors import InfraError, SetupError
from cobalt.serving.execution import ExecutionService, open_execution_service
from cobalt.serving.programs import DistinctPrograms, ExecutionCounter

SERVICE_ERRORS = (InfraError, SetupError, RayError, RayServeException)
"""How a service fails. None of them leaves training's own code: veRL would take it for a defect."""
OPEN_ATTEMPTS = 5
FIRST_OPEN_DELAY_S = 1.0
"""Doubled after each attempt to reach the execution service: 15 s in all for a batch that starts while it is away."""


@asynccontextmanager
async def open_programs(
    executor: ExecutorName, max_in_flight: int, limits: dict[str, Any]
) -> AsyncIterator[tuple[DistinctPrograms, ExecutionCounter]]:
    """Equal programs run once, at most ``max_in_flight`` at a time; and the count of what was run.

    Raises one of ``SERVICE_ERRORS`` if the service stays away.
    """
    async with AsyncExitStack() as stack:
        counter = ExecutionCounter(await _open_service(stack, executor, limits))
        yield DistinctPrograms(counter, max_in_flight), counter


async def _open_service(stack: AsyncExitStack, executor: ExecutorName, limits: dict[str, Any]) -> ExecutionService:
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(SERVICE_ERRORS),
        stop=stop_after_attempt(OPEN_ATTEMPTS),
        wait=wait_exponential(FIRST_OPEN_DELAY_S),
        reraise=True,
    )

    async def attempt() -> ExecutionService:
        return await stack.enter_async_context(open_execution_service(executor, **limits))

    return await retrying(attempt)
