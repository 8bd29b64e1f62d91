"""What a person sees of a command: a progress bar while it works, a table at its end."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cobalt.records import count_lines

Item = TypeVar("Item")

TERMINAL_INTERVAL_S = 0.1
LOG_INTERVAL_S = 10.0


def progress_bar(**options: Any) -> Any:
    """A ``tqdm`` bar on stderr (``file``); where that is no terminal a line every ten seconds, not ten every second."""
    from tqdm import tqdm

    interval_s = TERMINAL_INTERVAL_S if options.get("file", sys.stderr).isatty() else LOG_INTERVAL_S
    return tqdm(mininterval=interval_s, maxinterval=interval_s, dynamic_ncols=True, **options)


def with_progress(rows: Iterable[Item], path: str | Path) -> Iterable[Item]:
    """The rows of ``path``, or what they were parsed to, under a progress bar."""
    return progress_bar(iterable=rows, total=count_lines(path), desc=Path(path).name, unit=" rows")


def print_summary(title: str, rows: Mapping[str, Any]) -> None:
    """The table at the end of a command: counts, rates, infra errors."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)
