"""What reports are made of, and the one way to write them: Markdown, JSON and figures; also as one HTML page.

A table has three forms: JSON (raw), Markdown and HTML cells (rounded text).
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from cobalt.figures import Picture
from cobalt.records.jsonl import write_whole
from cobalt.statistics import Estimate
from cobalt.tables import Cell, markdown_table, show

TEMPLATE = Path(__file__).with_name("page.html")


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
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def estimates(self, name: str) -> list[Estimate | None]:
        """Those of one column. A number is an estimate without an interval, a text is none."""
        cells = [
            Estimate(float(cell), None, None) if isinstance(cell, int | float) else cell for cell in self.column(name)
        ]
        return [cell if isinstance(cell, Estimate) else None for cell in cells]

    def to_markdown_section(self, level: int = 2) -> str:
        """The table under its title, a heading of this level, and its note."""
        table = markdown_table(self.columns, ([show(cell) for cell in row] for row in self.rows))
        return f"{'#' * level} {self.title}\n\n{self.note}\n\n{table}"


@dataclass(frozen=True)
class Section:
    """Part of a report. Figures come first, then tables."""

    title: str
    """May be empty if the report has this section only."""
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()


def table_of(key: str, title: str, note: str, rows: Sequence[Mapping[str, Cell]]) -> Table:
    """A table of ``rows`` {column: cell}, with the columns of the longest row."""
    columns = tuple(max(rows, key=len, default={}))
    return Table(key, title, note, columns, [[row.get(name) for name in columns] for row in rows])


def mean(values: Sequence[float]) -> float:
    """Plain mean of a non-empty sequence."""
    return sum(values) / len(values)


def write_report(page: Path, sections: Sequence[Section], content: Any, title: str = "", opening: str = "") -> None:
    """Write ``page``, a Markdown file, and ``content`` as JSON under the same name.

    Beside them: a PNG and an SVG file for each figure, named by their keys.
    """
    parts = [*([f"# {title}"] if title else []), *([opening] if opening else [])]
    for section in sections:
        parts += [f"## {section.title}"] if section.title else []
        parts += [f"![{picture.alt}]({picture.key}.png)" for picture in section.pictures]
        parts += [table.to_markdown_section(level=3 if section.title else 2) for table in section.tables]
        for picture in section.pictures:
            picture.write(page.parent)
    write_whole(page, "\n\n".join(parts) + "\n")
    write_whole(page.with_suffix(".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def render_html(title: str, opening: str, sections: Sequence[Section], files: Mapping[str, Sequence[str]]) -> str:
    """One page without references to other files. Every text from outside is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["base64"] = lambda png: base64.b64encode(png).decode()
    environment.filters["cell"] = _html_cell
    environment.filters["code"] = _html_code
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(title=title, opening=opening, sections=sections, files=files)


def _html_code(text: str) -> Markup:
    """A text in which `backticks` mark code, as in Markdown."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _html_cell(cell: Cell) -> Markup:
    """A cell as ``show`` gives it, with an interval on a line of its own."""
    if not isinstance(cell, Estimate):
        return escape(show(cell))
    value, bracket, interval = show(cell).partition(" [")
    return Markup('{}<span class="interval">{}</span>').format(value, bracket.strip() + interval)
