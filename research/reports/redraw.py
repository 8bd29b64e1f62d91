"""``python -m research report figures``: the figures of reports again, from the JSON that each of them left.

Reads the JSON of ``report``, ``theory report`` and ``bench_verdicts`` and writes PNG and SVG
beside it. Metrics by step are not in it.
"""

from pathlib import Path
from typing import Annotated

import tyro
from annotated_types import MinLen
from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary
from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.figures import Picture
from cobalt.records.jsonl import read_json
from research.reports.page import Table
from research.reports.pictures import pictures_of, verdicts_picture
from research.theory.report import all_pictures


@dataclass(frozen=True, kw_only=True)
class RedrawConfig(CommandConfig):
    """Draw the figures of reports again, as PNG and SVG beside their JSON."""

    input_files: Annotated[tuple[Path, ...], tyro.conf.Positional, MinLen(1)]
    """JSON of python -m research report or theory report; it may be gzipped."""


def main(config: RedrawConfig) -> None:
    pictures = {path: pictures_in(path) for path in config.input_files}
    for path, found in pictures.items():
        for picture in found:
            picture.write(path.parent)
    drawn = {str(path): ", ".join(picture.key for picture in found) for path, found in pictures.items()}
    print_summary("Figures", drawn)


def pictures_in(path: Path) -> list[Picture]:
    """The figures of one report, which its JSON's form tells. Raises ``InputError`` for JSON of another kind."""
    try:
        found = read_json(path)
        if "tables" in found:
            return pictures_of([Table.from_json(key, table) for key, table in found["tables"].items()])
        if "different" in found:
            return [verdicts_picture(found)]
        if "gap" in found:
            return all_pictures({key: Table.from_json(key, table) for key, table in found.items()})
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError.at(path, None, f"cannot be drawn: {error!r}") from error
    raise InputError.at(path, None, "is no report's JSON; give report.json")
