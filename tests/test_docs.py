"""The documentation: its examples run, its links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "verl").glob("*.md")])
FAQ = ROOT / "docs" / "faq.md"
FROM_OTHERS = ("Missing credentials",)
"""Quotes of the FAQ that other packages say."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_the_examples_of_the_method_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = doctest.testfile(str(ROOT / "docs" / "method.md"), module_relative=False)
    assert outcome.failed == 0 and outcome.attempted > 0


def _anchors(page: Path) -> set[str]:
    """Of headings, as GitHub makes them."""
    titles = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert not anchor or anchor in _anchors(path), link


def test_the_readme_is_short_and_so_is_what_it_says_to_read_first() -> None:
    text = (ROOT / "README.md").read_text()
    paragraph = text.partition("**To read first**")[2].partition("\n\n")[0]
    files = re.findall(r"`([^`]+\.py)`", paragraph)
    assert len(text.splitlines()) <= 120 and len(files) >= 8
    assert sum(len((ROOT / "cobalt" / file).read_text().splitlines()) for file in files) < 1000


def test_the_faq_quotes_what_commands_say() -> None:
    quotes = [quote for heading in HEADING.findall(FAQ.read_text()) for quote in re.findall(r"`([^`]+)`", heading)]
    code = "".join(path.read_text() for path in (ROOT / "cobalt").rglob("*.py"))
    joined = re.sub(r'"\s*f?"', "", code)  # texts that go on in the next line
    assert len(quotes) >= 10
    assert [quote for quote in quotes if quote not in joined and quote not in FROM_OTHERS] == []
