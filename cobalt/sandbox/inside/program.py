"""One program inside its own process: compile it, then run each test in a fork that is sealed and thrown away.

The channel to the driving worker is a SEQPACKET socket. The worker's packet per test carries the limits and the
descriptors of input, output and error output; the answer is how the test ended. Expected outputs never come here, nor
do other tests' inputs. Tests inherit neither the channel nor any other descriptor.
"""

import _signal  # pyright: ignore[reportMissingImports] - the signal module would bring enum
import _socket
import builtins
import gc
import os
import sys
import time

import kernel
import packets
import plain

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.005, 0.1
_STANDARD = 3  # descriptors: input, output and error output
_MOST_DESCRIPTORS = 64  # more than this process ever has
_FORK_PATIENCE_S = 20.0  # below GRACE_S outside, or the worker would take a program that waits for a lost one
_FORK_PAUSE_S = 0.01
_IN_THEIR_PLACES = packets.DESCRIPTORS.pack(*range(_STANDARD))
_DESCRIPTORS_SPACE = _socket.CMSG_SPACE(packets.DESCRIPTORS.size)
_FIRST_OF_NAMESPACE = 1
_CHILD_ENDED = (_signal.SIGCHLD,)
_CPU_CLOCK_OF_PROCESS = 2
_SOURCE_NAME = plain.SOURCE_NAME
_exit = os._exit  # a program may replace the name in the module
_closerange = os.closerange  # a name of this module is found without touching pages of the other one

IMPORTED_ONCE = frozenset((
    "array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "heapq", "io", "itertools", "json", "math", "numbers", "numpy", "operator", "queue", "random", "re",
    "statistics", "string", "struct", "threading", "time", "types", "typing",
))  # fmt: skip
# What the graders of LiveCodeBench, TACO and APPS import for a program: all names of these modules, later ones first,
# and then the modules themselves. Builtins win over the names of modules.
_CALL_PRELUDE = (
    "typing", "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins",
)  # fmt: skip
# Modules that make each fork dearer: only for programs that name them, or one of their names.
_RARE_PRELUDE = {
    "statistics": (
        "statistics", "NormalDist", "StatisticsError", "correlation", "covariance", "fmean", "geometric_mean",
        "harmonic_mean", "linear_regression", "mean", "median", "median_grouped", "median_high", "median_low", "mode",
        "multimode", "pstdev", "pvariance", "quantiles", "stdev", "variance",
    ),
    "fractions": ("fractions",),
    "numpy": ("np",),
}  # fmt: skip
_CALL_DEPTH = 50_000  # as LiveCodeBench's grader has it
_MARKS = ("<set>", "<Fraction>", "<Decimal>")


def hoist(source):
    """Import the well-known modules that ``source`` imports, once for all of its tests."""
    for line in source.splitlines():
        words = line.replace(",", " ").split()
        if len(words) < 2 or words[0] not in ("import", "from"):
            continue
        for word in words[1:2] if words[0] == "from" else words[1:]:
            package = word.partition(".")[0]  # a module of it may print, or do anything else
            if package in IMPORTED_ONCE:
                try:
                    __import__(package)
                except BaseException:  # the program meets the same error, or exit, itself
                    continue


def call_prelude(code):
    """Names that a function-call program may use without importing them, as its graders allow."""
    modules = {name: __import__(name) for name in _CALL_PRELUDE}
    names = {}
    for module in modules.values():
        public = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
        names.update((key, getattr(module, key)) for key in public)
    names.update(modules, time=__import__("time"))
    used = _names_in(code)
    for module, provided in _RARE_PRELUDE.items():
        if not used.isdisjoint(provided):
            try:
                found = __import__(module)
            except Exception:  # no numpy, or no memory for it
                continue
            names.update((name, getattr(found, name, found)) for name in provided)
    return names


def _names_in(code):
    """Names of variables and attributes in compiled code, and in the functions and classes in it."""
    names, waiting = set(), [code]
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting += [constant for constant in code.co_consts if isinstance(constant, type(code))]
    return names


class Program:
    """A compiled program and what its tests share."""

    def __init__(self, channel, seccomp_filter):
        self.channel = channel
        self.filter = seccomp_filter
        self.code, self.main = None, None
        self.pid = os.getpid()

    def serve(self, source, fn_name, compile_cpu_s):
        """Compile, report ready or the compile error, then run tests until the worker closes the channel.

        An exception or a signal that ends the process before it is ready is the source's doing.
        """
        source = source.removeprefix("\ufeff")  # as of a file
        self.source, self.fn_name = source, fn_name
        self.uses_random, self.ends_late = "random" in source, any(word in source for word in plain.LATE)
        sys.argv = [_SOURCE_NAME]
        if fn_name is not None and hasattr(sys, "set_int_max_str_digits"):  # graders lift it; CPU time is limited
            sys.set_int_max_str_digits(0)
        self.channel.send(packets.STARTED)
        # the C library's exit, with the signal's number: a Python handler would wait until the compiler is done, and
        # the kernel spares the first process of a pid namespace the default action
        kernel.libc.signal(_signal.SIGPROF, kernel.libc._exit)
        _signal.setitimer(_signal.ITIMER_PROF, compile_cpu_s)
        try:
            self.code = compile(source, _SOURCE_NAME, "exec", dont_inherit=True)
        except Exception as error:  # whatever it is, the source is the cause
            self.channel.send(plain.compile_error(error).encode("utf-8", "replace"))
            return
        plain.provide(source)  # before modules are imported, which keep what they find
        hoist(source)
        if fn_name is not None:
            import json  # noqa: F401 - once for all tests, and only here: other programs' forks need not carry it

        plain.hide_frames(2)  # and those of _become_test and _guarded
        if fn_name is not None:
            sys.setrecursionlimit(_CALL_DEPTH)
            # beside the builtins, so that what the program defines is all that its own names can find
            builtins.__dict__.update(call_prelude(self.code))
        _signal.setitimer(_signal.ITIMER_PROF, 0)
        _signal.signal(_signal.SIGPROF, _signal.SIG_DFL)
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGCHLD])
        gc.freeze()  # a collection in a test would otherwise copy the pages of everything that this process holds
        self.channel.send(packets.READY)
        while True:
            _closerange(0, _STANDARD)  # the next ones arrive in their places, which are the lowest that are free
            packet, ancillary, _, _ = self.channel.recvmsg(packets.TEST.size, _DESCRIPTORS_SPACE)
            if not packet:
                return
            cpu_limit_s, wall_limit_s = packets.TEST.unpack(packet)
            if ancillary[0][2] != _IN_THEIR_PLACES:
                raise OSError("a test's descriptors are not in their places")
            name = "__main__" if fn_name is None else plain.FUNCTION_MODULE
            self.main = type(sys)(name)  # before the fork, where pages need no copying
            self.main.__dict__.update(__file__=_SOURCE_NAME, __cached__=None, __builtins__=builtins, __annotations__={})
            sys.modules["__main__"] = sys.modules[name] = self.main
            try:
                pid = _fork()
            except BlockingIOError:
                self.channel.send(packets.NO_TASKS)
                return
            if pid == 0:
                self._become_test()
            started = time.monotonic()
            killed, status, cpu_s, peak_kb = self._watch(pid, cpu_limit_s, started, wall_limit_s)
            wall_s = time.monotonic() - started
            self.channel.send(packets.RESULT.pack(killed, status, cpu_s, wall_s, peak_kb))

    def _watch(self, pid, cpu_limit_s, started, wall_limit_s):
        """Wait for the test, killing it at its CPU limit or its wall limit: ``(why killed, status, CPU s, KiB)``.

        When the wall limit is reached, the worker says by how many seconds it is put off, since it knows how long the
        test has waited for a core; 0: the test is killed.

        One thread uses at most a second of CPU time per second. So it cannot reach its limit before as much wall time
        has passed as it has CPU time left: sleep that long (or until it ends), look at its clock, and so on. Several
        threads can be past the limit by then, by as much as their cores do in ``_LONGEST_WAIT_S``. That costs time but
        no verdict, which goes by the CPU time used in the end: the clock of a process that has ended stands still, and
        can be read until it is waited for.
        """
        clock = (~pid << 3) | _CPU_CLOCK_OF_PROCESS  # how the kernel numbers the CPU clock of another process
        killed, cpu_s, deadline = packets.NOT_KILLED, 0.0, started + wall_limit_s
        while True:
            wall_left = deadline - time.monotonic()
            # the shortest wait keeps this loop from spinning around a test that is slow to use up its last microseconds
            wait = max(min(cpu_limit_s - cpu_s, wall_left, _LONGEST_WAIT_S), _SHORTEST_WAIT_S)
            # SIGCHLD is blocked, so one from before this call ends it too
            ended = _signal.sigtimedwait(_CHILD_ENDED, wait)
            cpu_s = time.clock_gettime(clock)
            if ended is not None:
                done, status, used = os.wait4(pid, os.WNOHANG)
                if done:
                    return killed, status, cpu_s, used.ru_maxrss
            overdue = cpu_s < cpu_limit_s and deadline <= time.monotonic()
            more_s = 0.0
            if overdue and killed == packets.NOT_KILLED:
                self.channel.send(packets.OVERDUE.pack(cpu_s, time.monotonic() - started))
                answer = self.channel.recv(packets.MORE_TIME.size)
                more_s = packets.MORE_TIME.unpack(answer)[0] if answer else 0.0
                deadline += more_s
            if killed == packets.NOT_KILLED and (cpu_s >= cpu_limit_s or (overdue and more_s == 0)):
                killed = packets.KILLED_CPU if cpu_s >= cpu_limit_s else packets.KILLED_WALL
                os.kill(pid, _signal.SIGKILL)

    def _become_test(self):
        """In the fork: drop the channel, seal the process, run the program; never returns."""
        code = 1
        try:
            _closerange(_STANDARD, _MOST_DESCRIPTORS)
            if self.pid != _FIRST_OF_NAMESPACE:  # whose end is the end of all in it
                kernel.die_with_parent(self.pid)
            self.filter.install()
            if self.uses_random:
                plain.new_random_numbers()
            if self.fn_name is None:
                code = _guarded(self.source, exec, self.code, self.main.__dict__)
            else:
                code = _guarded(self.source, _call, self)
            self.main = None
            code = plain.finish(code, lambda function: _guarded("", function), self.ends_late)
        finally:
            _exit(code)


def _fork():
    """``os.fork``, patient while there are too many tasks.

    In mode ``landlock`` all programs may share one user, and the kernel counts tasks by user. So the threads of another
    program can be what is in the way: wait until they are gone with its test, for this program is not at fault.
    """
    give_up = time.monotonic() + _FORK_PATIENCE_S
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise
            time.sleep(_FORK_PAUSE_S)


def _call(program):
    """Call the function or ``Solution`` method with the JSON arguments on stdin; its result goes to stdout as JSON."""
    import json  # loaded by ``serve``, before the fork

    lines = sys.stdin.read().split("\n")
    arguments = [json.loads(line, object_hook=_with_int_keys) for line in lines if line.strip()]
    answer = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the program prints is not the answer
    namespace = program.main.__dict__
    exec(program.code, namespace)
    if "Solution" in namespace and isinstance(namespace["Solution"], type):
        function = getattr(namespace["Solution"](), program.fn_name)
    elif program.fn_name in namespace:
        function = namespace[program.fn_name]
    else:
        raise NameError(f"name {program.fn_name!r} is not defined")
    text = _result_text(function(*arguments)).encode()
    while text:
        text = text[os.write(answer, text) :]


def _with_int_keys(value):
    """A dictionary whose keys are all integers had them before it became JSON, which knows only texts."""
    try:
        numbers = {int(key): item for key, item in value.items()}
    except ValueError:
        return value
    return numbers if list(map(str, numbers)) == list(value) else value


def _result_text(result):
    """A function's result as JSON. What no JSON value equals is marked by its type: ``{"<set>": members}``.

    No dictionary of a program can look marked. So the comparison outside tells a set from a list, and a fraction from
    the float next to it.
    """
    import json

    marked = 0

    def plain_form(value):
        nonlocal marked
        kind = type(value)
        if kind.__module__ == "numpy":
            return value.tolist()
        if isinstance(value, (set, frozenset)):
            marked += 1
            return {"<set>": list(value)}
        if f"<{kind.__name__}>" not in _MARKS:
            raise TypeError(f"Object of type {kind.__name__} is not JSON serializable")
        try:
            near = float(value)
        except OverflowError:
            near = float("inf") if value > 0 else float("-inf")
        if near == value or value != value:
            return near
        if int(value) == value:
            return int(value)
        marked += 1
        return {f"<{kind.__name__}>": near}

    try:
        text = json.dumps(result, default=plain_form)
    except TypeError:  # its keys, perhaps
        marked = 0
        text = json.dumps(_with_plain_keys(result), default=plain_form)
    if sum(text.count(f'"{mark}": ') for mark in _MARKS) != marked:
        raise TypeError(f"a key of the result is one of {', '.join(_MARKS)}")
    return text


def _with_plain_keys(value):
    """``value`` with Python's numbers for numpy's as keys."""
    if isinstance(value, dict):
        pairs = value.items()
        return {k.item() if type(k).__module__ == "numpy" else k: _with_plain_keys(item) for k, item in pairs}
    return [_with_plain_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


def _guarded(source, function, *arguments):
    """Exit code of a call, as the interpreter would set it; the traceback goes to stderr."""
    try:
        function(*arguments)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        plain.write_error(f"{stop.code}\n")
        return 1
    except MemoryError:
        plain.write_error("MemoryError\n")
        return packets.EXIT_MEMORY
    except BaseException as error:
        plain.write_error(plain.traceback_text(error, source))
        return 1
    return 0
