"""Running the entry scripts in this process, and judging programs by their names."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from cobalt.sandbox import ExecutionResult, TestCases, Verdict

ROOT = Path(__file__).resolve().parents[2]


def run_command(script: str, *args: object) -> int:
    """Run ``preproc/<script>.py`` with these arguments; its exit code."""
    return _run(ROOT / "preproc" / f"{script}.py", args)


def run_cobalt(*args: object) -> int:
    """Run ``cobalt`` with these arguments; its exit code."""
    return _run(ROOT / "cobalt" / "__main__.py", args)


def _run(file: Path, args: tuple[object, ...]) -> int:
    argv, sys.argv = sys.argv, [file.name, *map(str, args)]
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    finally:
        sys.argv = argv
    return 0


def one_complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The single error line of the last command."""
    lines = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    assert len(lines) == 1
    return lines[0]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


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

    async def run(self, code: str | None, tests: TestCases) -> ExecutionResult:
        assert code is not None
        self.runs.append(code)
        return RESULTS[code.split("#")[0]](len(tests))
