"""The one place where flags are parsed and errors become exit codes."""

import asyncio
import errno
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import cobalt
from cobalt.errors import EXIT_INTERRUPTED, CobaltError, InputError

Config = TypeVar("Config")

FILE_TROUBLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EDQUOT, errno.EFBIG, errno.ENOSPC),
    *(errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR),
}
"""What a user can mend: no permission, no room, no such folder."""


def run(config_type: type[Config], main: Callable[[Config], Any], default: Config | None = None) -> None:
    """Parse ``config_type`` from the command line, call ``main`` with it and exit.

    ``main`` may be a coroutine function. ``config_type`` is a dataclass: its docstring is the command's help, a
    docstring under a field the flag's help. ``default`` holds other default values than its fields. ``--version``
    prints the version.

    Exit codes: 0 done, 2 bad input or flags, 3 environment or too many infra failures, 130 Ctrl-C.
    """
    import tyro

    program = sys.argv[0].rsplit("/", 1)[-1]
    if "--version" in sys.argv[1:]:
        print(f"{program} (cobalt {cobalt.__version__})")
        return
    try:
        defaults: dict[str, Any] = {} if default is None else {"default": default}
        done = main(tyro.cli(config_type, use_underscores=True, **defaults))
        if asyncio.iscoroutine(done):
            asyncio.run(done)
    except (CobaltError, OSError) as error:
        if isinstance(error, OSError):
            if error.errno not in FILE_TROUBLE:
                raise
            error = InputError.at(error.filename or "output", None, error.strerror or str(error))
        print(f"{program}: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(f"{program}: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
