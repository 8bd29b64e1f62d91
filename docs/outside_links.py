"""Hooks of MkDocs: the front page begins with the README; what lies beside docs/ is linked in the repository."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?!https?:|#)[^)\s#]+)(#[^)\s]*)?\)")
FRONT_PAGE = "README.md"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Adds the images that pages show from folders beside docs/."""
    docs = Path(config.docs_dir)
    for page in (docs.parent / FRONT_PAGE, *docs.glob("*.md")):
        for image, _text, target, _anchor in LINK.findall(page.read_text(encoding="utf-8")):
            path = Path(os.path.normpath(page.parent / target))
            if image and path.is_file() and not path.is_relative_to(docs):
                files.append(File.generated(config, str(path.relative_to(docs.parent)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called for each page, all of which lie in docs/ itself."""
    docs = Path(config.docs_dir)
    inside = _rewritten(markdown, docs, config)
    if page.file.src_uri != FRONT_PAGE:
        return inside
    readme = (docs.parent / FRONT_PAGE).read_text(encoding="utf-8")
    return f"{_rewritten(readme, docs.parent, config)}\n#{inside}"


def _rewritten(markdown: str, folder: Path, config: Any) -> str:
    """With links as from docs/. Without ``repo_url`` a link to a file beside it becomes its text."""
    docs = Path(config.docs_dir)

    def rewritten(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups(default="")
        path = Path(os.path.normpath(folder / target))
        beside = not path.is_relative_to(docs)
        place = path.relative_to(docs.parent if beside else docs)
        if beside and not image:
            return f"[{text}]({config.repo_url}/blob/HEAD/{place}{anchor})" if config.repo_url else text
        return f"{image}[{text}]({place}{anchor})"

    return LINK.sub(rewritten, markdown)
