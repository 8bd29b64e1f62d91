"""Records on their way to a shuffled output: on disk, so that memory does not grow with the data."""

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from cobalt.records.jsonl import Record, dump_line


class Spool:
    """A temporary file beside ``output`` that gives its records back in any order; removed on leaving the block."""

    def __init__(self, output: str | Path):
        output = Path(output)
        output.parent.mkdir(parents=True, exist_ok=True)
        self._path = output.with_name(output.name + ".spool.tmp")
        self._starts = array("Q", [0])

    def __enter__(self) -> "Spool":
        self._file = open(self._path, "w+b")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._file.close()
        self._path.unlink()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, row: Record) -> None:
        """Add one record; all are added before the first is read."""
        line = dump_line(row)
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def lines(self, order: Iterable[int]) -> Iterator[bytes]:
        """The encoded records at these indices, in this order."""
        for index in order:
            self._file.seek(self._starts[index])
            yield self._file.read(self._starts[index + 1] - self._starts[index])
