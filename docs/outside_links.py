"""A hook of MkDocs: links from docs/ to files beside it lead to the repository, which the site does not hold."""

import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called for each page. Without ``repo_url`` such a link becomes its text."""
    root = Path(config.docs_dir).parent

    def rewritten(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(Path(page.file.abs_src_path).parent / link[2]))
        if path.is_relative_to(config.docs_dir):
            return link[0]
        return f"[{link[1]}]({config.repo_url}/blob/HEAD/{path.relative_to(root)})" if config.repo_url else link[1]

    return LINK.sub(rewritten, markdown)
