"""Idioms of ordinary programs, run by plain Python and in the sandbox. ``idioms.txt``: each under its ``### name``."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cobalt.sandbox.confinement import ENVIRONMENT
from cobalt.sandbox.executor import Executor

INPUT = "3\n1 2 3\n4 5 6\nabc def\n"
PARALLEL = 2


def read_idioms():
    """``{name: source}``."""
    text = Path(__file__).with_name("idioms.txt").read_text(encoding="utf-8")
    return dict(part.split("\n", 1) for part in text.split("### ")[1:] if "\n" in part)


IDIOMS = read_idioms()


def run_plain(source):
    """``(exit code, standard output)`` of a fresh interpreter that runs ``source`` as a script."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file, tempfile.TemporaryFile() as given:
        file.write(source)
        file.flush()
        given.write(INPUT.encode())
        given.seek(0)
        command = [sys.executable, "-B", file.name]
        environment = {**ENVIRONMENT, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        done = subprocess.run(command, stdin=given, capture_output=True, check=False, env=environment, cwd="/")
    return done.returncode, done.stdout.decode("utf-8", "replace")


def run_all_plain():
    """``[exit code, standard output]`` of each idiom."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(run_plain, IDIOMS.values()))


async def run_idioms(mode, plain):
    """``{name: (what plain Python makes of it, what the sandbox does)}``, as verdicts and texts."""
    programs = [
        (source, {"inputs": [INPUT], "outputs": [output]})
        for source, (_, output) in zip(IDIOMS.values(), plain, strict=True)
    ]
    async with Executor(workers=PARALLEL, mode=mode) as executor:
        results = await executor.run_many(programs)
    return {
        name: (
            "runtime_error" if code else "passed",
            result.verdicts[0].value,
            "" if code else result.outputs[0] + result.errors[0],
        )
        for name, (code, _), result in zip(IDIOMS, plain, results, strict=True)
    }
