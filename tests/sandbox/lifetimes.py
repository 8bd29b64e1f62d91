"""A server whose programs do not want to end, for the tests to kill."""

import asyncio
import sys

from cobalt.sandbox import executor as executor_module
from cobalt.sandbox.executor import Executor

STUBBORN = """
import signal
for number in (signal.SIGXCPU, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
while True:
    sum(range(1 << 40))
"""
LONG_S = 600.0
LIMITS = {"cpu_limit_s": LONG_S, "suite_cpu_limit_s": LONG_S}


async def run_server(mode):
    """Print a line at the start; close the executor when a line comes in."""
    executor_module.RETRY_DELAY_S = 0.05  # of this process: sandboxes are killed one after the other
    async with Executor(workers=1, mode=mode, **LIMITS) as executor:
        running = [asyncio.ensure_future(executor.run(STUBBORN, {"inputs": [""], "outputs": [""]})) for _ in range(4)]
        print("started", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*running, return_exceptions=True)
    print("closed", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
