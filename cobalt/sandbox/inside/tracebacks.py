"""Tracebacks of the user's program, in the interpreter's own form, without this harness and without its cost.

Importing ``traceback`` in every failing test would take longer than most tests.
"""

import contextlib
import os
import sys

import plain

SOURCE_NAME = "<solution>"
_MOST_FRAMES = 20
_SHOWN_OF_COMPILE_ERROR = 4096  # of its beginning and of its end: it goes out in one packet


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
    if len(text) <= 2 * _SHOWN_OF_COMPILE_ERROR:
        return text
    return text[:_SHOWN_OF_COMPILE_ERROR] + text[-_SHOWN_OF_COMPILE_ERROR:]


def _last_line(error):
    try:
        text = str(error)
    except Exception:
        text = "<exception str() failed>"
    name = type(error).__qualname__
    module = type(error).__module__
    if module not in ("builtins", "__main__", plain.FUNCTION_MODULE):
        name = f"{module}.{name}"
    return f"{name}: {text}" if text else name


def _short_name(filename):
    """Library files without the place where they are installed: feedback must not depend on the machine."""
    for directory in sys.path:
        if filename.startswith(f"{directory}/"):
            return filename[len(directory) + 1 :]
    return filename


def traceback_text(error, source):
    """The traceback of ``error`` from the program's first own frame on, with the program's lines."""
    frames, entry = [], error.__traceback__
    while entry is not None:
        frames.append((entry.tb_frame.f_code, entry.tb_lineno))
        entry = entry.tb_next
    own = [i for i, (code, _) in enumerate(frames) if code.co_filename == SOURCE_NAME]
    frames = frames[own[0] :] if own else []
    source_lines = source.splitlines()
    lines = ["Traceback (most recent call last):"] if frames else []
    if len(frames) > _MOST_FRAMES:
        lines.append(f"  ... {len(frames) - _MOST_FRAMES} more frames ...")
    for code, number in frames[-_MOST_FRAMES:]:
        lines.append(f'  File "{_short_name(code.co_filename)}", line {number}, in {code.co_name}')
        if code.co_filename == SOURCE_NAME and 0 < number <= len(source_lines):
            lines.append(f"    {source_lines[number - 1].strip()}")
    return "\n".join([*lines, _last_line(error)]) + "\n"


def write_error(text):
    """To the real stderr, whatever the program did to ``sys.stderr``; a full or closed one is ignored."""
    with contextlib.suppress(Exception):  # the program's own object
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "replace"))
