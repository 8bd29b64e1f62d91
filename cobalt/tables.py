"""Tables as Markdown, and numbers as a person reads them."""

from collections.abc import Iterable, Sequence

from cobalt.statistics import Estimate

Cell = Estimate | float | int | str | None

PERCENT = 100.0


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub-style table, without a newline at its end. A ``|`` in a cell is escaped.

    >>> print(markdown_table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def in_percent(estimate: Estimate | None) -> Estimate | None:
    """A share, or a difference of shares, in per cent or points; None: nothing was measured."""
    if estimate is None:
        return None
    low, high = (None if bound is None else PERCENT * bound for bound in (estimate.low, estimate.high))
    return Estimate(PERCENT * estimate.value, low, high)


def show(cell: Cell) -> str:
    """A cell as a person reads it: estimates (in per cent) to one decimal, other numbers to three digits or more.

    >>> [show(value) for value in (0.012345, 12.345, 1234.5, 1234567.0)]
    ['0.0123', '12.3', '1,234', '1,234,567']
    """
    if cell is None:
        return "–"
    if isinstance(cell, Estimate):
        if cell.low is None or cell.high is None:
            return _one_decimal(cell.value)
        return f"{_one_decimal(cell.value)} [{_one_decimal(cell.low)}, {_one_decimal(cell.high)}]"
    if isinstance(cell, float):
        if abs(cell) >= 1000:
            return f"{cell:,.0f}"
        return f"{cell:.1f}" if abs(cell) >= 100 else f"{cell:#.3g}"
    return str(cell)


def _one_decimal(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # the sum turns -0.0 into 0.0
