"""What a person sees of a command: a progress bar while it works, a table at its end."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cobalt.records import count_lines
from cobalt.tables import show

Item = TypeVar("Item")

TERMINAL_INTERVAL_S = 0.5
LOG_INTERVAL_S = 10.0
DELAY_S = 0.5
MUCH = 0.1
"""Share of a run from which on its summary says that it waited for programs."""


def progress_bar(look: Callable[[], None] = lambda: None, **options: Any) -> Any:
    """A ``tqdm`` bar on stderr (``file``). Where that is no terminal: a line every ten seconds, not ten every second.

    It appears after half a second. A command that is refused at once shows its error alone. ``look``: as of ``Bar``.
    With an ``iterable``, the bar moves when an item comes.
    """
    from tqdm import tqdm

    from cobalt.cli.bars import Bar

    interval_s = TERMINAL_INTERVAL_S if options.get("file", sys.stderr).isatty() else LOG_INTERVAL_S
    options = {"delay": DELAY_S, "dynamic_ncols": True, **options}
    if "iterable" in options:
        return tqdm(mininterval=interval_s, maxinterval=interval_s, **options)
    return Bar(interval_s, look, **options)


def with_progress(rows: Iterable[Item], path: str | Path) -> Iterable[Item]:
    """The rows of ``path``, or what they were parsed to, under a progress bar."""
    return progress_bar(iterable=rows, total=count_lines(path), desc=Path(path).name, unit=" rows")


def print_next(command: str) -> None:
    """What a person may run after this command. A script that runs it itself sets COBALT_SCRIPT."""
    if not os.environ.get("COBALT_SCRIPT"):
        print(f"next: {command}")


def print_summary(title: str, rows: Mapping[str, Any], this_run: Mapping[str, Any] | None = None) -> None:
    """The end of a command: counts, rates, infra errors. ``this_run``: what a resumed run counts without earlier ones.

    A row without a value (None) is left out. These are plain lines, so a path is never folded.
    """
    shown = {name: value for name, value in {**rows, **(this_run or {})}.items() if value is not None}
    width = max(map(len, shown), default=0)
    print(title)
    for name, value in shown.items():
        if this_run and name == next(iter(this_run)):
            print("this run alone:")
        print(f"  {name:{width}}  {f'{value:,}' if isinstance(value, int) else show(value)}")
