"""SandboxFusion's ``POST /run_code``: a program, its standard input and its files go in, what it printed comes out.

Clients send one request per test. Requests of equal programs that come within ``MERGE_S`` become one program with many
inputs: it is compiled once, and its process is made once.
"""

import asyncio
import base64
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from cobalt.sandbox import TestCases, Verdict
from cobalt.sandbox.results import Output
from cobalt.serving.execution import ExecutionService, start_for

MERGE_S = 0.005
MAX_FILES, MAX_DEPTH = 1000, 15
MAX_NAME_BYTES = 255
"""The limit of Linux. With ``MAX_DEPTH`` such names a path has fewer than the 4096 bytes that Linux allows."""
SHOWN = 100


class RunCodeRequest(BaseModel):
    """A request. Fields of the protocol that are not named here have no meaning for Python programs and are ignored."""

    code: str
    language: Literal["python"]
    stdin: str | None = None
    run_timeout: float = Field(10, gt=0, allow_inf_nan=False)
    """CPU seconds; the limit of the executor holds, too."""
    memory_limit_MB: int = -1
    files: dict[str, str | None] = Field({}, max_length=MAX_FILES)
    """Base64 by relative path."""
    fetch_files: list[str] = Field([], max_length=0)
    """Must be empty, as programs write no files."""

    @field_validator("files")
    @classmethod
    def _are_files_of_the_folder(cls, files: dict[str, str | None]) -> dict[str, str | None]:
        by_path: dict[str, str | None] = {}
        for name, text in files.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.name or name.endswith("/") or "\0" in name:
                raise ValueError(f"{name[:SHOWN]!r} is no path of a file in the working folder")
            if max(len(part.encode()) for part in path.parts) > MAX_NAME_BYTES or len(path.parts) > MAX_DEPTH:
                limits = f"names have at most {MAX_NAME_BYTES} bytes, and paths {MAX_DEPTH} names"
                raise ValueError(f"{name[:SHOWN]!r} is too long: {limits}")
            if str(path) in by_path:
                raise ValueError(f"{name[:SHOWN]!r} is there twice")
            base64.b64decode(text or "", validate=True)
            by_path[str(path)] = text
        if any(str(parent) in by_path for name in by_path for parent in PurePosixPath(name).parents):
            raise ValueError("a file has the name of another one's folder")
        return by_path

    @property
    def program(self) -> tuple[Any, ...]:
        """What equal programs have in common."""
        return self.code, self.run_timeout, self.memory_limit_MB, tuple(sorted(self.files.items()))


Asked = tuple[RunCodeRequest, "asyncio.Future[Output]"]


class MergedRuns:
    """Runs requests on a service, equal programs together."""

    def __init__(self, service: ExecutionService):
        self._service = service
        self._gathering: dict[tuple[Any, ...], list[Asked]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, request: RunCodeRequest) -> dict[str, Any]:
        """The response. Raises ``InfraError`` if the program could not be run."""
        loop = asyncio.get_running_loop()
        output = loop.create_future()
        if request.program in self._gathering:
            self._gathering[request.program].append((request, output))
        else:
            self._gathering[request.program] = [(request, output)]
            loop.call_later(MERGE_S, lambda: self._start(self._gathering.pop(request.program)))
        return _response(await output)

    def _start(self, asked: list[Asked]) -> None:
        asked = [one for one in asked if not one[1].done()]
        if asked:
            start_for([output for _, output in asked], self._run(asked), self._running)

    async def _run(self, asked: list[Asked]) -> None:
        """Set each output. Inputs that one turn leaves over get turns of their own: no caller waits for another's."""
        request = asked[0][0]
        files = {name: base64.b64decode(text or "") for name, text in request.files.items()}
        memory_limit = request.memory_limit_MB if request.memory_limit_MB > 0 else None
        inputs = tuple(one.stdin or "" for one, _ in asked)
        tests = TestCases(inputs, ("",) * len(asked), time_limit=request.run_timeout, memory_limit=memory_limit)
        outputs = await self._service.run_inputs(request.code, tests, files)
        for (_, waiting), output in zip(asked, outputs, strict=False):
            if not waiting.done():
                waiting.set_result(output)
        for one in asked[len(outputs) :]:
            self._start([one])


def _response(output: Output) -> dict[str, Any]:
    late = output.verdict is Verdict.TIME_LIMIT
    passed = output.verdict is Verdict.PASSED
    run_result = {
        "status": "TimeLimitExceeded" if late else "Finished",
        "execution_time": output.wall_s,
        "return_code": None if late else output.exit_code or int(not passed),
        "stdout": output.stdout,
        "stderr": output.stderr,
    }
    status = "Success" if passed else "Failed"
    nothing = {"compile_result": None, "executor_pod_name": None, "files": {}}
    return {"status": status, "message": "", "run_result": run_result, **nothing}
