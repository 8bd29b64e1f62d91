"""HTTP in front of the programs' service: the same for the Ray Serve app and for ``cobalt sandbox serve``.

A GET tells the mode, what decides verdicts, and the queue. POST ``{"code", "test_cases"}`` (object or JSON string)
gives a result's record, ``{"programs": [...]}`` gives ``{"results": [...]}``. ``POST /run_code`` is SandboxFusion's
protocol (``run_code.py``). A bad payload gets 422 with what is wrong. ``http_guard.py`` says who may ask.
"""

import asyncio
import ctypes
import json
from collections.abc import Coroutine, Mapping
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from cobalt.errors import InfraError, SetupError, first_line
from cobalt.prompts import with_feedback
from cobalt.sandbox import TestCases
from cobalt.sandbox.executor import parse_program
from cobalt.serving.app_settings import HttpAppConfig
from cobalt.serving.execution import ExecutionService
from cobalt.serving.http_guard import TOO_LARGE, UNAVAILABLE, UNPROCESSABLE, HttpGuard, Refusal, json_response
from cobalt.serving.run_code import MergedRuns, RunCodeRequest

RUN_CODE = "/run_code"
PATHS = {"GET": ("",), "POST": (RUN_CODE, "/run_tests", "")}
"""Behind Serve's prefix."""
NOT_FOUND = 404
GATEWAY_TIMEOUT = 504
"""SandboxFusion's clients send a request again for this status. For any other failure they count a failed test."""
CALLER_GONE = 499

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BLOCK, _SOON_S = 128 << 10, 0.5


def keep_no_large_blocks() -> None:
    """Have the C library return large blocks, such as bodies, to the system when they are freed.

    It does so at first. But each large block that is freed raises its bound (mallopt(3)), up to 32 MiB. Blocks below
    the bound come from heaps of the threads, which keep up to 64 MiB that ``malloc_trim`` passes over. A bound that is
    set stays.
    """
    c_library = ctypes.CDLL(None)
    for bound in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        c_library.mallopt(bound, _LARGE_BLOCK)


def return_small_blocks() -> None:
    """Return the pages between small blocks that are in use."""
    ctypes.CDLL(None).malloc_trim(0)


def http_app(service: ExecutionService, args: HttpAppConfig, guard: HttpGuard) -> Router:
    """The ASGI app. It finds the path itself, since Serve puts a prefix before it."""
    keep_no_large_blocks()
    return Router(default=_HttpApp(service, args, guard))


class _HttpApp:
    def __init__(self, service: ExecutionService, args: HttpAppConfig, guard: HttpGuard):
        self._service, self._args, self._guard = service, args, guard
        self._merged = MergedRuns(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await WebSocketClose()(scope, receive, send)
        try:
            response = await self._answer(Request(scope, receive))
        except Refusal as refusal:
            response = refusal.response
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        self._guard.admit(request)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")).rstrip("/")
        if path not in PATHS[request.method]:
            known = " or ".join(f"{method} {path or '/'}" for method, paths in PATHS.items() for path in paths)
            raise Refusal(NOT_FOUND, f"no {request.method} {path or '/'} here: {known}")
        if request.method == "GET":
            try:
                return json_response(await self._service.state())
            except SetupError as error:
                raise Refusal(UNAVAILABLE, str(error)) from None
        body = await self._guard.body(request)
        answer = self._run_code if path == RUN_CODE else self._run_programs
        try:
            return await _unless_gone(request, answer(body))
        except (ValueError, RecursionError) as error:
            raise Refusal(UNPROCESSABLE, str(error)) from None
        finally:
            if len(body) > _LARGE_BLOCK:  # when the answer has gone, too
                asyncio.get_running_loop().call_later(_SOON_S, return_small_blocks)

    async def _run_programs(self, body: bytes) -> Response:
        programs, many = await asyncio.to_thread(parse_payload, body, self._args)
        results = await self._service.run_many(programs)

        def render() -> Response:
            judged = zip(results, programs, strict=True)
            records = [with_feedback(result, tests).to_record() for result, (_, tests) in judged]
            return json_response({"results": records} if many else records[0])

        return await asyncio.to_thread(render)

    async def _run_code(self, body: bytes) -> Response:
        try:
            asked = await asyncio.to_thread(RunCodeRequest.model_validate_json, body)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        try:
            answer = await self._merged.run(asked)
        except InfraError as error:
            raise Refusal(GATEWAY_TIMEOUT, first_line(error)) from None
        # what a program printed is Unicode, and as ASCII up to three times as long
        return Response(json.dumps(answer, ensure_ascii=False).encode(), media_type="application/json")


def parse_payload(body: bytes, args: HttpAppConfig) -> tuple[list[tuple[str | None, TestCases]], bool]:
    """``(programs, whether a list was asked for)``. Raises ``ValueError`` that says what is wrong, or ``Refusal``."""
    payload = json.loads(body)
    if not isinstance(payload, Mapping):
        raise ValueError("the body must be an object")
    given = payload.get("programs", [payload])
    if not isinstance(given, list):
        raise ValueError("'programs' must be a list")
    if len(given) > args.max_programs:
        raise Refusal(TOO_LARGE, f"there are {len(given)} programs, at most {args.max_programs} at once (max_programs)")
    programs, num_tests = [], 0
    for program in given:
        if not isinstance(program, Mapping) or not {"code", "test_cases"} <= program.keys():
            raise ValueError("a program is an object with 'code' and 'test_cases'")
        try:
            programs.append(parse_program(program["code"], program["test_cases"]))
        except TypeError:
            raise ValueError("'code' must be a text, or null for no program") from None
        num_tests += len(programs[-1][1])
        if num_tests > args.max_tests:
            raise Refusal(TOO_LARGE, f"the programs have more than {args.max_tests} tests in all (max_tests)")
    return programs, "programs" in payload


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The result of ``work``, which is stopped if the caller goes away before."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(CALLER_GONE, "the caller has gone")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        del working  # it holds an error, which holds this frame and the body: that would wait for a garbage collection
