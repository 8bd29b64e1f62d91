"""What reports are made of, and the one way to write them: Markdown, JSON, CSV and figures; also as one HTML page."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from cobalt.figures import Picture
from cobalt.statistics import Estimate
from cobalt.tables import Cell, Table, show

TEMPLATE = Path(__file__).with_name("page.html")


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

    Beside them: a CSV file for each table, a PNG and an SVG file for each figure, named by their keys.
    """
    parts = [*([f"# {title}"] if title else []), *([opening] if opening else [])]
    for section in sections:
        parts += [f"## {section.title}"] if section.title else []
        parts += [f"![{picture.alt}]({picture.key}.png)" for picture in section.pictures]
        parts += [table.to_markdown_section(level=3 if section.title else 2) for table in section.tables]
        for table in section.tables:
            page.with_name(f"{table.key}.csv").write_text(table.to_csv(), encoding="utf-8")
        for picture in section.pictures:
            picture.write(page.parent)
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    in_json = json.dumps(content, indent=2, ensure_ascii=False)
    page.with_suffix(".json").write_text(in_json + "\n", encoding="utf-8")


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
