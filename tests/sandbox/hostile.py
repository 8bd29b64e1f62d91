"""Hostile and odd programs with the verdicts they must get; data only, run by ``test_hostile.py`` in both modes.

Limits of the runs: ``LIMITS``. A case's tests are (input, expected output) pairs.
"""

import importlib.util
import sys
from dataclasses import dataclass

LIMITS = {"cpu_limit_s": 1.0, "wall_factor": 4.0, "suite_cpu_limit_s": 2.5, "memory_limit_mb": 256}

MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A program, its tests, and the verdict of each test."""

    name: str
    code: str
    verdicts: list[str]
    tests: list[tuple[str, str]] | None = None
    fn_name: str | None = None
    checker: str = "exact"

    def mapping(self) -> dict:
        """The tests as a mapping."""
        pairs = self.tests or [("", "ok")] * len(self.verdicts)
        tests = {"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]}
        return tests if self.fn_name is None else {**tests, "fn_name": self.fn_name}


_QUIET_MODULES = sys.stdlib_module_names - {
    "antigravity",
    "this",
    "idlelib",
    "tkinter",
    "_tkinter",
    "turtle",
    "turtledemo",
}
_ABSENT_MODULES = {name for name in _QUIET_MODULES if importlib.util.find_spec(name) is None}
"""Of another platform, or not installed."""

CROSS_TENANT = [
    Case(
        "files do not pass from test to test",
        """
import os
seen = [d for d in ("/tmp", "/dev/shm", "/var/tmp") if os.path.isdir(d) and os.path.exists(d + "/cobalt-note")]
for d in ("/tmp", "/dev/shm", "/var/tmp"):
    try:
        open(d + "/cobalt-note", "w").write("x")
    except OSError:
        pass
print(seen or "ok")
""",
        ["passed", "passed"],
    ),
    Case(
        "interpreter state does not pass from test to test",
        """
import builtins, sys, math
print("seen" if hasattr(builtins, "note") or hasattr(math, "note") or "note" in sys.modules else "ok")
builtins.note = math.note = sys.modules["note"] = 1
""",
        ["passed", "passed"],
    ),
    Case(
        "other inputs and expected outputs are not in memory",
        """
import gc, sys  # MARKER IN THE SOURCE
first = input()
gc.unfreeze()
texts = [thing for thing in gc.get_referents(*gc.get_objects()) if isinstance(thing, (str, bytes))]
seeing = any("MARKER IN THE" + " SOURCE" in thing for thing in texts if isinstance(thing, str))
frame = sys._getframe()
while frame:
    texts += [v for v in frame.f_locals.values() if isinstance(v, (str, bytes))]
    frame = frame.f_back
def backwards(text):
    return "".join(reversed(text))
texts = [t if isinstance(t, str) else t.decode("latin-1") for t in texts]
hidden = backwards("ELDEEN-DETCEPXE")  # the expected output, not to be found as it is
needles = [backwards(digit + "-ELDEEN") for digit in "012"] + [hidden]
found = {n for n in needles for t in texts if n in t and n != first}
print(sorted(found) or (hidden if seeing else "the search does not reach what the harness holds"))
""",
        ["passed", "passed", "passed"],
        [(f"NEEDLE-{i}", "EXPECTED-NEEDLE") for i in range(3)],
    ),
    Case(
        "an input cannot be changed under a retry",
        """
import os
try:
    os.pwrite(0, b"zzz", 0)
except OSError:
    pass
os.lseek(0, 0, 0)
print(input())
""",
        ["passed"],
        [("abc", "abc")],
    ),
]

CHANNELS = [
    Case(
        "no locks, leases, notices, seals, owners or sizes of pipes: every other command on a descriptor is refused",
        """
import fcntl, os, struct
needed = {fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_DUPFD_CLOEXEC}
library, (_, pipe) = os.open(os.__file__, os.O_RDONLY), os.pipe()
lock = struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0)
done = []
for command in {*range(64), *range(1000, 1100)} - needed:
    for descriptor in (0, 1, library, pipe):
        for argument in (0, 1 << 20, lock):
            try:
                fcntl.fcntl(descriptor, command, argument)
                done.append(command)
            except PermissionError:
                pass
for attempt in (fcntl.flock, fcntl.lockf):
    try:
        attempt(library, fcntl.LOCK_SH)
        done.append(attempt.__name__)
    except PermissionError:
        pass
print(done or "ok")
""",
        ["passed"],
    ),
    Case(
        "the commands on descriptors that Python uses are allowed",
        """
import fcntl, os
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | os.O_NONBLOCK)
fcntl.fcntl(r, fcntl.F_SETFD, fcntl.fcntl(r, fcntl.F_GETFD) & ~fcntl.FD_CLOEXEC)
os.write(fcntl.fcntl(w, fcntl.F_DUPFD_CLOEXEC, 10), b"ok")
print(os.read(fcntl.fcntl(r, fcntl.F_DUPFD, 10), 2).decode())
""",
        ["passed"],
    ),
    Case(
        "system calls newer than the filter are refused",
        """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
newest = 472
codes = [(libc.syscall(number, 0, 0, 0), ctypes.get_errno()) for number in range(newest, 2 * newest)]
print("ok" if set(codes) == {(-1, errno.EPERM)} else codes)
""",
        ["passed"],
    ),
    Case(
        "the call that the kernel lets past every filter does nothing",
        """
import ctypes
uprobe = 336
print("ok" if ctypes.CDLL(None).syscall(uprobe) == -1 else "done")
""",
        ["passed"],
    ),
    Case(
        "packages that are not allowed, by the path where they are",
        """
import importlib, sys
found = []
for directory in [*sys.path, *(f"{path}/site-packages" for path in sys.path), "/usr/lib/python3/dist-packages"]:
    sys.path = [directory, "/usr/lib/python3.11"]
    importlib.invalidate_caches()
    for name in ("pytest", "_pytest", "pip", "yaml", "setuptools", "sympy", "scipy", "ruff"):
        try:
            importlib.import_module(name)
            found.append(name)
        except ModuleNotFoundError:
            pass
print(found or "ok")
""",
        ["passed"],
    ),
    Case(
        "a package that is not allowed is not there",
        """
try:
    import pytest
except ImportError as error:
    print(type(error).__name__)
""",
        ["passed"],
        [("", "ModuleNotFoundError")],
    ),
    Case(
        "every module of the standard library that imports outside",
        """
import importlib, sys, warnings
warnings.simplefilter("ignore")
failed = []
for name in input().split():
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(name)
print(*failed)
""",
        ["passed"],
        [(" ".join(sorted(_QUIET_MODULES)), " ".join(sorted(_ABSENT_MODULES)))],
    ),
    Case(
        "where the server is installed is not told",
        """
import os, sys
told = [sys.argv, sys.orig_argv, sys.path, sys.executable, sys.modules["__main__"].__file__, os.getcwd()]
told += [os.environ, list(sys.path_importer_cache), [getattr(m, "__file__", "") for m in sys.modules.values()]]
print("told" if "zygote" in repr(told) or "sandbox" in repr(told) else "ok")
""",
        ["passed"],
    ),
]

FORGING = [
    Case(
        "writing to every descriptor forges nothing",
        """
import os, struct
packet = struct.pack("iiddq", 0, 0, 0.0, 0.0, 0)
for descriptor in range(3, 1024):
    try:
        os.write(descriptor, packet)
    except OSError:
        pass
print("wrong")
""",
        ["wrong_answer"],
    ),
    Case(
        "exit before any output",
        """
import os
os._exit(0)
""",
        ["wrong_answer"],
    ),
    Case("exit code 0 is not an answer", "raise SystemExit(0)", ["wrong_answer"]),
    Case(
        "right output and a failing exit",
        """
print('ok')
raise SystemExit(3)
""",
        ["runtime_error"],
    ),
    Case(
        "replacing the exit, the builtins and the harness's modules",
        """
import builtins, os, sys
os._exit = lambda code: None
os.write = lambda fd, data: len(data)
builtins.print = builtins.exec = lambda *a, **k: None
frame, found = sys._getframe(), []
while frame:
    found += [value for value in frame.f_globals.values() if hasattr(value, "RESULT")]
    frame = frame.f_back
for module in found:
    module.RESULT = None
1 / 0 if found else "the harness has no such name any more"
""",
        ["runtime_error"],
    ),
    Case(
        "harness frames give no way to pass",
        """
import sys
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()):
        if name in ("code", "killed", "status"):
            frame.f_locals[name] = 0
        if hasattr(value, "channel"):
            try:
                value.channel.send(b"\\0" * 32)
            except OSError:
                pass
    frame = frame.f_back
print("wrong")
""",
        ["wrong_answer"],
    ),
    Case("rewriting its own source", "open(__file__, 'w').write(\"print('ok')\")", ["runtime_error"]),
    Case("memory exit code claimed", "raise SystemExit(137)", ["memory_limit"]),
    Case(
        "killing itself is its own failure",
        """
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
""",
        ["runtime_error"],
    ),
    Case(
        "no limit of CPU time, which ends in a kill",
        """
import resource
print("ok" if resource.getrlimit(resource.RLIMIT_CPU) else "")
try:
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    print("limited")
except ValueError:
    pass
""",
        ["passed"],
    ),
    *(
        Case(
            f"no kill of {who} by a descriptor's owner",
            f"""
import fcntl, os, signal, socket, struct
left, right = socket.socketpair()
fcntl.fcntl(left, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
for command, value in (
    (fcntl.F_SETOWN, os.{who}()),
    (15, struct.pack("ii", 1, os.{who}())),  # F_SETOWN_EX
    (fcntl.F_SETSIG, signal.SIGKILL),
):
    try:
        fcntl.fcntl(left, command, value)
    except OSError:
        pass
right.send(b"x")
print("ok")
""",
            ["passed"],
        )
        for who in ("getpid", "getppid")
    ),
    Case(
        "aborting is its own failure",
        """
import os
os.abort()
""",
        ["runtime_error"],
    ),
    Case(
        "crashing the interpreter",
        """
import ctypes
ctypes.string_at(0)
""",
        ["runtime_error"],
    ),
    Case(
        "a forbidden architecture's system call",
        """
import ctypes
ctypes.CDLL(None).syscall(0x40000000 + 57)
print('ok')
""",
        ["passed"],
    ),
]

EXHAUSTION = [
    Case(
        "fork bomb",
        """
import os
while True:
    os.fork()
""",
        ["runtime_error"],
    ),
    Case(
        "fork bomb by posix, errors ignored",
        """
import posix
for _ in range(1000):
    try:
        posix.fork()
    except OSError:
        pass
print("ok")
""",
        ["passed"],
    ),
    Case(
        "multiprocessing",
        """
import multiprocessing
multiprocessing.Process(target=print).start()
""",
        ["runtime_error"],
    ),
    Case(
        "subprocess",
        """
import subprocess
print(subprocess.run(['/bin/echo', 'ok']))
""",
        ["runtime_error"],
    ),
    Case(
        "thread bomb",
        """
import threading, time
def wait():
    time.sleep(60)
for _ in range(100000):
    threading.Thread(target=wait, daemon=True).start()
""",
        ["runtime_error"],
    ),
    Case(
        "thread bomb with small stacks, errors ignored",
        """
import _thread, threading, time
threading.stack_size(32768)
started = 0
for _ in range(20000):
    try:
        _thread.start_new_thread(time.sleep, (60,))
        started += 1
    except RuntimeError:
        break
print("ok" if started < 5000 else started)
""",
        ["passed"],
    ),
    Case(
        "memory in one process",
        """
x = bytearray(2 << 30)
print('ok')
""",
        ["memory_limit"],
    ),
    Case(
        "memory bit by bit",
        """
x = []
while True:
    x.append(bytes(1 << 20))
""",
        ["memory_limit"],
    ),
    Case(
        "memory in four processes",
        f"""
import os
for _ in range(4):
    if os.fork() == 0:
        x = bytearray({900 * MIB})
        os._exit(0)
print("ok")
""",
        ["runtime_error"],
    ),
    Case(
        "memory in numpy",
        """
import numpy
print(numpy.ones(1 << 30).sum())
""",
        ["memory_limit"],
    ),
    Case("500 MB of output", f"import sys\nfor _ in range(500):\n    sys.stdout.write('x' * {MIB})", ["output_limit"]),
    Case(
        "500 MB of output, errors ignored",
        f"""
import os
for _ in range(500):
    try:
        os.write(1, b'x' * {MIB})
    except OSError:
        pass
""",
        ["output_limit"],
    ),
    Case(
        "300 MB of error output",
        f"import sys\nfor _ in range(300):\n    sys.stderr.write('x' * {MIB})\nprint('ok')",
        ["output_limit"],
    ),
    Case(
        "a big file",
        f"""
with open("/tmp/big", "wb") as file:
    for _ in range(1000):
        file.write(b"x" * {MIB})
""",
        ["runtime_error"],
    ),
    Case(
        "many files",
        """
for i in range(100000):
    open(f'/dev/shm/{i}', 'w').close()
""",
        ["runtime_error"],
    ),
    Case(
        "many descriptors",
        """
import os
x = [os.dup(0) for _ in range(100000)]
""",
        ["runtime_error"],
    ),
    Case(
        "pipes full of data",
        """
import os
for _ in range(20):
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b"x" * 65536)
    except BlockingIOError:
        pass
print("ok")
""",
        ["passed"],
    ),
    Case(
        "20 MB of input",
        """
import sys
data = sys.stdin.read()
print(len(data), data[-1])
""",
        ["passed"],
        [("7" * (20 * MIB), f"{20 * MIB} 7")],
    ),
    Case("compile bomb in parentheses", "(" * 200000, ["compile_error"]),
    Case("compile bomb in unary operators", "x = " + "-" * 500000 + "1", ["compile_error"]),
    Case("compile bomb in CPU time", f"x = 0x{'f' * 4_000_000} // 0x{'e' * 2_000_000}", ["compile_error"]),
    Case("a syntax error in a very long line", "x = " + "1 + " * 75_000 + ")", ["compile_error"]),
    Case(
        "an import that exits",
        """
try:
    import numpy.f2py.__main__
finally:
    raise SystemExit(3)
""",
        ["runtime_error"],
    ),
    Case("compile bomb in memory", "x = [" + "1," * 3_000_000 + "]", ["compile_error"]),
    Case(
        "recursion to the end of the stack",
        """
import sys
sys.setrecursionlimit(1 << 30)
class Endless:
    def __repr__(self):
        return repr(self)
repr(Endless())
""",
        ["runtime_error"],
    ),
    Case(
        "spinning",
        """
while True:
    pass
""",
        ["time_limit"],
    ),
    Case(
        "spinning in C, signals ignored",
        """
import signal
for s in (signal.SIGXCPU, signal.SIGTERM, signal.SIGALRM, signal.SIGPROF):
    signal.signal(s, signal.SIG_IGN)
sum(range(1 << 40))
""",
        ["time_limit"],
    ),
    Case(
        "spinning in threads",
        """
import threading
def spin():
    while True:
        pass
for _ in range(4):
    threading.Thread(target=spin).start()
""",
        ["time_limit"],
    ),
    Case(
        "sleeping",
        """
import time
time.sleep(1000)
""",
        ["time_limit"],
    ),
    Case(
        "waiting for a lock",
        """
import threading
threading.Lock().acquire()
l = threading.Lock(); l.acquire(); l.acquire()
""",
        ["time_limit"],
    ),
    Case(
        "a thread that outlives the program",
        """
import threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("ok")
""",
        ["passed"],
    ),
    Case(
        "suite budget: passed tests keep counting",
        """
import time
n = float(input())
while time.process_time() < n:
    pass
print("ok")
""",
        ["passed", "passed", "passed", "time_limit", "time_limit", "time_limit"],
        [("0", "ok"), ("0.8", "ok"), ("0.8", "ok"), ("0.9", "ok"), ("0.9", "ok"), ("0", "ok")],
    ),
]

HARMLESS = [
    Case(
        "exit",
        """
print('ok')
exit()
""",
        ["passed"],
    ),
    Case(
        "quit",
        """
print('ok')
quit(0)
""",
        ["passed"],
    ),
    Case(
        "sys.exit in a function",
        """
import sys
def main():
    print('ok')
    sys.exit()
main()
""",
        ["passed"],
    ),
    Case(
        "closed stdin",
        """
import sys
sys.stdin.close()
print('ok')
""",
        ["passed"],
    ),
    Case(
        "closed stdout",
        """
import sys
print('ok')
sys.stdout.close()
""",
        ["passed"],
    ),
    Case(
        "numpy",
        """
import numpy as np
print(int(np.array(input().split(), dtype=np.int64).sum()))
""",
        ["passed"],
        [("1 2 3", "6")],
    ),
    Case(
        "numpy linear algebra",
        """
import numpy as np
print(round(np.linalg.det(np.eye(200))), (np.ones((200, 200)) @ np.ones((200, 200)))[0, 0])
""",
        ["passed"],
        [("", "1 200.0")],
    ),
    Case(
        "reading all of stdin",
        """
import sys
print(sum(map(int, sys.stdin.buffer.read().split())))
""",
        ["passed"],
        [("1\n2\n3", "6")],
    ),
    Case("open(0)", "print(sum(map(int, open(0).read().split())))", ["passed"], [("1\n2\n3", "6")]),
    Case(
        "input to the end",
        """
n = 0
try:
    while True:
        n += int(input())
except EOFError:
    print(n)
""",
        ["passed"],
        [("1\n2", "3")],
    ),
    Case(
        "fileinput",
        """
import fileinput
print(sum(int(line) for line in fileinput.input()))
""",
        ["passed"],
        [("1\n2\n", "3")],
    ),
    Case("carriage returns in the input", "print(repr(input()))", ["passed"], [("a\r\nb\r\n", r"'a\r'")]),
    Case(
        "carriage returns in the output",
        "import sys\nsys.stdout.write('a\\r\\nb\\r\\n')",
        ["wrong_answer"],
        [("", "a\nb")],
    ),
    Case("output that is not UTF-8", "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe')", ["wrong_answer"]),
    Case("unicode through and through", "print(input()[::-1])", ["passed"], [("äöü€", "€üöä")]),
    Case("lone surrogates in the input", "print(len(input()))", ["passed"], [("a\ud800b", "5")]),
    Case(
        "unflushed file on stdout",
        """
out = open(1, 'w')
out.write('ok')
""",
        ["passed"],
    ),
    Case(
        "unflushed write method",
        """
import os
write = os.fdopen(1, 'w').write
write('ok')
""",
        ["passed"],
    ),
    Case(
        "output in an exit handler",
        """
import atexit, io, sys
buffer = io.StringIO()
sys.stdout = buffer
atexit.register(lambda: sys.__stdout__.write(buffer.getvalue()))
print("ok")
""",
        ["passed"],
    ),
    Case(
        "stdout replaced by a buffering object",
        """
import io, os, sys
class Fast(io.IOBase):
    def __init__(self):
        self.parts = []
    def write(self, text):
        self.parts.append(text)
    def flush(self):
        os.write(1, "".join(self.parts).encode())
        self.parts.clear()
sys.stdout = Fast()
print("ok")
""",
        ["passed"],
    ),
    Case(
        "main in a thread with a big stack",
        """
import sys, threading
sys.setrecursionlimit(1 << 20)
threading.stack_size(1 << 27)
def depth(n):
    return 0 if n == 0 else depth(n - 1) + 1
def main():
    print(depth(100000))
threading.Thread(target=main).start()
""",
        ["passed"],
        [("", "100000")],
    ),
    Case(
        "recursion to 20000",
        """
import sys
sys.setrecursionlimit(10 ** 6)
def f(n):
    return 0 if n == 0 else f(n - 1) + 1
print(f(20000))
""",
        ["passed"],
        [("", "20000")],
    ),
    Case(
        "raising the stack limit",
        """
import resource
resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, resource.RLIM_INFINITY))
print('ok')
""",
        ["passed"],
    ),
    Case(
        "a pool of threads",
        """
from concurrent.futures import ThreadPoolExecutor
print(sum(ThreadPoolExecutor(8).map(int, input().split())))
""",
        ["passed"],
        [("1 2 3", "6")],
    ),
    Case(
        "asyncio",
        """
import asyncio
async def main():
    await asyncio.sleep(0.01)
    print('ok')
asyncio.run(main())
""",
        ["passed"],
    ),
    Case(
        "dataclasses, typing, pickle and enum",
        """
import enum, pickle
from dataclasses import dataclass
from typing import List
@dataclass
class Point:
    xs: List[int]
class Colour(enum.Enum):
    RED = 1
print(pickle.loads(pickle.dumps(Point([1]))).xs[0], Colour.RED.value)
""",
        ["passed"],
        [("", "1 1")],
    ),
    Case(
        "decimal, fractions, datetime, statistics, zoneinfo-free",
        """
import datetime, decimal, fractions, statistics
print(decimal.Decimal('1.10') + 1, fractions.Fraction(1, 3))
print(datetime.date(2024, 2, 29), statistics.median([1, 2, 3]))
""",
        ["passed"],
        [("", "2.10 1/3\n2024-02-29 2")],
    ),
    Case(
        "modules with the harness's names are not there",
        """
import importlib
for name in ("program", "tracebacks", "kernel", "zygote", "seccomp", "landlock", "namespaces", "packets"):
    try:
        importlib.import_module(name)
        print(name)
    except ImportError:
        pass
print("ok")
""",
        ["passed"],
    ),
    Case("an empty program", "", ["wrong_answer", "passed"], [("", "ok"), ("", "")]),
    Case("null bytes in the source", "print('ok')\0", ["compile_error"]),
    Case("lone surrogates in the source", "print('\ud800')", ["compile_error|runtime_error"]),
    Case(
        "syntax error",
        """
def f(:
    pass
""",
        ["compile_error"],
    ),
    Case("warnings are not errors", "print('ok' if 1 is 1 else '')\nx = '\\d'", ["passed"]),
    Case("wrong answer", "print('no')", ["wrong_answer"]),
]

CALLS = [
    Case(
        "a function",
        """
def add(a, b):
    return a + b
""",
        ["passed", "wrong_answer"],
        [("1\n2", "3"), ("1\n2", "4")],
        "add",
    ),
    Case(
        "a method",
        """
class Solution:
    def total(self, xs: List[int]) -> int:
        return sum(xs)
""",
        ["passed"],
        [("[1, 2, 3]", "6")],
        "total",
    ),
    Case(
        "a wrapped expected output is another value",
        """
def two():
    return [1, 2]
""",
        ["wrong_answer", "passed"],
        [("", "[[1, 2]]"), ("", "[1, 2]")],
        "two",
    ),
    Case(
        "tuples are lists",
        """
def pair(x):
    return (x, x)
""",
        ["passed"],
        [('"a"', '["a", "a"]')],
        "pair",
    ),
    Case(
        "what it prints is not its answer",
        """
def f(x):
    print(3)
    return 4
""",
        ["wrong_answer"],
        [("1", "3")],
        "f",
    ),
    Case(
        "names that graders import",
        """
class Solution:
    def f(self, n: Optional[int]) -> int:
        return Counter([n, n])[n] + pow(2, 3, 5) + gcd(4, 6)
""",
        ["passed"],
        [("1", "7")],
        "f",
    ),
    Case(
        "no such function",
        """
def g():
    pass
""",
        ["runtime_error"],
        [("1", "1")],
        "f",
    ),
    Case(
        "wrong number of arguments",
        """
def f(a):
    return a
""",
        ["runtime_error"],
        [("1\n2", "1")],
        "f",
    ),
    Case(
        "an answer that is not JSON",
        """
def f(a):
    return object()
""",
        ["runtime_error"],
        [("1", "1")],
        "f",
    ),
    Case(
        "a nested answer",
        """
def f(a):
    return {'k': [a, None, 1.5]}
""",
        ["passed"],
        [("true", '{"k": [true, null, 1.5]}')],
        "f",
    ),
    Case(
        "a call that spins",
        """
def f(a):
    while True:
        pass
""",
        ["time_limit"],
        [("1", "1")],
        "f",
    ),
    Case(
        "code under the main guard",
        """
def f(a):
    return __name__ == "__main__" or a
if __name__ == "__main__":
    print(1 / 0)
""",
        ["passed"],
        [("3", "3")],
        "f",
    ),
    Case(
        "a pickled class of its own",
        """
from dataclasses import dataclass
import pickle
@dataclass
class P:
    x: "int"
def f(a):
    return pickle.loads(pickle.dumps(P(a))).x
""",
        ["passed"],
        [("3", "3")],
        "f",
    ),
    Case(
        "true is not 1",
        """
def f(a):
    return a == 3
""",
        ["wrong_answer", "passed"],
        [("3", "1"), ("3", "true")],
        "f",
    ),
]

CHECKS = [
    Case(name, f"import sys\nsys.stdout.write({output!r})", [verdict], [("", expected)], None, checker)
    for name, output, expected, exact, lcb in (
        ("space at the end of a line", "1 \n2", "1\n2", False, True),
        ("CRLF", "1\r\n2\r\n", "1\n2", False, True),
        ("two spaces", "1  2", "1 2", False, True),
        ("trailing zero", "1.0", "1", False, True),
        ("extra blank line", "1\n\n2", "1\n2", False, False),
        ("case", "Yes", "YES", False, False),
    )
    for checker, passes in (("exact", exact), ("lcb", lcb))
    for verdict in ("passed" if passes else "wrong_answer",)
]

QUICK = [*CROSS_TENANT, *CHANNELS, *FORGING, *HARMLESS, *CALLS]
ALL = [*QUICK, *EXHAUSTION]
