"""Where raw rows come from: a JSONL or parquet file, or a data set of the hub. Rows are read one at a time."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError, SetupError, first_line
from cobalt.records import read_jsonl
from cobalt.records.identity import hub_errors
from cobalt.records.jsonl import Record, T, checked_object, checked_rows, load_json, read_lines
from cobalt.records.parquet import parquet_errors

PARQUET = ".parquet"
FILES = (".jsonl", ".json", ".gz", PARQUET)
PARQUET_ROWS_AT_ONCE = 16  # a row may hold megabytes of tests
PARQUET_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """``place`` is a file, or else a name of the hub or a folder, which has a ``subset`` and a ``split``."""

    place: str
    subset: str | None = None
    split: str = "train"

    @property
    def file(self) -> Path | None:
        """The file, which may be missing; None for the hub and for folders."""
        path = Path(self.place)
        is_hub_name = path.is_dir() or not (path.suffix in FILES or path.is_file() or self.place.startswith(("/", ".")))
        return None if is_hub_name and self.place else path

    def rows(
        self, id_field: str | None, parse: Callable[[Record], T], on_invalid: Callable[[InputError], None] | None
    ) -> Iterator[T]:
        """What ``parse`` makes of each row, see ``read_jsonl``. Values of ``id_field`` may not repeat."""
        if self.file is not None and self.file.suffix != PARQUET and not _is_list(self.file):
            return read_jsonl(self.file, (), id_field, parse, on_invalid, loads=load_json)
        label = self.place if self.file is not None else f"{self.place} ({self.split})"
        return checked_rows(label, enumerate(self._tables(), start=1), checked_object, (), id_field, parse, on_invalid)

    def _tables(self) -> Iterable[Any]:
        if self.file is not None:
            return _parquet_rows(self.file) if self.file.suffix == PARQUET else _listed_rows(self.file)
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        try:
            subset: dict[str, Any] = {} if self.subset is None else {"name": self.subset}
            return map(_as_json, load_dataset(self.place, split=self.split, **subset))
        except (*hub_errors(), DatasetsError) as error:
            raise SetupError(f"hub dataset {self.place} cannot be loaded ({first_line(error)}); give a file") from None
        except ValueError as error:  # an unknown subset or split
            raise InputError(f"hub dataset {self.place}: {first_line(error)}") from None
        except RuntimeError as error:  # what ``datasets`` raises for a loading script
            parquet = "the hub keeps a parquet copy of most such sets in their branch refs/convert/parquet"
            raise InputError(f"hub dataset {self.place}: {first_line(error)}; give a file ({parquet})") from None

    def licence(self) -> str | None:
        """What the card of a hub data set or of a folder says; None: nothing, or it is a file."""
        if self.file is not None:
            return None
        from huggingface_hub import DatasetCard

        readme = Path(self.place) / "README.md"
        with suppress(*hub_errors(), ValueError):  # a card that cannot be read says no licence
            card = DatasetCard.load(readme if readme.is_file() else self.place, repo_type="dataset")
            return card.data.to_dict().get("license")
        return None


def _as_json(value: Any) -> Any:
    """The value with dates and whatever else JSON lacks as texts."""
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, str | int | float | None):
        return value
    return re.sub(" at 0x[0-9A-Fa-f]+", "", str(value))  # an image's address differs each time it is read


def _is_list(path: Path) -> bool:
    """Whether a file is one JSON list of rows, as of sanitized MBPP."""
    first = next(filter(None, map(bytes.lstrip, read_lines(path))), b"") if path.is_file() else b""
    return first.startswith(b"[")


def _listed_rows(path: Path) -> list[Any]:
    try:
        return load_json(b"".join(read_lines(path)).decode())
    except (ValueError, RecursionError) as error:
        raise InputError.at(path, None, f"not valid JSON: {error}") from None


def _parquet_rows(path: Path) -> Iterator[Record]:
    import pyarrow.parquet as pq

    # Without a buffer a whole column of a row group is read at once, and a file may be one row group.
    with parquet_errors(path), pq.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES) as file:
        for batch in file.iter_batches(PARQUET_ROWS_AT_ONCE, use_threads=False):
            yield from map(_as_json, batch.to_pylist())
