"""Programs that use memory, in a control group. A script: ``hungry.py --mode MODE --group PATH SETTINGS``."""

import argparse
import asyncio
import json
import os
from pathlib import Path
from unittest.mock import patch

from suite_runner import become_ordinary

from cobalt.sandbox import executor as executor_module
from cobalt.sandbox.executor import Executor

MIB = 1 << 20
HUNGRY = """
import time
held = bytearray(b"x") * ({use_mb} << 20)
time.sleep({nap_s})
print({answer})
"""
PROGRAMS = 3
LONG_NAP_S, SHORT_NAP_S = 0.7, 0.2
"""Longer than a turn in the quick lane, and shorter."""


async def run(mode, limit_file, use_mb, memory_limit_mb, shrink_to_mb):
    """``{"workers", "verdicts", "checked", "short"}``.

    Verdicts of programs side by side, of two that others of their size judge, and of one for which there is too little
    memory, once the group's is ``shrink_to_mb``.
    """
    tests = {"inputs": [""], "outputs": [str(use_mb)]}
    checker = HUNGRY.format(use_mb=use_mb, nap_s=SHORT_NAP_S, answer="'accepted'")

    async def verdicts(naps_s, tests):
        sources = [HUNGRY.format(use_mb=use_mb, nap_s=nap_s, answer="len(held) >> 20") for nap_s in naps_s]
        results = await executor.run_many([(source, tests) for source in sources])
        return [verdict.value for result in results for verdict in result.verdicts]

    async with Executor(mode=mode, memory_limit_mb=memory_limit_mb) as executor:
        found = {"workers": executor.workers, "verdicts": await verdicts([0.0] * PROGRAMS, tests)}
        found["checked"] = await verdicts([LONG_NAP_S, SHORT_NAP_S], {**tests, "checker_program": checker})
        os.write(limit_file, str(shrink_to_mb * MIB).encode())
        with patch.object(executor_module, "RETRY_DELAY_S", 0.05):
            return {**found, "short": await verdicts([0.0], tests)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--unprivileged", action="store_true")
    parser.add_argument("--mode", required=True)
    parser.add_argument("--group", type=Path, required=True)
    parser.add_argument("settings", type=json.loads)
    arguments = parser.parse_args()
    (arguments.group / "cgroup.procs").write_text(str(os.getpid()))
    file = next(arguments.group / n for n in ("memory.limit_in_bytes", "memory.max") if (arguments.group / n).exists())
    opened = os.open(file, os.O_WRONLY)  # while this process may
    if arguments.unprivileged:
        become_ordinary()
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    print(json.dumps(asyncio.run(run(arguments.mode, opened, **arguments.settings))))
