"""Tables of results pages, each cell beside the one value of a JSON file that it shows.

A comment right before a table says which, and moves with it:

    <!-- data: paper-in-miniature/report.json > tables > pass1_clean > {row} > {column}
    columns: turn 0 | turn 8
    rows: base | | Cobalt
    cell 2 1: another value, of row 2 and column 1 behind the labels
    unchecked: a reason -->

The first line is the value of a cell. ``{row}`` and ``{column}`` are the cell's labels on the page, or what ``rows``
and ``columns`` give in their place (nothing: the label; ``-``: not checked, and ``unchecked`` says why); ``{1}`` and
``{2}`` are a row's parts about `` ~ ``. ``in: PREFIX`` stands before each path that names no file.

A path begins with a file in research/results. It goes, from `` > `` to `` > ``, to a key, to the rows of a table that
hold a text, to ``#N`` in a list, or to ``first N``, ``last N``, ``mean``, ``median``, ``max``, ``min`` of one. Paths
may be joined by `` ÷ ``, `` ⊖ `` and `` ⊕ ``, from left; ``x100`` behind them makes per cent, ``interval`` leaves an
estimate's value out, ``value`` its interval. `` ; `` stands between the values of one cell. A table without such values
has ``<!-- no data: a reason -->``.
"""

import json
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "research" / "results"
COMMENT = re.compile(r"<!-- (no )?data: ((?:(?!-->).)*?)\s*-->\s*\Z", re.DOTALL)
TABLE = re.compile(r"(?:^[ ]*\|[^\n]*\n)+", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.,])(?:(?<![\d\]–])[+−-])?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?")
NOT_TEXT = re.compile(r"`[^`]*`|(?<=\])\([^)]*\)")
"""Code and addresses: no figures."""
OPERATORS = {" ÷ ": operator.truediv, " ⊖ ": operator.sub, " ⊕ ": operator.add}
ESTIMATE = re.compile(
    r"(?P<value>[−+]?\d[\d,.]*)(?: ?%| (?:cases )?(?:per|of) 100[ a-z]*)?(?: [^\[\]|\n\d.;:()]{0,60}?)?\s"
    r"\[(?P<low>[−+]?[\d,.]+), (?P<high>[−+]?[\d,.]+)\](?!\()"
)
"""In the text: a value, perhaps with what it is of, and its interval."""
REDUCED = {"mean": fmean, "median": median, "max": max, "min": min}


@dataclass(frozen=True)
class Cell:
    """A cell with numbers, behind the first column."""

    start: int
    """Of its text in the page."""
    text: str
    expression: str | None
    """Where its values stand; None: it is not checked."""
    reason: str | None
    """Why not."""


def cells_of(page: str, of_all: bool = True) -> Iterator[Cell]:
    """In order. ``ValueError`` for a table that says nothing about its data, unless they need not be ``of_all``."""
    for table in TABLE.finditer(page):
        comment = COMMENT.search(page[: table.start()])
        header, _, *rows = _rows(table)
        if comment is None and not of_all:
            continue
        if comment is None:
            raise ValueError(f"no '<!-- data: ... -->' before the table '{table[0][:60]}...'")
        if comment[1]:
            yield from (Cell(*place, None, comment[2]) for row in rows for place in row[1:] if numbers(place[1]))
            continue
        template, *fields = comment[2].split("\n")
        options = dict(field.strip().split(": ", 1) for field in fields)
        columns = _keys(options, "columns", [text for _, text in header[1:]])
        keys = _keys(options, "rows", [row[0][1] for row in rows])
        for key, (line, row) in zip(keys, enumerate(rows, 1), strict=True):
            for column, (place, (start, text)) in zip(columns, enumerate(row[1:], 1), strict=True):
                if not numbers(text):
                    continue
                expression = options.get(f"cell {line} {place}", template)
                labels = {"row": key, "column": column, **dict(zip("12", key.split(" ~ "), strict=False))}
                for name in ("column", *labels):
                    expression = expression.replace(f"{{{name}}}", labels[name])
                if "-" in (key, column):
                    yield Cell(start, text, None, options["unchecked"])
                else:
                    yield Cell(start, text, _with_prefix(expression, options.get("in")), None)


def numbers(text: str) -> list[str]:
    """As they are shown."""
    blanked = NOT_TEXT.sub(lambda match: " " * len(match[0]), text)
    return [match[0] for match in NUMBER.finditer(blanked)]


def _is_rounded(shown: str, value: float) -> bool:
    plain = Decimal(shown.replace(",", "").replace("−", "-").replace("+", ""))
    if "e" in shown:
        digits = len(shown.partition("e")[0].partition(".")[2])
        return plain == Decimal(f"{value:.{digits}e}")
    return plain == Decimal(f"{value:.{len(shown.partition('.')[2])}f}")


def shows(cell: Cell) -> bool:
    """Whether the numbers of a checked cell are its values, each rounded to the digits shown."""
    assert cell.expression
    shown = numbers(cell.text)
    forms = [values for values in values_of(cell.expression) if len(values) == len(shown)]
    return any(all(map(_is_rounded, shown, values)) for values in forms)


@cache
def values_of(expression: str) -> list[list[float]]:
    """The numbers that a cell may show: of an estimate with its interval, or alone."""
    forms: list[list[float]] = [[]]
    for part in expression.split(" ; "):
        forms = [form + more for form in forms for more in _forms(part.strip())]
    return forms


def _forms(part: str) -> list[list[float]]:
    words = part.split(" ")
    options = set()
    while words[-1] in ("x100", "interval", "value"):
        options.add(words.pop())
    value = _calculated(" ".join(words))
    scale = 100.0 if "x100" in options else 1
    if isinstance(value, dict):
        bounds = [scale * value[name] for name in ("low", "high") if value[name] is not None]
        own = [scale * value["value"]]
        return [bounds] if "interval" in options else [own] if "value" in options else [own, own + bounds]
    if isinstance(value, str):
        return [[float(shown.replace(",", "")) for shown in numbers(value)]]
    return [[scale * number for number in (value if isinstance(value, list) else [value])]]


def _calculated(text: str) -> Any:
    def number(value: Any) -> float:
        return value["value"] if isinstance(value, dict) else value

    parts = re.split(r"( ÷ | ⊖ | ⊕ )", text)
    value = _looked_up(parts[0])
    for sign, path in zip(parts[1::2], parts[2::2], strict=True):
        value = OPERATORS[sign](number(value), number(_looked_up(path)))
    return value


@cache
def _file(name: str) -> Any:
    text = (RESULTS / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


@cache
def _looked_up(path: str) -> Any:
    name, *steps = path.strip().split(" > ")
    value = _file(name)
    for step in steps:
        value = _step(value, step)
    return value


def _step(value: Any, step: str) -> Any:
    if isinstance(value, dict) and "rows" in value and step not in value:
        value = value["rows"]
    if isinstance(value, dict):
        return value[step]
    if step in REDUCED:
        return REDUCED[step](value)
    if step.startswith("#"):
        return value[int(step[1:])]
    if found := re.fullmatch(r"(first|last) (\d+)", step):
        return value[: int(found[2])] if found[1] == "first" else value[-int(found[2]) :]
    for key in value[0]:
        if kept := [row for row in value if str(row.get(key)) == step]:
            return kept[0] if len(kept) == 1 else kept
    return [row[step] for row in value]


def in_text(page: str) -> list[str]:
    """Values with their intervals outside of tables, comments, code and addresses."""
    hidden = re.compile(f"{TABLE.pattern}|<!--.*?-->|```.*?```|`[^`]*`|\\]\\([^)]*\\)", re.MULTILINE | re.DOTALL)
    return [match[0] for match in ESTIMATE.finditer(hidden.sub(" | ", page))]


def is_an_estimate(text: str) -> bool:
    """Whether an estimate of a file in research/results is this text: as it is, in per cent, or the other way."""
    found = ESTIMATE.fullmatch(text)
    shown = [found[name].rstrip(".,") for name in ("value", "low", "high")] if found else []
    return bool(shown) and any(all(map(_is_rounded, shown, estimate)) for estimate in _estimates())


@cache
def _estimates() -> list[tuple[float, float, float]]:
    found = {of_file for path in RESULTS.rglob("*.json") for of_file in _estimates_of(json.loads(path.read_text()))}
    signed = {(sign * v, *sorted((sign * low, sign * high))) for v, low, high in found for sign in (1, -1)}
    return [(scale * v, scale * low, scale * high) for v, low, high in signed for scale in (1, 100)]


def _estimates_of(value: Any) -> Iterator[tuple[float, float, float]]:
    if isinstance(value, dict) and value.get("low") is not None and value.get("high") is not None:
        yield value["value"], value["low"], value["high"]
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _estimates_of(part)


def _rows(table: re.Match[str]) -> Iterator[list[tuple[int, str]]]:
    """The cells of each line, with their places in the page."""
    for line in re.finditer(".+", table[0]):
        start = table.start() + line.start()
        yield [(start + cell.start(), cell[0]) for cell in re.finditer(r"(?<=\|)[^|]*(?=\|)", line[0])]


def _keys(options: dict[str, str], name: str, labels: Sequence[str]) -> list[str]:
    plain = [label.strip().strip("*`").strip() for label in labels]
    if name not in options:
        return plain
    given = [key.strip() for key in options[name].split("|")]
    if len(given) != len(plain):
        raise ValueError(f"{len(given)} {name} given, the table has {len(plain)}: {plain}")
    return [key or label for key, label in zip(given, plain, strict=True)]


def _with_prefix(expression: str, prefix: str | None) -> str:
    if prefix is None:
        return expression
    parts = re.split(r"( ; | ÷ | ⊖ | ⊕ )", expression)
    return "".join(part if index % 2 or ".json" in part else f"{prefix} > {part}" for index, part in enumerate(parts))
