"""What plain Python does around a script, and this harness must do too: programs should see no difference.

Tracebacks have the interpreter's own form, without this harness and without the cost of ``traceback``: importing that
in every failing test would take longer than most tests.
"""

import _io
import _thread
import atexit
import builtins
import contextlib
import gc
import io
import os
import sys

FUNCTION_MODULE = "solution"  # whose function is called: what stands under ``if __name__ == "__main__"`` is not run
SOURCE_NAME = "<solution>"
_MOST_FRAMES = 20
_SHOWN_OF_COMPILE_ERROR = 4096  # of its beginning and of its end: it goes out in one packet
_EXIT_FLUSH_FAILED = 120
_HIGHEST_LIMIT = (1 << 31) - 1
# in the source of programs whose objects may have something to do when they go; and going takes its time
LATE = ("open", "FileIO", "Writer", "writer", "Wrapper", "yield", "async", "__del__", "weakref")
_STANDARD_FILES = {
    f"{path}{name}": descriptor
    for path, names in (("/dev/", ("stdin", "stdout", "stderr")), ("/dev/fd/", "012"), ("/proc/self/fd/", "012"))
    for descriptor, name in enumerate(names)
}


def hide_frames(more):
    """Add the frames from the caller's down, and as many ``more``, to the depth that ``exec``'s code may recurse to."""
    depth, frame = more + _EXEC_DEPTH, sys._getframe(1)
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    shown, put = sys.getrecursionlimit(), sys.setrecursionlimit

    def getrecursionlimit():
        return shown

    def setrecursionlimit(limit):
        nonlocal shown
        put(min(limit + depth, _HIGHEST_LIMIT) if limit <= _HIGHEST_LIMIT else limit)
        shown = limit

    setrecursionlimit(shown)
    sys.getrecursionlimit, sys.setrecursionlimit = getrecursionlimit, setrecursionlimit


def _depth_of_exec():
    """What ``exec`` itself takes of the depth, beside the frame of its code: versions of Python differ in that."""

    def left():
        try:
            return 1 + left()
        except RecursionError:
            return 0

    found = {}
    exec("within = left()", {"left": left}, found)
    return left() - found["within"] - 1


_EXEC_DEPTH = _depth_of_exec()


def provide(source):
    """What plain Python has and this process has not, where ``source`` names it."""
    if "/dev/" in source or "/proc/self/fd" in source:
        _provide_standard_files()
    if "mmap" in source:
        _provide_anonymous_maps()
    if "multiprocessing" in source:  # ThreadPool asks for a lock that processes could share, and that would need a file
        import threading
        from multiprocessing.context import BaseContext

        BaseContext.Lock = lambda self: threading.Lock()  # pyright: ignore[reportAttributeAccessIssue]
    if "warnings" in source:  # the interpreter's own filters; the zygote ignores all
        import warnings

        sys.warnoptions.clear()
        warnings.resetwarnings()
        for category in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")


def _provide_standard_files():
    """Have Python's functions know /dev/stdin and its like, which need a /proc; all share the position of the file."""

    def redirected(plain, of_descriptor):
        def function(file, *arguments, **named):
            try:
                descriptor = _STANDARD_FILES.get(os.fsdecode(file))
            except TypeError:  # it is a descriptor already
                descriptor = None
            if descriptor is None:
                return plain(file, *arguments, **named)
            return of_descriptor(descriptor, *arguments, **named)

        return function

    plain = _io.open
    builtins.open = _io.open = io.open = redirected(plain, lambda fd, *how, **named: plain(os.dup(fd), *how, **named))
    os.open = redirected(os.open, lambda fd, *_, **__: os.dup(fd))
    os.stat = redirected(os.stat, lambda fd, **_: os.fstat(fd))


def _provide_anonymous_maps():
    """Have ``mmap.mmap(-1, length)`` give a private map: shared ones are refused, and the program is alone anyway."""
    import mmap

    class PrivateMap(mmap.mmap):
        def __new__(cls, fileno, length, *arguments, **named):
            if fileno != -1:
                return super().__new__(cls, fileno, length, *arguments, **named)
            given = dict(zip(("flags", "prot", "access", "offset"), arguments, strict=False)) | named
            if given.pop("access", mmap.ACCESS_DEFAULT) == mmap.ACCESS_READ:
                given["prot"] = mmap.PROT_READ
            given["flags"] = given.get("flags", mmap.MAP_PRIVATE) & ~mmap.MAP_SHARED | mmap.MAP_PRIVATE
            return super().__new__(cls, fileno, length, **given)

    PrivateMap.__name__ = PrivateMap.__qualname__ = "mmap"
    PrivateMap.__module__ = "mmap"
    mmap.mmap = PrivateMap


def new_random_numbers():
    """Another state for numpy's generator, which all tests of a program inherit; the standard one sees to itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def finish(code, run, ends_late):
    """What the interpreter does at exit, in its order: the exit code. ``run`` calls a function and reports its errors.

    Threads end, exit handlers run, standard output and error output are flushed. Then the program's objects go, if it
    ``ends_late``, and with them generators, ``__del__`` and files that were never closed.
    """
    if "threading" in sys.modules:
        run(sys.modules["threading"]._shutdown)
    atexit._run_exitfuncs()
    if not _flushed(sys.stdout):
        code = _EXIT_FLUSH_FAILED
    _flushed(sys.stderr)
    if ends_late:
        _forget_program()
    _flushed(sys.__stdout__)
    return code


def _forget_program():
    """Drop the program's module; threads that still run would find their names gone, so with those only flush files."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    if _thread._count() == 0:
        if gc.isenabled():
            gc.collect()  # which also brings files into the order of their use: their layers are then closed from above
        for name in ("__main__", FUNCTION_MODULE):
            sys.modules.pop(name, None)
        gc.collect()
    buffered = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom)
    for file in [thing for thing in gc.get_objects() if issubclass(type(thing), buffered)]:
        _flushed(file)


def _flushed(file):
    """Flush a file, or what the program has put in its place, unless it is closed; whether that went well."""
    try:
        if file is not None and not getattr(file, "closed", False):
            file.flush()
    except Exception:
        return False
    return True


def compile_error(error):
    """What the interpreter says about a program that does not compile, without the middle of a very long text."""
    lines = []
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines.append(f'  File "{SOURCE_NAME}", line {error.lineno}')
        if error.text:
            text = error.text.rstrip("\n")
            indent = len(text) - len(text.lstrip())
            lines.append(f"    {text.lstrip()}")
            if error.offset:
                lines.append(f"    {' ' * max(error.offset - 1 - indent, 0)}^")
        lines.append(f"{type(error).__name__}: {error.msg}")
    else:
        lines.append(_last_line(error))
    text = "\n".join(lines)
    is_short = len(text) <= 2 * _SHOWN_OF_COMPILE_ERROR
    return text if is_short else text[:_SHOWN_OF_COMPILE_ERROR] + text[-_SHOWN_OF_COMPILE_ERROR:]


def _last_line(error):
    try:
        text = str(error)
    except Exception:
        text = "<exception str() failed>"
    name = type(error).__qualname__
    module = type(error).__module__
    if module not in ("builtins", "__main__", FUNCTION_MODULE):
        name = f"{module}.{name}"
    return f"{name}: {text}" if text else name


def traceback_text(error, source):
    """The traceback of ``error`` from the program's first own frame on, with the program's lines."""
    frames, entry = [], error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename != traceback_text.__code__.co_filename:
            frames.append((entry.tb_frame.f_code, entry.tb_lineno))
        entry = entry.tb_next
    own = [i for i, (code, _) in enumerate(frames) if code.co_filename == SOURCE_NAME]
    frames = frames[own[0] :] if own else []
    source_lines = source.splitlines()
    lines = ["Traceback (most recent call last):"] if frames else []
    if len(frames) > _MOST_FRAMES:
        lines.append(f"  ... {len(frames) - _MOST_FRAMES} more frames ...")
    for code, number in frames[-_MOST_FRAMES:]:
        # library files without the place where they are installed: feedback must not depend on the machine
        folder = next((folder for folder in sys.path if code.co_filename.startswith(f"{folder}/")), None)
        name = code.co_filename if folder is None else code.co_filename[len(folder) + 1 :]
        lines.append(f'  File "{name}", line {number}, in {code.co_name}')
        if code.co_filename == SOURCE_NAME and 0 < number <= len(source_lines):
            lines.append(f"    {source_lines[number - 1].strip()}")
    return "\n".join([*lines, _last_line(error)]) + "\n"


def write_error(text):
    """To the real stderr, whatever the program did to ``sys.stderr``; a full or closed one is ignored."""
    with contextlib.suppress(Exception):  # the program's own object
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "replace"))
