"""The fenced blocks of a Markdown text, read line by line as models write them (docs/method.md, "Extraction")."""

import re
from dataclasses import dataclass
from typing import Literal

BlockEnd = Literal["fence", "inside", "missing"]
"""A fence that begins its line; backticks inside a line, or another block's opening; or the end of the text."""

# a run of backticks can match at its first one only, so that a long one is read in one pass
_FENCE = re.compile(r"(?P<before>.*?)(?P<fence>(?<!`)`{3,}|(?<!~)~{3,})(?P<info>[^`~]*)")
_ANOTHER_OPENING = re.compile(r"\s*`{3,}(?:[a-z]|[\s{.]*py)[^`]*", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\s{.]*([^\s{},:;=]*)")
_PYTHON = re.compile(r"(?:python|py|pypy)[-\d.]*", re.IGNORECASE)
_TRIPLE_QUOTES = ('"""', "'''")
_TOKEN = re.compile(r"""\"{3}|'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\#.*|`{3,}|\\.""")
_INDENTATION = re.compile(r"^([ \t]*)\S", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a text."""

    language: str
    """The first word after the fence; "" if there is none."""
    code: str
    """Stripped, every line without the indentation of the first, unless that is the first line's alone."""
    end: BlockEnd
    next_line: int
    """The line of the text after the one that ends the block."""

    @property
    def is_python(self) -> bool:
        return _PYTHON.fullmatch(self.language) is not None


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a text. One without an end goes to the end, if it has any code.

    A fence inside a string with triple quotes is part of the code.
    """
    lines, number = [line.removesuffix("\r") for line in text.split("\n")], 0
    blocks: list[Block] = []
    while number < len(lines):
        line, opening = lines[number], _opening(lines[number])
        number += 1
        if opening is not None:
            fence, language = opening
            code_lines, number, end = _read_block(lines, number, fence)
            code = _dedented("\n".join(code_lines), is_indented=not line.startswith(fence))
            if code or end == "fence":
                blocks.append(Block(language, code, end, number))
    return blocks


def _opening(line: str) -> tuple[str, str] | None:
    """The fence and the language of a line that opens a block. After other text only ``python`` may follow a fence."""
    match = _FENCE.fullmatch(line)
    if match is None or (match["before"].strip() and not _PYTHON.fullmatch(match["info"].strip())):
        return None
    language = _LANGUAGE.match(match["info"])
    return match["fence"], language[1] if language else ""


def _read_block(lines: list[str], start: int, fence: str) -> tuple[list[str], int, BlockEnd]:
    """The lines of the block that begins at ``start``, the line where reading goes on, and how the block ends.

    It ends before the opening of another block, too, and at backticks outside strings and comments.
    """
    first_in_string: tuple[list[str], int, BlockEnd] | None = None
    quotes = ""
    for number in range(start, len(lines)):
        line = lines[number]
        bare = line.strip()
        closes = len(bare) >= len(fence) and bare == fence[0] * len(bare)
        if closes or _ANOTHER_OPENING.fullmatch(line):
            block = lines[start:number], number + closes, "fence" if closes else "inside"
            if not quotes:
                return block
            first_in_string = first_in_string or block
        else:
            column, quotes = _scanned(line, quotes)
            if column is not None and fence[0] == "`":
                begins_line = not line[:column].strip()
                return [*lines[start:number], line[:column]], number + 1, "fence" if begins_line else "inside"
    if quotes and first_in_string is not None:  # a string without an end hides nothing
        return first_in_string
    rest = "\n".join(lines[start:]).rstrip().rstrip("`")  # the closing fence may be cut off
    return [rest], len(lines), "missing"


def _scanned(line: str, quotes: str) -> tuple[int | None, str]:
    """Where the first backticks outside strings and comments stand, and which triple quotes are open after the line."""
    position = 0
    while token := (re.compile(rf"\\.|{quotes}") if quotes else _TOKEN).search(line, position):
        if quotes:
            quotes = "" if token[0] == quotes else quotes
        elif token[0] in _TRIPLE_QUOTES:
            quotes = token[0]
        elif token[0].startswith("`"):
            return token.start(), ""
        position = token.end()
    return None, quotes


def _dedented(code: str, is_indented: bool) -> str:
    """``is_indented``: so is the fence. Then only lines of a string may have less than the first line."""
    found = _INDENTATION.search(code)
    first = found[1] if found is not None else ""
    if first and (is_indented or all(other.startswith(first) for other in _INDENTATION.findall(code))):
        code = re.sub(rf"(?m)^[ \t]{{1,{len(first)}}}", "", code)
    return code.strip()
