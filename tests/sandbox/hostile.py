"""Hostile and odd programs with the verdicts they must get; data only, run by ``test_hostile.py`` in both modes.

Most stand in ``hostile.txt``, each under ``### group | name | verdicts | name of the function called, if any``. Its
tests are lines ``#= [input, expected output]``; without them every test has no input and expects ``ok``. Limits of the
runs: ``LIMITS``.
"""

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path

LIMITS = {"cpu_limit_s": 1.0, "wall_factor": 3.0, "suite_cpu_limit_s": 1.25, "memory_limit_mb": 256}
USED_UP_S = 0.3
"""CPU seconds of a case that uses up whatever it gets."""
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A program, its tests (input, expected output), and the verdict of each test."""

    name: str
    code: str
    verdicts: list[str]
    tests: list[tuple[str, str]] | None = None
    fn_name: str | None = None

    def mapping(self) -> dict:
        """The tests as a mapping."""
        pairs = self.tests or [("", "ok")] * len(self.verdicts)
        limit = USED_UP_S if self.verdicts == ["time_limit"] else None
        tests = {"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]}
        return {**tests, "fn_name": self.fn_name, "time_limit": limit}


def _read(group: str) -> list[Case]:
    """The cases of a group in ``hostile.txt``."""
    cases = []
    for part in Path(__file__).with_name("hostile.txt").read_text(encoding="utf-8").split("### ")[1:]:
        head, body = part.split("\n", 1)
        of_group, name, verdicts, *fn_name = head.split(" | ")
        lines = body.split("\n")
        tests = [tuple(json.loads(line[3:])) for line in lines if line.startswith("#= ")]
        code = "\n".join(line for line in lines if not line.startswith("#= "))
        if of_group == group:
            cases.append(Case(name, code, verdicts.split(), tests or None, *fn_name))
    return cases


_SILENT = {"antigravity", "this", "idlelib", "tkinter", "_tkinter", "turtle", "turtledemo"}
_QUIET_MODULES = sys.stdlib_module_names - _SILENT
_ABSENT_MODULES = {name for name in _QUIET_MODULES if importlib.util.find_spec(name) is None}
"""Of another platform, or not installed."""
_IMPORT_ALL = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
failed = []
for name in input().split():
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(name)
print(*failed)
"""
_KILL_BY_OWNER = """
import fcntl, os, signal, socket, struct
left, right = socket.socketpair()
fcntl.fcntl(left, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
for command, value in (
    (fcntl.F_SETOWN, os.WHO()),
    (15, struct.pack("ii", 1, os.WHO())),  # F_SETOWN_EX
    (fcntl.F_SETSIG, signal.SIGKILL),
):
    try:
        fcntl.fcntl(left, command, value)
    except OSError:
        pass
right.send(b"x")
print("ok")
"""

CROSS_TENANT = _read("cross_tenant")
CHANNELS = [
    *_read("channels"),
    Case(
        "every module of the standard library that imports outside",
        _IMPORT_ALL,
        ["passed"],
        [(" ".join(sorted(_QUIET_MODULES)), " ".join(sorted(_ABSENT_MODULES)))],
    ),
]
FORGING = [
    *_read("forging"),
    Case("exit code 0 is not an answer", "raise SystemExit(0)", ["wrong_answer"]),
    Case("rewriting its own source", "open(__file__, 'w').write(\"print('ok')\")", ["runtime_error"]),
    Case("memory exit code claimed", "raise SystemExit(137)", ["memory_limit"]),
    Case("no kill of getpid by a descriptor's owner", _KILL_BY_OWNER.replace("WHO", "getpid"), ["passed"]),
    Case("no kill of getppid by a descriptor's owner", _KILL_BY_OWNER.replace("WHO", "getppid"), ["passed"]),
]
COMPILE_BOMB = f"x = 0x{'f' * 4_000_000} // 0x{'e' * 2_000_000}"
"""Ten CPU seconds."""
_OUTPUT = f"import sys\nfor _ in range({{}}):\n    sys.{{}}.write('x' * {MIB})"
_READ_ALL = "\nimport sys\ndata = sys.stdin.read()\nprint(len(data), data[-2])\n"
EXHAUSTION = [
    *_read("exhaustion"),
    Case("500 MB of output", _OUTPUT.format(500, "stdout"), ["output_limit"]),
    Case("300 MB of error output", _OUTPUT.format(300, "stderr") + "\nprint('ok')", ["output_limit"]),
    Case("20 MB of input", _READ_ALL, ["passed"], [("7" * (20 * MIB) + "\n", f"{20 * MIB + 1} 7")]),
    Case("compile bomb in parentheses", "(" * 200000, ["compile_error"]),
    Case("compile bomb in unary operators", "x = " + "-" * 500000 + "1", ["compile_error"]),
    Case("a syntax error in a very long line", "x = " + "1 + " * 75_000 + ")", ["compile_error"]),
    Case("compile bomb in memory", "x = [" + "1," * 3_000_000 + "]", ["compile_error"]),
]
_CRLF = "import sys\nsys.stdout.write('a\\r\\nb\\r\\n')"
HARMLESS = [
    *_read("harmless"),
    Case("open(0)", "print(sum(map(int, open(0).read().split())))", ["passed"], [("1\n2\n3", "6")]),
    Case("carriage returns in the input", "print(repr(input()))", ["passed"], [("a\r\nb\r\n", r"'a\r'")]),
    Case("carriage returns in the output", _CRLF, ["wrong_answer"], [("", "a\nb")]),
    Case("output that is not UTF-8", "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe')", ["wrong_answer"]),
    Case("unicode through and through", "print(input()[::-1])", ["passed"], [("äöü€", "€üöä")]),
    Case("lone surrogates in the input", "print(len(input()))", ["passed"], [("a\ud800b", "5")]),
    Case("an empty program", "", ["wrong_answer", "passed"], [("", "ok"), ("", "")]),
    Case("null bytes in the source", "print('ok')\0", ["compile_error"]),
    Case("lone surrogates in the source", "print('\ud800')", ["compile_error|runtime_error"]),
    Case("warnings are not errors", "print('ok' if 1 is 1 else '')\nx = '\\d'", ["passed"]),
    Case("wrong answer", "print('no')", ["wrong_answer"]),
]
CALLS = _read("calls")

QUICK = [*CROSS_TENANT, *CHANNELS, *FORGING, *HARMLESS, *CALLS]
ALL = [*QUICK, *EXHAUSTION]
