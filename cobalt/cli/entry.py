"""The one place where flags are parsed and errors become exit codes."""

import difflib
import errno
import io
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import MISSING, Field, is_dataclass
from types import FrameType
from typing import Any, TypeVar

import cobalt
from cobalt.errors import EXIT_INTERRUPTED, CobaltError, InputError, SetupError, first_line

Config = TypeVar("Config")

FILE_TROUBLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR),
}
"""What another path would mend: no permission, no such folder."""
NO_ROOM = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC}
EXIT_BAD_FLAGS = 2


def run(config_type: type[Config], main: Callable[[Config], Any], default: Config | None = None) -> None:
    """Parse ``config_type`` from the command line, call ``main`` with it and exit.

    ``main`` may be a coroutine function. ``config_type`` is a dataclass: its docstring is the command's help, a
    docstring under a field the flag's help. ``default`` holds other default values than its fields. ``--version``
    prints the version.

    Exit codes: 0 done, 2 bad input or flags, 3 environment or too many infra failures, 130 Ctrl-C. Each but the first
    comes with one line on stderr.
    """
    if "--version" in sys.argv[1:]:
        print(f"{_program()} (cobalt {cobalt.__version__})")
        return
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # else the hub's client tells of every retry
    with exit_codes():
        done = main(parse(config_type, default))
        if isinstance(done, Coroutine):
            import asyncio

            asyncio.run(done)


@contextmanager
def exit_codes() -> Iterator[None]:
    """What a user can mend ends the program: one line on stderr, and the error's exit code.

    Entry scripts import within it: a package that is not there names the environment.
    """
    try:
        with _interruptible():
            yield
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_ended():  # it was another pipe, as that of a process of ours
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        known = for_the_user(error)
        if known is None:
            raise
        print(f"{_program()}: error: {' '.join(str(known).split())}", file=sys.stderr)
        sys.exit(known.exit_code)
    except KeyboardInterrupt:
        _tell_interrupted()
        sys.exit(EXIT_INTERRUPTED)


def _reader_has_ended() -> bool:
    """Whether nobody reads standard output any more, as after `| head`."""
    looking = select.poll()
    looking.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in looking.poll(0))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C calls ``_interrupt``, unless it is ignored or handled already, or this is another thread."""
    usual = signal.default_int_handler
    if signal.getsignal(signal.SIGINT) is not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    # the name, too: asyncio replaces the default handler alone, by one that cancels its tasks
    signal.default_int_handler = _interrupt
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.default_int_handler = usual
        signal.signal(signal.SIGINT, usual)


def _interrupt(_signal: int, frame: FrameType | None) -> None:
    """Ctrl-C. Within an import the process ends at once: compiled modules make other errors, or a crash, of it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            _tell_interrupted()
            os._exit(EXIT_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _tell_interrupted() -> None:
    print(f"{_program()}: interrupted; run the same command again to continue", file=sys.stderr, flush=True)


def _program() -> str:
    """The command's name; ``python -m cobalt`` leaves a path there until a command is chosen."""
    name = sys.argv[0].rsplit("/", 1)[-1]
    return "cobalt" if name == "__main__.py" else name


def for_the_user(error: BaseException) -> CobaltError | None:
    """What the user can do about ``error``; None for a defect of ours."""
    if isinstance(error, CobaltError):
        return error
    if isinstance(error, ModuleNotFoundError):
        is_ours = (error.name or "").split(".")[0] in ("cobalt", "research")
        return None if is_ours else SetupError(f"{error}; first: source .venv/bin/activate (or install the package)")
    reason, number = str(error), None
    if "CUDA out of memory" in reason:  # torch goes on with each process that uses the GPU; our logs are named behind
        told = re.sub(r"(?<=is free)\. .*?(?= \(log: |$)", "", first_line(error))
        return SetupError(
            f"{told}; end what else uses the GPU, or lower what is needed, then run the same command again"
        )
    if isinstance(error, OSError):
        reason, number = f"{error.filename or 'output'}: {error.strerror}", error.errno
    elif match := re.search(r"\(os error (\d+)\)|: OSError: \[Errno (\d+)\]", reason):  # of safetensors; in a log
        number = int(match[1] or match[2])
    elif re.search(r"inline_container\.cc.*unexpected pos", reason):  # of torch; the disk may have room again by now
        number = errno.ENOSPC
    if number in NO_ROOM:
        return SetupError(f"{reason}; make room, then run the same command again")
    return InputError(reason) if number in FILE_TROUBLE else None


def _is_required(field: Any) -> bool:
    """Of a dataclass, or of a model of pydantic."""
    return field.default is MISSING is field.default_factory if isinstance(field, Field) else field.is_required()


def parse(config_type: type[Config], default: Config | None = None) -> Config:
    """The command line as a ``config_type``. ``InputError`` says in one line what tyro says in a box of many."""
    import tyro

    # --help lists fields in this order; those of a base class would come first, required or not
    fields = getattr(config_type, "__dataclass_fields__" if is_dataclass(config_type) else "__pydantic_fields__", {})
    optional_last = sorted(fields.items(), key=lambda named: not _is_required(named[1]))
    fields.clear()
    fields.update(optional_last)
    defaults: dict[str, Any] = {} if default is None else {"default": default}
    box = io.StringIO()
    try:
        with redirect_stderr(box):
            return tyro.cli(config_type, use_underscores=True, **defaults)
    except SystemExit as stop:
        if stop.code != EXIT_BAD_FLAGS:  # of --help
            raise
    help_text = io.StringIO()
    with redirect_stdout(help_text), suppress(SystemExit):
        tyro.cli(config_type, use_underscores=True, args=["--help"], **defaults)
    known = set(re.findall(r"(?<![\w-])--?[A-Za-z]\w*", help_text.getvalue()))
    for word in sys.argv[1:]:
        flag = word.partition("=")[0].replace("-", "_")
        flag = f"--{flag[2:]}" if flag.startswith("__") else f"-{flag[1:]}"
        if word == "--":
            break
        if re.match("--?[A-Za-z]", word) and flag not in known:
            near = difflib.get_close_matches(flag, known, 1, 0.7)
            raise InputError(f"unknown flag {flag}; {f'did you mean {near[0]}?' if near else '--help lists the flags'}")
    # The box between its first two rules. A missing flag is named without its help.
    text = re.split(".*[─-]{8}.*", box.getvalue())[1].replace("│", "")
    names = r"--\w+(?= [\[A-Z{])(?![^,\n]+, --)|^ +[A-Z]+(?= *$)"  # the last of each flag, and of what has none
    missing = re.findall(names, text, re.MULTILINE) if "Missing from" in text else []
    raise InputError(
        f"missing: {', '.join(map(str.strip, missing))}; --help explains them" if missing else " ".join(text.split())
    )
