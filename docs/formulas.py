"""A hook of MkDocs: formulas become MathML, which browsers draw themselves, without a script or a network."""

import html as entities
import re
from typing import Any

from latex2mathml.converter import convert

# as pymdownx.arithmatex leaves them
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
TAG = re.compile(r"\\tag\{(\w+)\}")


def on_page_content(html: str, **_: Any) -> str:
    """Called for each page."""
    return FORMULA.sub(lambda formula: mathml(entities.unescape(formula[2]), formula[1] == "div"), html)


def mathml(latex: str, is_block: bool) -> str:
    """The element of a formula."""
    element = convert(TAG.sub(r"\\qquad (\1)", latex), display="block" if is_block else "inline")
    return element.replace('columnalign="left"', 'style="text-align: left"')  # which browsers do not read
