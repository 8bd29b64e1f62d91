"""Pages of results: each cell of a table shows its one value, estimates in the text are those of the reports.

``pytest -c research/pyproject.toml research/tests/test_results.py -s -k unchecked`` lists cells that nothing checks.
"""

import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from result_tables import Cell, cells_of, in_text, is_an_estimate, shows
from safetensors import safe_open

from cobalt.evaluation.files import read_evaluations
from research.reports.runs import run_scores

RESULTS = Path(__file__).resolve().parents[2] / "research" / "results"
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
FIGURE = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.]*\d)|(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w.])")
"""Decimals and counts with separators; names of versions have other forms."""

SIZE = "2.6 million parameters"
FOLDER = re.compile(r"\]\((\w[\w.-]*)/")
README = RESULTS.parents[1] / "README.md"
ALL_PAGES = sorted(RESULTS.glob("*.md"))
ELSEWHERE = ("7.2 of 100 opportunities [5.9, 8.7]", "0.1 [0.0, 0.3]", "71 % [63, 78]")
"""Estimates in texts that are in no JSON file of research/results: of ``python -m research minicode probe``."""


def figures(value: object) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from figures(part)
    elif isinstance(value, str):  # several in one cell
        yield from (float(figure.replace(",", "")) for figure in FIGURE.findall(value))
    elif isinstance(value, int | float):
        yield abs(float(value))


def folders(text: str) -> set[Path]:
    """Those beside the page that a text of it links to: they hold what it shows."""
    return {RESULTS / name for name in FOLDER.findall(text)}


def parts(page: str) -> Iterator[tuple[str, str]]:
    """The page, or its sections if they have conditions of their own; of each also what comes before the conditions."""
    for part in [page] if "\n## Conditions" in page else re.split(r"^(?=## )", page, flags=re.MULTILINE):
        yield part, re.split(r"^(?:## |\*\*)Conditions", part, maxsplit=1, flags=re.MULTILINE)[0]


def reported(folders: Iterable[Path]) -> list[float]:
    """Of all JSON files in the folders and below."""
    files = [file for folder in folders for file in folder.rglob("*.json")]
    return [number for file in files for number in figures(json.loads(file.read_text()))]


def is_among(shown: str, values: list[float]) -> bool:
    """Whether one of them, rounded as it is shown, is this figure."""
    digits = len(shown.partition(".")[2])
    return any(abs(float(shown.replace(",", "")) - value) <= 0.5 * 10**-digits * (1 + 1e-6) for value in values)


PAGES = [page for page in ALL_PAGES if any((f / "report.json").exists() for f in folders(page.read_text()))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_figure_is_one_of_a_report(page: Path) -> None:
    text = page.read_text()
    for cell in (cell for cell in cells(page) if cell.expression):  # compared with its own value below
        text = text[: cell.start] + " " * len(cell.text) + text[cell.start + len(cell.text) :]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for part, before in parts(text):
        if not any((folder / "report.json").exists() for folder in folders(part)):
            continue
        shown, values = FIGURE.findall(CODE.sub("", before).replace(SIZE, "")), reported(folders(part))
        assert shown and [figure for figure in shown if not is_among(figure, values)] == []


def test_sections_with_conditions_of_their_own_are_parts() -> None:
    sections = "# A\n## B\n1.5\n**Conditions.** 2.5\n## C\n3.5\n"
    assert [before for _, before in parts(sections)] == ["# A\n", "## B\n1.5\n", "## C\n3.5\n"]
    page = "# A\n## B\n1.5\n## Conditions\n2.5\n"
    assert list(parts(page)) == [(page, "# A\n## B\n1.5\n")]


def test_the_captions_know_the_size_of_the_model() -> None:
    with safe_open(README.parent / "assets/minicoder/model.safetensors", "numpy") as weights:
        parameters = sum(math.prod(weights.get_slice(name).get_shape()) for name in list(weights.keys()))
    assert f"{parameters / 1e6:.1f} million parameters" == SIZE


def test_other_figures_are_found(tmp_path: Path) -> None:
    assert FIGURE.findall("12.3 % of 1,234 (0.05), vLLM 0.8.5, 7") == ["12.3", "1,234", "0.05"]
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "report.json").write_text('{"rows": [{"a": 12.34, "b": [-1234]}]}')
    assert folders("[All tables](page/report.json), [method](../method.md)") == {RESULTS / "page"}
    values = reported([tmp_path / "page"])
    assert [is_among(figure, values) for figure in ("12.3", "1,234", "12.4", "1,235")] == [True, True, False, False]


def cells(page: Path, text: str | None = None) -> list[Cell]:
    """README's other tables show no results."""
    return list(cells_of(text or page.read_text(), of_all=page != README))


def wrong(page: Path, text: str | None = None) -> list[tuple[str, str]]:
    """Cells that do not show their value, and where that stands."""
    return [(cell.text, cell.expression) for cell in cells(page, text) if cell.expression and not shows(cell)]


@pytest.mark.parametrize("page", [*ALL_PAGES, README], ids=lambda page: page.stem)
def test_every_cell_shows_the_value_that_its_table_names_and_no_other_digit(page: Path) -> None:
    assert wrong(page) == [] and cells(page)
    checked = [cell for cell in cells(page) if cell.expression]
    missed = [text for cell in checked for text in corrupted(cell.text) if shows(replace(cell, text=text))]
    assert missed == [], "a corrupted digit is noticed"


def corrupted(text: str) -> Iterator[str]:
    """With one digit changed, each in turn."""
    for match in re.finditer(r"\d", text):
        digit = str((int(match[0]) + 1) % 10)
        yield text[: match.start()] + digit + text[match.end() :]


def test_a_table_without_a_source_is_refused() -> None:
    with pytest.raises(ValueError, match="no '<!-- data"):
        list(cells_of("# A page\n\n| turn | a |\n|---|---|\n| 0 | 39.5 |\n"))


def test_cells_that_are_unchecked_have_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    unchecked = [(page.name, cell) for page in ALL_PAGES for cell in cells(page) if cell.expression is None]
    for name, cell in unchecked:
        print(f"unchecked, {name}: {cell.text.strip()!r}: {cell.reason}")
    assert all(cell.reason for _, cell in unchecked)


COUNTS = [path for path in sorted(RESULTS.glob("*/counts/*.json*")) if (path.parents[1] / "report.json").exists()]


@pytest.mark.parametrize("path", COUNTS, ids=lambda path: path.name)
def test_counts_give_the_scores_and_intervals_of_their_page(path: Path, tmp_path: Path) -> None:
    report = json.loads((path.parents[1] / "report.json").read_text())
    if path.suffix == ".gz":
        packed, path = path, tmp_path / path.stem
        path.write_bytes(gzip.decompress(packed.read_bytes()))
    head = json.loads(path.read_text())
    table = report["tables"][f"pass1_{head['set']}"]
    (row,) = [row for row in table["rows"] if row["run"] == head["arm"]]
    found = run_scores(read_evaluations(path), head["set"]).pass1_T
    assert [estimate and asdict(estimate) for estimate in found] == [row[f"turn {turn}"] for turn in range(len(found))]


@pytest.mark.parametrize("name", ["base", "trained"])
def test_the_quickstarts_counts_give_its_scores_and_intervals(name: str) -> None:
    table = json.loads((RESULTS / "loop-cpu/result.json").read_text())[0]
    found = run_scores(read_evaluations(RESULTS / f"loop-cpu/counts/{name}.counts.json"), "clean").pass1_T
    expected = [pytest.approx(row[name], rel=1e-12) for row in table["rows"]]
    assert [estimate and asdict(estimate) for estimate in found] == expected


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_an_estimate_in_the_text_is_one_of_a_report(page: Path) -> None:
    found = [estimate for estimate in in_text(page.read_text()) if estimate not in ELSEWHERE]
    assert [estimate for estimate in found if not is_an_estimate(estimate)] == []
    changed = [text for estimate in found for text in corrupted(estimate)]
    others = [text for text in changed if is_an_estimate(text)]  # of another table, by chance
    assert len(others) <= 0.05 * len(changed), others


def test_estimates_behind_a_table_are_found() -> None:
    assert in_text("1.5 [1.0, 2.0]\n\n| a |\n|---|\n| 3.5 [3.0, 4.0] |\n\n5.5 [5.0, 6.0]\n") == [
        "1.5 [1.0, 2.0]",
        "5.5 [5.0, 6.0]",
    ]
