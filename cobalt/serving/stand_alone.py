"""``cobalt sandbox run`` and ``cobalt sandbox serve``: the executor alone, without Ray."""

import asyncio
import json
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field, model_validator

from cobalt.cli.flags import refuse_in_one_line
from cobalt.errors import InputError, SetupError
from cobalt.prompts import with_feedback
from cobalt.sandbox import ExecutionResult, Executor
from cobalt.sandbox.executor import parse_program
from cobalt.serving.app_settings import TOKEN_VARIABLE, ExecutorConfig, HttpAppConfig

EXIT_NOT_SOLVED = 1


class FlagsConfig(ExecutorConfig):
    """Arguments of an executor as flags. A refused value is an ``InputError``."""

    _in_one_line = model_validator(mode="wrap")(refuse_in_one_line)


class SandboxRunConfig(FlagsConfig):
    """Run a program on tests and print its result as JSON. Exits with 1 if it does not pass them all."""

    program: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The program."""
    tests: Path
    """JSON file: {"inputs": [text], "outputs": [text]}, or a function's tests (docs/formats.md)."""
    workers: tyro.conf.Suppress[int] = 1  # pyright: ignore[reportIncompatibleVariableOverride] - one is enough


class SandboxServeConfig(FlagsConfig, HttpAppConfig):
    """Run programs for callers by HTTP, among them clients of SandboxFusion (docs/executor.md)."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but loopback needs the token COBALT_HTTP_TOKEN in the environment."""
    port: int = Field(8080, ge=0, le=65535)
    """0: any free one, which is printed."""


def run_program(config: SandboxRunConfig) -> None:
    try:
        code = config.program.read_text()
    except UnicodeDecodeError as error:
        raise InputError.at(config.program, None, str(error)) from None
    try:
        code, tests = parse_program(code, config.tests.read_text())
    except ValueError as error:
        raise InputError.at(config.tests, None, str(error)) from None

    async def run() -> ExecutionResult:
        async with Executor(**config.of_executor()) as executor:
            return await executor.run(code, tests)

    result = asyncio.run(run())
    if result.infra_error is not None:
        raise SetupError(result.infra_error)
    print(json.dumps(with_feedback(result, tests).to_record(), indent=2))
    sys.exit(0 if result.solved else EXIT_NOT_SOLVED)


def serve(config: SandboxServeConfig) -> None:
    try:
        from cobalt.serving.http_app import http_app
        from cobalt.serving.http_server import MAX_CONNECTIONS, serve_http
    except ImportError as error:
        raise SetupError(f"{error}; install it with: pip install 'cobalt-rl[sandbox]'") from None
    from cobalt.serving.execution import ExecutionService
    from cobalt.serving.http_guard import guard_of, is_loopback

    guard = guard_of(config)
    if guard.token is None and not is_loopback(config.host):
        raise InputError(f"--host {config.host}: set {TOKEN_VARIABLE} to serve other machines")

    family, host = socket.AF_INET, config.host
    if ":" in host:
        family, host = socket.AF_INET6, f"[{host}]"  # as in a URL
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        raise InputError(f"--host {config.host} --port {config.port}: {error.strerror}") from None

    async def run() -> None:
        async with Executor(**config.of_executor()) as executor:
            app = http_app(ExecutionService(executor), config, guard)
            address = f"http://{host}:{listening.getsockname()[1]}"
            say = partial(print, f"{address} runs programs in mode {executor.mode}", flush=True)
            await serve_http(app, listening, config.body_timeout_s, say)

    with listening:
        asyncio.run(run())
