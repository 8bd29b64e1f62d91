"""The line that a person watches during a long run."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cobalt.cli.console import progress_bar
from cobalt.inference.driver import Driver

REFRESH_S = 1.0


@asynccontextmanager
async def show_progress(driver: Driver, problems: int, turns: int) -> AsyncIterator[None]:
    """Show turns done of ``turns``, time left, problems, conversations, rates and queues until the body ends."""
    with progress_bar(total=turns, unit="turn") as bar:
        started = time.monotonic()
        ticker = asyncio.ensure_future(_tick(bar, driver, problems, started))
        try:
            yield
        finally:
            ticker.cancel()
            _update(bar, driver, problems, started)
            bar.refresh()


async def _tick(bar: Any, driver: Driver, problems: int, started: float) -> None:
    while True:
        await asyncio.sleep(max(REFRESH_S, bar.mininterval))
        _update(bar, driver, problems, started)


def _update(bar: Any, driver: Driver, problems: int, started: float) -> None:
    counts, execution = driver.counts, driver.execution
    elapsed = max(time.monotonic() - started, 1e-9)
    bar.set_postfix_str(
        f"problems {counts.problems}/{problems}, conversations {counts.conversations}, "
        f"{driver.tokens_generated / elapsed:,.0f} tok/s, {execution.tests_done / elapsed:,.0f} tests/s, "
        f"engine {driver.slots.active}+{driver.slots.waiting} waiting, executing {execution.active}, "
        f"infra {counts.infra_errors}",
        refresh=False,
    )
    bar.update(counts.turns - bar.n)
