"""The parts of a model's response: where its thinking ends, and its program (docs/method.md, the released rule)."""

import re

THINK_END = "</think>"
_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def extract_code(response: str) -> str | None:
    r"""The last fenced block of ``response``, stripped; None if there is no block.

    A block opens with three backticks, optional word characters and a newline, and closes at the next three
    backticks anywhere. Blocks are found from left to right without overlap, thinking included.

    >>> extract_code("<think>x</think>\n```python\nprint(1)\n```")
    'print(1)'
    >>> extract_code("```python\n```")
    ''
    >>> extract_code("no program") is None
    True
    """
    blocks = _BLOCK.findall(response)
    return blocks[-1].strip() if blocks else None
