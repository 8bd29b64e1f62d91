"""Pages of results: every figure is one of the reports beside the page."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
OLD = "*Measured with the first MiniCoder"
PAGES = sorted(file.parent.with_suffix(".md") for file in RESULTS.glob("*/report.json"))
PAGES = [page for page in PAGES if OLD not in page.read_text()]
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
FIGURE = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.]*\d)|(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w.])")
"""Decimals and counts with separators; names of versions have other forms."""


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif isinstance(value, str):  # several in one cell
        yield from (float(figure.replace(",", "")) for figure in FIGURE.findall(value))
    elif isinstance(value, int | float):
        yield abs(float(value))


def reported(page: Path) -> list[float]:
    """Of all JSON files in the page's folder and below."""
    return [number for file in page.with_suffix("").rglob("*.json") for number in numbers(json.loads(file.read_text()))]


def is_among(shown: str, values: list[float]) -> bool:
    """Whether one of them, rounded as it is shown, is this figure."""
    digits = len(shown.partition(".")[2])
    return any(abs(float(shown.replace(",", "")) - value) <= 0.5 * 10**-digits * (1 + 1e-6) for value in values)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_figure_is_one_of_a_report(page: Path) -> None:
    text, _, _ = page.read_text().partition("\n## Conditions")
    shown, values = FIGURE.findall(CODE.sub("", text)), reported(page)
    assert shown and [figure for figure in shown if not is_among(figure, values)] == []


def test_other_figures_are_found(tmp_path: Path) -> None:
    assert FIGURE.findall("12.3 % of 1,234 (0.05), vLLM 0.8.5, 7") == ["12.3", "1,234", "0.05"]
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "report.json").write_text('{"rows": [{"a": 12.34, "b": [-1234]}]}')
    values = reported(tmp_path / "page.md")
    assert [is_among(figure, values) for figure in ("12.3", "1,234", "12.4", "1,235")] == [True, True, False, False]
