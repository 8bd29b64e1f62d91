"""The parts of a model's response: where its thinking ends, and its program (docs/method.md, "Extraction")."""

import re
from collections.abc import Sequence
from typing import Literal

from cobalt.fences import Block, blocks_of

Rule = Literal["markdown", "released"]
"""How a program is found: as Markdown has it, or as the paper's release does."""
DEFAULT_RULE: Rule = "markdown"
THINK_START, THINK_END = "<think>", "</think>"

_RELEASED_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_QUOTED_END = re.compile(rf"""(?<!`)`{THINK_END}`(?!`)|'{THINK_END}'|"{THINK_END}\"""")
_END_IN_SENTENCE = re.compile(rf"(?<=\w ){THINK_END}(?= \w)")
_READS_STDIN = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0")
_DEFINES = re.compile(r"^(?:async def|def|class)\s", re.MULTILINE)


def extract_code(response: str, rule: Rule = DEFAULT_RULE) -> str | None:
    r"""The program of ``response``, stripped; None if there is none.

    ``markdown``: ``program_of`` the fenced blocks after the thinking. ``released``: the last block of the response,
    thinking included. It opens with three backticks, word characters or nothing, and a newline, and closes at the next
    three backticks.

    >>> extract_code("<think>x</think>\n```python\nprint(1)\n```\nprints\n```\n1\n```")
    'print(1)'
    >>> extract_code("<think>x</think>\n```python\nprint(1)\n```\nprints\n```\n1\n```", "released")
    '1'
    >>> extract_code("no program") is None
    True
    """
    if rule == "released":
        codes = _RELEASED_BLOCK.findall(response)
        return codes[-1].strip() if codes else None
    program = program_of(blocks_of(answer_of(response)))
    return None if program is None else program.code


def rules_differ(response: str) -> bool:
    """Whether the two rules find different programs in ``response``."""
    return extract_code(response, "markdown") != extract_code(response, "released")


def answer_of(response: str) -> str:
    """What follows the last ``</think>``; all if there is no thinking, nothing if the thinking has no end.

    A ``</think>`` in quotes is only a mention. So is one between the words of a line, except in a response that begins
    with ``<think>`` and has no other end.
    """
    is_opened, ends = response.lstrip().startswith(THINK_START), _QUOTED_END.sub(_blank, response)
    if is_opened and THINK_END not in ends:
        return ""
    outside = _END_IN_SENTENCE.sub(_blank, ends)
    ends = outside if THINK_END in outside or not is_opened else ends
    return response[len(ends.rpartition(THINK_END)[0]) :].removeprefix(THINK_END)


def _blank(mention: re.Match[str]) -> str:
    return " " * len(mention[0])


def program_of(blocks: Sequence[Block]) -> Block | None:
    """The program among the blocks of an answer: the last one in Python, or else the last one without a language.

    Blocks that read stdin are preferred. Among equals those that define a function or class are, since a block with
    an example call often follows the program; then those that were not cut off.
    """
    candidates = [block for block in blocks if block.is_python] or [block for block in blocks if not block.language]
    candidates = [block for block in candidates if _READS_STDIN.search(block.code)] or candidates
    candidates = [block for block in candidates if _DEFINES.search(block.code)] or candidates
    candidates = [block for block in candidates if block.end != "missing"] or candidates
    return candidates[-1] if candidates else None
