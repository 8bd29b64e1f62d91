"""The line that a person watches during a long run."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cobalt.inference.driver import Driver

REFRESH_S = 1.0
REFRESH_LOG_S = 30.0  # into a log file


def _refresh_s() -> float:
    return REFRESH_S if sys.stderr.isatty() else REFRESH_LOG_S


def progress_bar(total: int, unit: str) -> Any:
    """A bar that a terminal sees often and a log file now and then."""
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, mininterval=_refresh_s(), dynamic_ncols=True)


@asynccontextmanager
async def show_progress(driver: Driver, problems: int, turns: int) -> AsyncIterator[None]:
    """Show turns done of ``turns``, time left, problems, conversations, rates and queues until the body ends."""
    refresh = _refresh_s()
    with progress_bar(turns, "turn") as bar:
        started = time.monotonic()
        ticker = asyncio.ensure_future(_tick(bar, driver, problems, started, refresh))
        try:
            yield
        finally:
            ticker.cancel()
            _update(bar, driver, problems, started)
            bar.refresh()


async def _tick(bar: Any, driver: Driver, problems: int, started: float, refresh: float) -> None:
    while True:
        await asyncio.sleep(refresh)
        _update(bar, driver, problems, started)


def _update(bar: Any, driver: Driver, problems: int, started: float) -> None:
    counts, execution = driver.counts, driver.execution
    elapsed = max(time.monotonic() - started, 1e-9)
    bar.set_postfix_str(
        f"problems {counts.problems}/{problems}, conversations {counts.conversations}, "
        f"{counts.completion_tokens / elapsed:,.0f} tok/s, {execution.tests_done / elapsed:,.0f} tests/s, "
        f"engine {driver.slots.active}+{driver.slots.waiting} waiting, executing {execution.active}, "
        f"infra {counts.infra_errors}",
        refresh=False,
    )
    bar.update(counts.turns - bar.n)
