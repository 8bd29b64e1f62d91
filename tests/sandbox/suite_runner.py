"""Run a scenario, such as the hostile cases and the escape probes. As a script: by another user, or confined.

With ``--unprivileged`` the process first becomes an ordinary user (if it is root). With ``--without namespaces`` the
kernel refuses it those, as in a container with the default profile. With ``--without landlock`` it is refused Landlock
too. It prints what the scenario finds as one JSON object.
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import struct
import sys
import tempfile
import time
from functools import cache
from itertools import islice
from pathlib import Path
from unittest.mock import patch

from hostile import ALL, COMPILE_BOMB, LIMITS, QUICK, Case
from idioms import run_idioms
from kills import run_and_kill
from lifetimes import run_server
from plain_runs import run_unjudged, start_patient
from processes import children, wait_until

from cobalt.sandbox import Limits, zygote
from cobalt.sandbox import executor as executor_module
from cobalt.sandbox.confinement import TIME_ZONES
from cobalt.sandbox.executor import Executor
from cobalt.sandbox.inside.kernel import number
from cobalt.sandbox.probe_program import PROBES
from cobalt.sandbox.selftest import PROBE_PROGRAM, canaries
from cobalt.sandbox.turns import Terms, Turn, TurnOver

ORDINARY_USER = 65534 - int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""The kernel counts tasks by user: processes of pytest that work side by side have one each."""
REFUSALS = {"namespaces": "unshare", "landlock": "landlock_create_ruleset"}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001


def refuse(names):
    """Have these system calls fail with EPERM from here on."""
    numbers = [number(REFUSALS[name]) for name in names]
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


NEXT = ("print(input())", {"inputs": ["next"], "outputs": ["next"]})
"""An ordinary program."""


async def run_cases(executor, cases):
    """``{case: {"verdicts", "shown", "next", "infra"}}``: each case, then an ordinary program on the same workers."""
    outcomes = {}
    for case in cases:
        result = await executor.run(case.code, case.mapping())
        after = await executor.run(*NEXT)
        outcomes[case.name] = {
            "verdicts": [verdict.value for verdict in result.verdicts],
            "shown": result.outputs[0] + result.errors[0],
            "next": [verdict.value for verdict in after.verdicts],
            "infra": result.infra_error or after.infra_error,
        }
    return outcomes


_PROBES_OF_A_PROGRAM = 11


async def run_probes(executor):
    """``{probe: {"verdict", "shown", "next"}}``: each a test of its own; after every few an ordinary program."""
    source, names, outcomes = PROBE_PROGRAM.read_text(), list(PROBES), {}
    with canaries() as laid_out:
        for start in range(0, len(names), _PROBES_OF_A_PROGRAM):
            chosen = names[start : start + _PROBES_OF_A_PROGRAM]
            tests = [(json.dumps({"names": [name], **laid_out}), f"{name}: contained") for name in chosen]
            result = await executor.run(source, Case("probes", source, ["passed"] * len(tests), tests).mapping())
            after = await executor.run(*NEXT)
            for name, verdict, output, error in zip(
                chosen, result.verdicts, result.outputs, result.errors, strict=True
            ):
                shown = output + error + (result.infra_error or "")
                outcomes[name] = {"verdict": verdict.value, "shown": shown, "next": after.solved}
    return outcomes


READER = """
import json
for path in json.loads(input()):
    try:
        open(path, "rb").close()
        print(path)
    except OSError:
        pass
"""
_READ_OUTSIDE = 3000


def readable_outside():
    """``[needed, not needed]``: files that this process may read; two of Python's, some of the machine's others."""
    library = os.path.dirname(os.__file__)
    others = (
        os.path.join(directory, name)
        for top in (f"{library}/site-packages", "/usr/lib/python3/dist-packages", "/etc", "/usr/lib")
        for directory, _, names in os.walk(top)
        for name in names
        if ".so" not in name and ("-packages" in directory or not directory.startswith(library))
    )
    chosen = (path for path in others if os.path.isfile(path) and os.access(path, os.R_OK))
    chosen = (path for path in chosen if not os.path.realpath(path).startswith(TIME_ZONES))  # as /etc/localtime
    return [[os.__file__, json.__file__], list(islice(chosen, _READ_OUTSIDE))]


async def run_reader(executor):
    """``{"offered", "read"}``: per list of files, how many a program was asked to read, and which it could."""
    offered = readable_outside()
    read = []
    for paths in offered:
        result = await executor.run(READER, {"inputs": [json.dumps(paths)], "outputs": ["?"]})
        read.append(result.outputs[0].split())
    return {"offered": [len(paths) for paths in offered], "read": read}


OWN_CHECKER = """
import sys

def same(output, expected):
    if "loop" in output:
        while True:
            pass
    if "exit" in output:
        sys.exit(0)
    return "no" if "other" in output else int(output) == int(expected)
"""
ANSWERS = {
    "print(7)": "passed",
    "print(8)": "wrong_answer",
    "print('abc')": "wrong_answer",
    "print('9' * 5000)": "wrong_answer",
    "import os; os.write(1, b'\\xff')": "wrong_answer",
    "print('loop')": "wrong_answer",
    "print('exit')": "wrong_answer",
    "print('other')": "wrong_answer",
}
"""Programs where 7 is right, and what becomes of them, though the checker fails on most."""
CHECKER_PROGRAM = f"""{OWN_CHECKER}
import json
given = json.loads(input())
answer = same(given["output"], given["expected"])
print({{True: "accepted", False: "rejected"}}.get(answer, answer))
"""


async def run_checkers(mode):
    """``{"own", "program"}``: what becomes of ``ANSWERS``, and of a program whose expected output no checker takes."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "own.py")
        path.write_text(OWN_CHECKER)
        async with Executor(workers=1, mode=mode, checker=f"{path}:same", cpu_limit_s=0.3) as executor:
            for kind, tests in (("own", {}), ("program", {"checker_program": CHECKER_PROGRAM})):
                programs = [(code, {"inputs": [""], "outputs": ["7"], **tests}) for code in ANSWERS]
                programs.append(("print(7)", {"inputs": [""], "outputs": ["loop"], **tests}))
                results = await executor.run_many(programs)
                found[kind] = [result.verdicts[0].value for result in results]
    return found


WAVES = """
import threading, time
def wake_with_all_others():
    while True:
        time.sleep(0.01 - time.monotonic() % 0.01)
for _ in range(62):
    threading.Thread(target=wake_with_all_others).start()
"""


async def run_waves(mode):
    """By how much the waiting of a test was ever longer than its life: threads that wake together wait together."""
    most_s, started = 0.0, time.monotonic()
    async with Executor(workers=1, mode=mode, cpu_limit_s=0.5, suite_cpu_limit_s=0.5) as executor:
        running = asyncio.ensure_future(executor.run(WAVES, {"inputs": [""], "outputs": ["?"]}))
        while not running.done() and most_s <= 0:
            await asyncio.sleep(0.05)
            waited = max(zygote.threads_of(worker.process.pid).waited_s for worker in executor._running)
            most_s = max(most_s, waited - (time.monotonic() - started))
        running.cancel()
        return most_s


def run_compile_bomb(mode):
    """How a turn ends that compiling takes longer than, and how compiling ends that takes longer than it may."""
    endings, sandbox = [], zygote.Zygote(mode, Limits())
    with patch.object(zygote, "COMPILE_CPU_S", 1.0), contextlib.closing(sandbox):
        for terms in (Terms(0.5), Terms()):
            try:
                with sandbox.program(COMPILE_BOMB, None, Turn(terms)):
                    endings.append("compiled")
            except (TurnOver, zygote.CompileFailure) as ending:
                endings.append(type(ending).__name__)
    return endings


async def run_everything(mode, cases):
    """``{"mode", "cases", "probes", "reading", "checkers", "waves", "unjudged", "compiling"}``, side by side.

    Each with an executor of its own: most of the time one or the other waits for a limit.
    """
    async with Executor(workers=1, mode=mode, **LIMITS) as executor:
        patient = await start_patient(mode)

        async def attack():
            return {
                "cases": await run_cases(executor, cases),
                "probes": await run_probes(executor),
                "reading": await run_reader(executor),
            }

        attacks, checkers, waves, unjudged, compiling = await asyncio.gather(
            attack(),
            run_checkers(mode),
            run_waves(mode),
            run_unjudged(patient),
            asyncio.to_thread(run_compile_bomb, executor.mode),
        )
    found = {"checkers": checkers, "waves": waves, "unjudged": unjudged, "compiling": compiling}
    return {"mode": executor.mode, **attacks, **found}


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
time.sleep(4)  # longer than lost sandboxes are retried
print(started)
"""


async def run_crowd(mode):
    """``{"threads", "verdicts"}``: threads of the crowding program, verdicts of those that start meanwhile."""
    executor_module.RETRY_DELAY_S = 0.05  # of this process
    async with Executor(workers=2, mode=mode) as executor:
        crowd = asyncio.ensure_future(executor.run(CROWD, {"inputs": [""], "outputs": [""]}))
        await asyncio.sleep(1)
        tests = {"inputs": ["next"] * 4, "outputs": ["next"] * 4}
        results = await executor.run_many([("print(input())", tests)] * 3)
        threads = (await crowd).outputs[0]
    return {"threads": int(threads), "verdicts": [verdict.value for result in results for verdict in result.verdicts]}


LIFE = "import time\nwhile True: {}"
_ANY = {"inputs": ["a", "b"], "outputs": ["a", "b"]}
LONG = [
    (LIFE.format("time.sleep(1)"), _ANY),
    (LIFE.format("pass"), _ANY),
    (WAVES, _ANY),
    (COMPILE_BOMB, _ANY),
    ("print(input())", {**_ANY, "checker_program": LIFE.format("time.sleep(1)")}),
]


async def run_lanes(mode):
    """What became of good programs among sleepers and loops, of a cancelled program, and of one in several turns."""
    executor_module.TURN_S = 0.25  # of this process
    echo = ("print(input())", _ANY)
    async with Executor(workers=2, mode=mode, cpu_limit_s=20) as executor:
        long = [asyncio.ensure_future(executor.run(*program)) for program in LONG * 2]
        good = await executor.run_many([echo] * 20)
        still_running = sum(not task.done() for task in long)
        others = set(children(os.getpid()))
        for task in long:
            task.cancel()
        after = [await executor.run(*echo), *await executor.run_many([(LIFE.format("break"), echo[1])] * 3)]
        await asyncio.to_thread(wait_until, lambda: executor.queue_depth == 0 and len(executor._running) <= 2 + 2 + 1)
        return {
            "good": [verdict.value for result in good for verdict in result.verdicts],
            "still_running": still_running,
            "after": [verdict.value for result in after for verdict in result.verdicts],
            "busy": await busy_processes(others),
        }


async def busy_processes(pids):
    """How many of these processes use CPU time while nothing is asked of them."""

    def ticks():
        used = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                used[pid] = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        return used

    before = ticks()
    await asyncio.sleep(1)
    return sum(used > before.get(pid, used) + 10 for pid, used in ticks().items())


SCENARIOS = {
    "all": lambda mode: run_everything(mode, ALL),
    "quick": lambda mode: run_everything(mode, QUICK),  # without the cases that take long
    "crowd": run_crowd,
    "lanes": run_lanes,
    "idioms": lambda mode: run_idioms(mode, json.load(sys.stdin)),
    "server": run_server,
    "kills": run_and_kill,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--unprivileged", action="store_true")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--without", nargs="*", default=[], choices=[*REFUSALS])
    parser.add_argument("--scenario", default="quick", choices=[*SCENARIOS])
    arguments = parser.parse_args()
    if arguments.unprivileged:
        become_ordinary()
    if arguments.without:
        refuse(arguments.without)
    executor_module.choose_mode = cache(executor_module.choose_mode)  # its executors share the answer
    print(json.dumps(asyncio.run(SCENARIOS[arguments.scenario](arguments.mode))))
