"""Running commands in this process."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest


def exit_code(command: Callable[[], object] | Path, name: str, *arguments: object) -> int:
    """Run a function or a script under this name and with these arguments; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [name, *map(str, arguments)])
        try:
            runpy.run_path(str(command), run_name="__main__") if isinstance(command, Path) else command()
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
