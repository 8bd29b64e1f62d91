"""What the apps share, and their arguments, apart from what needs Ray: so arguments can be checked without it."""

import os
import sys
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cobalt.cli.flags import AboveZero, Positive
from cobalt.errors import InputError
from cobalt.sandbox.checkers import known_checker
from cobalt.sandbox.confinement import resolve_mode
from cobalt.sandbox.limits import LEAST, Limits

HEALTH: dict[str, Any] = {"health_check_period_s": 10, "health_check_timeout_s": 60}
"""Options of a deployment: how often Serve checks a replica, and how long it waits for the answer."""

TOKEN_VARIABLE = "COBALT_HTTP_TOKEN"
"""In an app's environment the token that callers must send, in a client's the one that it sends."""
IN_FLIGHT_HEADER = "x-max-in-flight"
"""In answers of the vLLM app: how many requests keep all its replicas busy."""


def http_token() -> str | None:
    """The token in this process's environment. Raises ``InputError`` for one that no header can hold."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise InputError(f"{TOKEN_VARIABLE} may hold printable ASCII characters only")
    return token or None


class HttpConfig(BaseModel):
    """Arguments that the apps share."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_body_mb: int = Field(64, ge=1)
    """Largest body of a request, MiB."""
    body_timeout_s: float = Field(10.0, gt=0)
    """Seconds within which a body must have come; under ``cobalt sandbox serve`` its headers, too."""


class ExecutorConfig(BaseModel):
    """Arguments of an executor. ``cobalt.sandbox.Limits`` says more of the limits."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    workers: Positive | None = None
    """Sandboxes (per replica); default: one per core of the machine, if so many fit its memory."""
    checker: Annotated[str, AfterValidator(known_checker)] = "exact"
    """How outputs are compared: ``exact``, ``lcb``, ``unordered``, ``float TOLERANCE``, or a function of your own:
    ``FILE.py:NAME``."""
    mode: Annotated[str, AfterValidator(resolve_mode)] = "auto"
    """``auto`` (the first that holds), ``namespaces`` or ``landlock``."""
    cpu_limit_s: AboveZero = Limits.cpu_limit_s
    """CPU seconds per test."""
    suite_cpu_limit_s: AboveZero = Limits.suite_cpu_limit_s
    """CPU seconds of a program over all its tests."""
    wall_factor: AboveZero = Limits.wall_factor
    """Wall seconds per CPU second of these two limits, for programs that sleep."""
    memory_limit_mb: Annotated[Positive, Ge(LEAST["memory_limit_mb"])] = Limits.memory_limit_mb
    """Address space of a test's process, MiB."""
    output_limit_mb: Positive = Limits.output_limit_mb
    """Bytes on stdout, and on stderr, MiB."""
    max_threads: Positive = Limits.max_threads
    """Threads of a test."""
    max_open_files: Annotated[Positive, Ge(LEAST["max_open_files"])] = Limits.max_open_files
    """Open files of a test."""

    def of_executor(self) -> dict[str, Any]:
        """The arguments of ``Executor``."""
        return {name: getattr(self, name) for name in ExecutorConfig.model_fields}


class HttpAppConfig(HttpConfig):
    """Arguments of HTTP in front of programs."""

    max_programs: int = Field(4096, ge=1)
    """Most programs of one request."""
    max_tests: int = Field(16384, ge=1)
    """Most tests of one request, over all its programs. This bounds the answer, too."""


class EvaluatorConfig(ExecutorConfig, HttpAppConfig):
    """Arguments of the app. docs/sandbox.md says more of the limits."""

    replicas: Positive = 1
    """Replicas; each is one executor."""
    num_cpus: float | None = None
    """CPUs that a replica reserves in Ray; default: its workers. 0 shares a small machine with other Ray work."""


def parse_arguments(text: str, arguments: type[BaseModel], where: str) -> dict[str, Any]:
    """The arguments that ``text`` gives as ``NAME=VALUE ...``. Raises ``InputError`` for those that are none."""
    given: dict[str, str] = {}
    for name, _, value in (argument.partition("=") for argument in text.split()):
        if name in given:
            raise InputError(f"{where}: {name} is given twice")
        given[name] = value
    try:
        args = arguments.model_validate(given)
    except ValidationError as error:
        raise InputError.of_setting(error, f"{where}: ", arguments.model_fields) from None
    return args.model_dump(exclude_unset=True)


def show_help(how: str | None, arguments: type[BaseModel]) -> None:
    """What ``python APP.py --help`` prints; anything else is told to use ``serve run``, exit code 2."""
    asked = sys.argv[1:] in (["--help"], ["-h"])
    out = sys.stdout if asked else sys.stderr
    print(f"{(how or '').strip()}\n\n{arguments.__doc__}\n", file=out)
    for name, field in arguments.model_fields.items():
        about = " ".join((field.description or "").split())
        print(f"  {name}={field.default}" + (f"    {about}" if about else ""), file=out)
    sys.exit(0 if asked else 2)
