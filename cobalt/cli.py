"""What every command shares: parsing flags, turning errors into exit codes, the summary table."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cobalt.errors import CobaltError, SetupError

Config = TypeVar("Config")

EXIT_INTERRUPTED = 130
TERMINAL_INTERVAL_S = 0.1
LOG_INTERVAL_S = 10.0


def run(config_type: type[Config], main: Callable[[Config], None]) -> None:
    """Parse ``config_type`` from the command line, call ``main`` with it and exit.

    ``config_type`` is a dataclass: its docstring is the command's help, a docstring under a field the flag's help.
    Exit codes: 0 done, 2 bad input or flags, 3 environment or too many infra failures, 130 Ctrl-C.
    """
    import tyro

    try:
        config = tyro.cli(config_type, use_underscores=True)
        main(config)
    except CobaltError as error:
        print(f"{_program()}: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(f"{_program()}: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _program() -> str:
    return sys.argv[0].rsplit("/", 1)[-1]


def progress_bar(**options: Any) -> Any:
    """A ``tqdm`` bar on stderr; in a log file (no terminal) a line every ten seconds instead of ten every second."""
    from tqdm import tqdm

    interval_s = TERMINAL_INTERVAL_S if sys.stderr.isatty() else LOG_INTERVAL_S
    return tqdm(mininterval=interval_s, maxinterval=interval_s, dynamic_ncols=True, **options)


def refuse_infra_rate(failed: int, total: int, units: str, limit: float) -> None:
    """Raise ``SetupError`` if more than the share ``limit`` (--max_infra_rate) of all ``units`` failed."""
    if failed > limit * total:
        raise SetupError(
            f"{failed} of {total} {units} met an infrastructure failure (--max_infra_rate {limit:g}); "
            "run the same command again to retry them"
        )


def print_summary(title: str, rows: Mapping[str, Any]) -> None:
    """The table at the end of a command: counts, rates, infra errors."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)
