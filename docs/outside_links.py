"""Hooks of MkDocs: the front page begins with the project's README; links to files beside docs/ lead to the repository."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?!https?:|#)[^)\s]+)\)")
FRONT_PAGE = "README.md"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Adds the images that the README shows from other folders."""
    root = Path(config.docs_dir).parent
    for image, _text, target in LINK.findall((root / FRONT_PAGE).read_text(encoding="utf-8")):
        if image and not target.startswith("docs/"):
            files.append(File.generated(config, target, abs_src_path=str(root / target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called for each page. Without ``repo_url`` a link to a file beside docs/ becomes its text."""
    root = Path(config.docs_dir).parent
    if page.file.src_uri == FRONT_PAGE:
        readme = _rewritten((root / FRONT_PAGE).read_text(encoding="utf-8"), root, config)
        return readme + "\n" + _rewritten(markdown, root / "docs", config).replace("# ", "## ", 1)
    return _rewritten(markdown, Path(page.file.abs_src_path).parent, config)


def _rewritten(markdown: str, folder: Path, config: Any) -> str:
    root = Path(config.docs_dir).parent

    def rewritten(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        target, _, anchor = target.partition("#")
        path = Path(os.path.normpath(folder / target))
        if path.is_relative_to(config.docs_dir):
            inside = path.relative_to(config.docs_dir)
            return f"{image}[{text}]({inside}{'#' + anchor if anchor else ''})" if folder == root else link[0]
        if image:
            return f"![{text}]({path.relative_to(root)})" if folder == root else link[0]
        where = f"{config.repo_url}/blob/HEAD/{path.relative_to(root)}"
        return f"[{text}]({where})" if config.repo_url else text

    return LINK.sub(rewritten, markdown)
