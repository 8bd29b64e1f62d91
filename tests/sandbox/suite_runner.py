"""Run the hostile cases and the escape probes; print one JSON object. Used as a script for mode ``landlock``.

With ``--unprivileged`` the process first becomes an ordinary user (if it is root) and has the kernel refuse it
namespaces, as a container's default profile does. With ``--without landlock`` it is refused Landlock too. With
``--crowd`` it runs, in mode ``landlock``, ordinary programs beside one that starts all the threads it can.
"""

import argparse
import asyncio
import ctypes
import json
import os
import struct

from hostile import ALL, LIMITS

from cobalt.sandbox.executor import Executor
from cobalt.sandbox.probe_program import PROBES
from cobalt.sandbox.selftest import PROBE_PROGRAM, canaries

ORDINARY_USER = 65534
REFUSALS = {"namespaces": (272, 97), "landlock": (444, 444)}  # unshare, landlock_create_ruleset
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001


def refuse(names):
    """Have these system calls fail with EPERM from here on."""
    column = ("x86_64", "aarch64").index(os.uname().machine)
    numbers = [REFUSALS[name][column] for name in names]
    steps = [(0x20, 0, 0, 0), *((0x15, len(numbers) - i, 0, n) for i, n in enumerate(numbers))]
    steps += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _EPERM)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, program):
        raise OSError(ctypes.get_errno(), "prctl")


def become_ordinary():
    """Leave root for good."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
        os.setresuid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)


async def run_cases(executor, cases):
    """``{case: {"verdicts", "next", "infra"}}``: each case, then an ordinary program on the same workers."""
    outcomes = {}
    for case in cases:
        result = await executor.run(case.code, case.mapping())
        after = await executor.run("print(input())", {"inputs": ["next"], "outputs": ["next"]})
        outcomes[case.name] = {
            "verdicts": [verdict.value for verdict in result.verdicts],
            "next": [verdict.value for verdict in after.verdicts],
            "infra": result.infra_error or after.infra_error,
        }
    return outcomes


async def run_probes(executor):
    """``{probe: {"outcome", "next"}}``: each escape probe as a program of its own, then an ordinary program."""
    source = PROBE_PROGRAM.read_text()
    outcomes = {}
    with canaries() as laid_out:
        for name in PROBES:
            question = json.dumps({"names": [name], **laid_out})
            result = await executor.run(source, {"inputs": [question], "outputs": [f"{name}: contained"]})
            after = await executor.run("print(input())", {"inputs": ["next"], "outputs": ["next"]})
            text = "contained" if result.solved else f"{result.verdicts[0].value}: {result.feedback[0][-300:]}"
            outcomes[name] = {"outcome": text, "next": [verdict.value for verdict in after.verdicts]}
    return outcomes


async def run_everything(mode):
    """``{"mode", "cases", "probes"}``."""
    async with Executor(workers=1, mode=mode, **LIMITS) as executor:
        return {
            "mode": executor.mode,
            "cases": await run_cases(executor, ALL),
            "probes": await run_probes(executor),
        }


CROWD = """
import _thread, threading, time
threading.stack_size(32768)
started = 1
try:
    while started < 5000:
        _thread.start_new_thread(time.sleep, (60,))
        started += 1
except RuntimeError:
    pass
time.sleep(8)  # longer than lost sandboxes are retried
print(started)
"""


async def run_crowd():
    """``{"threads", "verdicts"}``: threads of the crowding program, verdicts of those that start meanwhile."""
    async with Executor(workers=2, mode="landlock") as executor:
        crowd = asyncio.ensure_future(executor.run(CROWD, {"inputs": [""], "outputs": [""]}))
        await asyncio.sleep(1)
        tests = {"inputs": ["next"] * 4, "outputs": ["next"] * 4}
        results = await executor.run_many([("print(input())", tests)] * 3)
        threads = (await crowd).feedback[0].split("Program's Output:\n")[1].split()[0]
    return {"threads": int(threads), "verdicts": [verdict.value for result in results for verdict in result.verdicts]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--unprivileged", action="store_true")
    parser.add_argument("--crowd", action="store_true")
    parser.add_argument("--without", nargs="*", default=[], choices=[*REFUSALS])
    arguments = parser.parse_args()
    if arguments.unprivileged:
        become_ordinary()
    if arguments.without:
        refuse(arguments.without)
    print(json.dumps(asyncio.run(run_crowd() if arguments.crowd else run_everything("auto"))))
