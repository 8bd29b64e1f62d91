"""Running the entry scripts in this process, and programs in sandboxes or by their names."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from in_process import exit_code
from scripted import read_rows as read_rows

from cobalt.records import write_jsonl
from cobalt.records.manifest import manifest_path, read_manifest
from cobalt.sandbox import ExecutionResult, Executor, TestCases, Verdict

ROOT = Path(__file__).resolve().parents[2]


def run_command(script: str, *args: object) -> int:
    """Run ``preproc/<script>.py`` with these arguments; its exit code."""
    return exit_code(ROOT / "preproc" / f"{script}.py", f"{script}.py", *args)


def run_cobalt(*args: object) -> int:
    """Run ``cobalt`` with these arguments; its exit code."""
    return exit_code(ROOT / "cobalt" / "__main__.py", "__main__.py", *args)


def one_complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The single error line of the last command."""
    lines = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    assert len(lines) == 1
    return lines[0]


def manifest_of(output: Path) -> dict[str, Any]:
    return read_manifest(manifest_path(output))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as JSONL."""
    write_jsonl(path, rows)
    return path


RESULTS = {
    "right": lambda n: ExecutionResult((Verdict.PASSED,) * n, ("",) * n, ("",) * n),
    "wrong": lambda n: ExecutionResult.uniform(n, Verdict.WRONG_ANSWER),
    "slow": lambda n: ExecutionResult.uniform(n, Verdict.TIME_LIMIT),
    "infra": lambda n: ExecutionResult.infra(n, "worker lost"),
}


class FakeService:
    """Judges a program by its name."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.execution: dict[str, Any] = {"checker": "exact"}
        self.name_of: Callable[[str, TestCases], str] = lambda code, tests: code.split("#")[0]

    async def describe(self) -> dict[str, Any]:
        return self.execution

    async def run(self, code: str | None, tests: TestCases) -> ExecutionResult:
        assert code is not None
        self.runs.append(code)
        return RESULTS[self.name_of(code, tests)](len(tests))


class SharedExecutor:
    """An executor on an event loop of its own, in a thread, for commands that have a loop each."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._executor = Executor(workers=2)
        self.submit("start").result()

    def submit(self, method: str, *arguments: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(getattr(self._executor, method)(*arguments), self._loop)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return lambda *arguments: asyncio.wrap_future(self.submit(method, *arguments))

    def judge(self, *programs: tuple[str, Any]) -> list[ExecutionResult]:
        """The results of programs on tests."""
        return self.submit("run_many", programs).result()

    def close(self) -> None:
        self.submit("close").result()
        self._loop.call_soon_threadsafe(self._loop.stop)
