"""Packs trajectories into one HTML page: an index for the overview, and compressed chunks that are opened when needed.

Memory holds the index and one chunk; chunks wait in a temporary file until the index is complete.
"""

import base64
import gzip
import hashlib
import json
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic.dataclasses import dataclass
from tyro.conf import Positional, arg

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import CommandConfig, OptionalOutputFile
from cobalt.errors import InputError
from cobalt.records import read_jsonl, write_lines
from cobalt.records.jsonl import Record
from cobalt.records.manifest import check_paths
from cobalt.sandbox import Verdict
from cobalt.viewer.trajectories import KINDS, Piece, Turn, kind_of

CHUNK_CHARACTERS = 300_000
"""Of JSON, before compression: milliseconds to open."""
TITLE_CHARACTERS = 120
MARK = b"<!doctype html><!-- made by cobalt view -->\n"
"""The first line of every page: what this command may overwrite."""


@dataclass(frozen=True, kw_only=True)
class ViewConfig(CommandConfig):
    """Write an HTML page to look at trajectories: an overview, and each conversation turn by turn. It opens in any
    current browser, without server and network."""

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """JSONL of run_multi_turn_*.py, eval_multi_turn.py, run_single_turn_*.py, extract_turn_level_errors.py,
    run_llm_judge.py, or a dump of training, `{step}.jsonl`."""
    other: Annotated[Positional[Path | None], arg(metavar="[FILE2]")] = None
    """A second file to show beside it, matched by problem: for example base and trained."""
    output_file: OptionalOutputFile = None
    """The page. Default: FILE.html."""


def main(config: ViewConfig) -> None:
    paths = [path for path in (config.file, config.other) if path is not None]
    output = config.output_file or Path(f"{config.file}.html")
    check_paths(paths, [output])
    if output.exists():
        with output.open("rb") as file:
            if file.read(len(MARK)) not in (MARK, b""):
                raise InputError.at(output, None, "exists and is no page of cobalt view; choose another --output_file")
    files = write_page(output, paths)
    trajectories = sum(len(problem["samples"]) for file in files for problem in file["problems"])
    problems = len({problem["key"] for file in files for problem in file["problems"]})
    size = f"{output.stat().st_size / 1e3:,.0f} kB"
    print_summary("View", {"page": output, "problems": problems, "trajectories": trajectories, "size": size})


def write_page(output: Path, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Write the page of one or two files, whole or not at all. Returns the index. Raises ``InputError``."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output.parent) as store:
        chunks = Chunks(store)
        files = [index_of(path, chunks) for path in paths]
        chunks.close()
        keys = [{problem["key"] for problem in file["problems"]} for file in files]
        if not set.intersection(*keys):
            raise InputError(f"{paths[0]} and {paths[1]} have no problem in common")
        parts = (Path(__file__).with_name(name) for name in ("style.css", "view.js", "page.html"))
        style, script, body = (part.read_text(encoding="utf-8") for part in parts)
        # Nothing but our own style and script: neither what a program holds nor any address is ever loaded.
        sources = f"style-src {_hash(style)}; script-src {_hash(script)}"
        policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
        head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        index = _packed("index", json.dumps({"files": files}))
        page = f"<html lang='en'>{head}<style>{style}</style>{body}\n{index}<script>{script}</script>\n"
        store.seek(0)
        write_lines(output, (line for part in ([MARK, page.encode()], store) for line in part))
    return files


def _hash(text: str) -> str:
    """As a content security policy names what it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(name: str, text: str) -> str:
    """An element that the browser leaves alone. Base64 holds no ``<``, so no text from a file can end it."""
    content = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{content}</script>\n'


class Chunks:
    """Records as JSON lines, packed together up to ``CHUNK_CHARACTERS``."""

    def __init__(self, store: BinaryIO):
        self._store = store
        self._lines: list[str] = []
        self._size = self._number = 0

    def add(self, line: str) -> tuple[int, int]:
        """Number of its chunk, and of its line there."""
        if self._lines and self._size + len(line) > CHUNK_CHARACTERS:
            self.close()
        self._lines.append(line)
        self._size += len(line)
        return self._number, len(self._lines) - 1

    def close(self) -> None:
        """Write the chunk and begin another."""
        self._store.write(_packed(f"chunk-{self._number}", "\n".join(self._lines)).encode())
        self._lines, self._size, self._number = [], 0, self._number + 1


def index_of(path: Path, chunks: Chunks) -> dict[str, Any]:
    """What the overview shows of a file, by problem; its pieces go into ``chunks``. Raises ``InputError``."""
    kind = kind_of(path, next(read_jsonl(path, fields=(), unique=None)))
    fields, read_piece = KINDS[kind]

    def read(row: Record) -> tuple[Piece, str, list[dict[str, Any]]]:
        """The row's piece, as JSON, and what the index says of its samples."""
        try:
            piece = read_piece(row)
            untaken = [None] * piece.first_turn
            samples = [[*untaken, *map(outcome_of, turns)] for turns in piece.turns_N]
            line = json.dumps(piece, default=vars, allow_nan=False)
            if not isinstance(piece.question, str):
                raise TypeError("its question is no text")
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"not readable as {kind}: {error!r}") from None
        return piece, line, [{"turns": turns, "tags": piece.tags} for turns in samples]

    unique = "id" if kind in ("trajectories", "single turn") else None
    problems: dict[str, dict[str, Any]] = {}
    for piece, line, samples in with_progress(read_jsonl(path, fields, unique, read), path):
        title = textwrap.shorten(piece.question[: 4 * TITLE_CHARACTERS], TITLE_CHARACTERS, placeholder=" …")
        new = {"key": piece.key, "label": piece.label, "title": title}
        new |= {"difficulty": piece.difficulty, "pieces": [], "samples": []}
        problem = problems.setdefault(piece.key, new)
        problem["pieces"].append(chunks.add(line))
        problem["samples"] += samples
    return {"name": str(path), "kind": kind, "problems": list(problems.values())}


def outcome_of(turn: Turn) -> tuple[float | None, str]:
    """Rate (None: not known) and verdict of a turn for the index. Only a rate of 1 is written as 1."""
    if turn.infra_error is not None:
        return None, Verdict.INFRA_ERROR
    rate = turn.rate if turn.rate is None or turn.rate == 1 else min(round(turn.rate, 3), 0.999)
    return rate, next(iter(turn.verdicts), "")
