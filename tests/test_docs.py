"""The documentation: its examples run, its links lead somewhere."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("*.md", "docs/*.md", "verl/*.md", "research/[!.]*/**/*.md")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))
FAQ = ROOT / "docs" / "faq.md"
FROM_OTHERS = ("Missing credentials", "Memory usage increased after sleeping", "'str' object is not callable")
"""Quotes of the FAQ that other packages say."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"(?<![\w/.}*$-])(?:[\w-]+/)+[\w-]+\.(?:py|md)\b")
MODULE = re.compile(r"(?<![\w/.-])((?:cobalt|research)\.(?!online\b)[a-z_]+)\.\w")
"""With what it holds, so that ``cobalt.budget``, a setting, is none; nor is ``cobalt.online.turns``."""
ELSEWHERE = {
    "cobalt/inference/replay.py",  # CONTRIBUTING.md made it, and dropped it again
    "ops/triton/cross_entropy.py",  # flash-attn's
    "verl/remote_reward_server.py",  # the original release's
}
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_the_examples_of_the_method_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = doctest.testfile(str(ROOT / "docs" / "method.md"), module_relative=False)
    assert outcome.failed == 0 and outcome.attempted > 0


SOURCES = [path for path in sorted((ROOT / "cobalt").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_docstrings_run(path: Path) -> None:
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert doctest.testmod(module).failed == 0


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


def test_files_and_modules_that_are_named_exist() -> None:
    """In pages, docstrings and messages. The changelog may name what is gone."""
    rooms = ("cobalt", "research", "benchmarks", "preproc", "examples", "constraints", "docs", "verl")
    sources = [*ROOT.glob("*.py"), *(file for room in rooms for file in (ROOT / room).rglob("*.py"))]
    readmes = [*(ROOT / "examples").glob("*.md"), *(ROOT / "assets").rglob("*.md")]
    gone = set()
    for file in [*PAGES, *readmes, *sources]:
        text = file.read_text(encoding="utf-8") if file.name != "CHANGELOG.md" else ""
        bases = (ROOT, ROOT / "cobalt", file.parent)
        names = set(FILE.findall(text)) - ELSEWHERE
        gone |= {(file, name) for name in names if not any((base / name).is_file() for base in bases)}
        for name in MODULE.findall(text):
            path = ROOT / name.replace(".", "/")
            if not path.is_dir() and not path.with_suffix(".py").is_file():
                gone.add((file, name))
    assert gone == set()


def test_the_faq_quotes_what_commands_say() -> None:
    quotes = [quote for heading in HEADING.findall(FAQ.read_text()) for quote in re.findall(r"`([^`]+)`", heading)]
    code = "".join(path.read_text() for path in (ROOT / "cobalt").rglob("*.py"))
    joined = re.sub(r'"\s*f?"', "", code)  # texts that go on in the next line
    assert len(quotes) >= 10
    assert [quote for quote in quotes if quote not in joined and quote not in FROM_OTHERS] == []
