"""The site of docs/ builds without a warning: links, anchors and navigation hold, tables and formulas are rendered."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"<(code|pre)\b.*?</\1>", re.DOTALL)


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "COBALT_REPOSITORY": "https://example.org/cobalt", "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    done = build(ROOT, site)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return site


def test_the_front_page_is_the_readme_and_leads_to_files_beside_the_pages(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert "Cobalt trains language models" in page
    assert 'href="https://example.org/cobalt/blob/HEAD/CONTRIBUTING.md"' in page
    images = re.findall(r'<img [^>]*src="([^"]+)"', page)
    assert images and all((site / image).is_file() for image in images)


def test_tables_and_formulas_are_rendered_without_a_network(site: Path) -> None:
    pages = {str(page.relative_to(site)): CODE.sub("", page.read_text()) for page in site.rglob("*.html")}
    assert pages["method/index.html"].count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') > 5
    assert [name for name, text in pages.items() if re.search(r'arithmatex|<(script|link)[^>]*="https?:', text)] == []
    assert [name for name, text in pages.items() if "<p>|" in text or re.search(r"\$[^$<\n]+\$", text)] == []


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.svg"))
    for page in (tmp_path / "README.md", *tmp_path.glob("docs/*.md")):
        page.write_text("# Cobalt\n")
    (tmp_path / "docs" / "faq.md").write_text("[gone](gone.md) [gone](faq.md#nowhere)\n")
    done = build(tmp_path, tmp_path / "site")
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert done.returncode == 1 and len(warnings) == 2 and "gone.md" in warnings[0] and "#nowhere" in warnings[1]
