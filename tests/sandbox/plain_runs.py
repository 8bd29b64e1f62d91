"""Programs that nobody judges, run in one place."""

import asyncio
import tempfile
from dataclasses import astuple
from pathlib import Path
from unittest.mock import patch

from processes import wait_until

from cobalt.errors import InfraError
from cobalt.sandbox import Executor, TestCases, executor

FILES = {"data/words.txt": b"some words", "helper.py": b"NUMBER = 5\n"}
READ_FILES = """
import helper, os
print(open("data/words.txt").read(), helper.NUMBER, sorted(os.listdir(".")), input())
for name in ("new", "helper.py"):
    try:
        open(name, "w")
    except OSError:
        print("not written")
"""
LOOK_AROUND = "import os\nprint(os.path.exists('helper.py') or os.path.exists('/cobalt-files/helper.py'))"
SLOW_ON_B = "given = input()\nwhile given == 'b': pass\nprint(given * 1000)"
LOUD = "import sys\nprint('x' * (3 << 20))\nsys.stderr.write('y')\nsys.exit(3)"


def files_left():
    """Files of programs in the file system of the machine, where mode ``namespaces`` puts none."""
    return [str(path) for path in Path(tempfile.gettempdir()).glob("cobalt-files-*/helper.py")]


def inputs(*texts, **limits):
    """They, without expected outputs."""
    return TestCases(texts, ("",) * len(texts), **limits)


async def start_patient(mode):
    """An executor with turns so long that a busy machine is no reason why a turn ends."""
    patient = Executor(workers=1, mode=mode, output_limit_mb=4, cpu_limit_s=30)
    with patch.object(executor, "TURN_S", 2.0):  # which is read at the start
        await patient.start()
    return patient


async def run_unjudged(running):
    """``{case: outputs}``, of a patient executor, which is closed then."""
    try:
        cases = {
            "files": (READ_FILES, inputs("1", "2")),
            "no files": (LOOK_AROUND, inputs("")),
            "alone": (SLOW_ON_B, inputs("b", time_limit=0.3)),
            "loud": (LOUD, inputs("1", "2", "3", "4")),
            "memory": ("x = bytearray(400 << 20)", inputs("", memory_limit=200)),
            "no Python": ("def (", inputs("1", "2")),
            "no text": (r"import sys; sys.stdout.buffer.write(b'\xff' * (3 << 20))", inputs("")),
            "control characters": ("print('\\0' * (3 << 20))", inputs("")),
            "much text": ("print('é\\n' * (1 << 20))", inputs("")),
            "one turn": (SLOW_ON_B, inputs("a", "b", "a")),
        }
        outcomes = {
            name: await running.run_inputs(code, tests, FILES if name == "files" else {})
            for name, (code, tests) in cases.items()
        }
        workers, refusal = set(running._running), ""
        try:
            await running.run_inputs("", inputs(""), {"n" * 300: b""})
        except InfraError as error:
            refusal = str(error)
        is_left = workers == running._running
        leaving = asyncio.ensure_future(running.run_inputs("while True: pass", inputs(""), FILES))
        await asyncio.to_thread(wait_until, lambda: running.mode == "namespaces" or files_left())
        leaving.cancel()
    finally:
        await running.close()
    found = {name: [list(astuple(output)) for output in outputs] for name, outputs in outcomes.items()}
    found["refused"] = [refusal, is_left]
    return {**found, "left": files_left()}
