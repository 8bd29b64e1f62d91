"""One table in four forms: JSON (raw), CSV (raw, intervals in columns), Markdown and HTML cells (rounded text)."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

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


@dataclass(frozen=True)
class Table:
    """``rows`` have one cell per column. ``key`` names its files; ``note`` says how to read it."""

    key: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]

    def is_text(self, column: int) -> bool:
        """Whether a column holds texts, and no numbers beside them; ``page.html`` of the reports asks."""
        kinds = {type(row[column]) for row in self.rows} - {type(None)}
        return kinds == {str}

    def to_json(self) -> dict[str, Any]:
        """Raw numbers; an estimate is ``{"value", "low", "high"}``."""
        cells = [[asdict(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in self.rows]
        rows = [dict(zip(self.columns, row, strict=True)) for row in cells]
        return {"title": self.title, "note": self.note, "columns": list(self.columns), "rows": rows}

    @classmethod
    def from_json(cls, key: str, found: Mapping[str, Any]) -> "Table":
        """The table that ``to_json`` was called on."""
        columns = tuple(found["columns"])
        rows: list[list[Cell]] = [
            [Estimate(**cell) if isinstance(cell, dict) else cell for cell in map(row.__getitem__, columns)]
            for row in found["rows"]
        ]
        return cls(key, found["title"], found["note"], columns, rows)

    def column(self, name: str) -> list[Cell]:
        """The cells of one column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def estimates(self, name: str) -> list[Estimate | None]:
        """Those of one column. A number is an estimate without an interval, a text is none."""
        cells = [
            Estimate(float(cell), None, None) if isinstance(cell, int | float) else cell for cell in self.column(name)
        ]
        return [cell if isinstance(cell, Estimate) else None for cell in cells]

    def to_csv(self) -> str:
        """Raw numbers; a column that holds estimates is followed by ``... low`` and ``... high``."""
        wide = [any(isinstance(row[index], Estimate) for row in self.rows) for index in range(len(self.columns))]
        header: list[str] = []
        for name, is_wide in zip(self.columns, wide, strict=True):
            header += [name, f"{name} low", f"{name} high"] if is_wide else [name]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        for row in self.rows:
            values: list[Cell] = []
            for cell, is_wide in zip(row, wide, strict=True):
                values += astuple(cell) if isinstance(cell, Estimate) else [cell, None, None] if is_wide else [cell]
            writer.writerow(values)
        return text.getvalue()

    def to_markdown(self) -> str:
        """The table alone."""
        return markdown_table(self.columns, ([show(cell) for cell in row] for row in self.rows))

    def to_markdown_section(self, level: int = 2) -> str:
        """The table under its title, a heading of this level, and its note."""
        return f"{'#' * level} {self.title}\n\n{self.note}\n\n{self.to_markdown()}"


def in_percent(estimate: Estimate | None) -> Estimate | None:
    """A share, or a difference of shares, in per cent or points; None: nothing was measured."""
    if estimate is None:
        return None
    low, high = (None if bound is None else PERCENT * bound for bound in (estimate.low, estimate.high))
    return Estimate(PERCENT * estimate.value, low, high)


def percent(share: Mapping[str, float | None] | None) -> str:
    """A share as ``asdict`` of an ``Estimate`` holds it, in per cent; "-" if nothing was measured."""
    if share is None:
        return "-"
    interval = "" if share["low"] is None else f" [{share['low']:.1%}, {share['high']:.1%}]"
    return f"{share['value']:.1%}{interval}"


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
