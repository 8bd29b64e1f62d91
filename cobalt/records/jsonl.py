"""Reading, writing and resuming JSONL files: the only home of these in the project.

Reading is strict: a malformed line, a missing field, a duplicate id or no line at all is an ``InputError`` that names
file, line and field, unless the caller counts invalid lines instead. Gzip is recognised by its first bytes, a byte
order mark is passed over. Writing is append-only, one ``write`` per record, so that a
process killed at any moment leaves at most one torn last line, which the next run cuts off.
"""

import codecs
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from cobalt.errors import InputError
from cobalt.records.locks import is_taken

Record = dict[str, Any]
T = TypeVar("T")

GZIP_MAGIC = b"\x1f\x8b"


def row_hash(row: Record) -> str:
    """Hash of a row's content, independent of the order of its keys."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


PROBLEM_STAGE = "preproc_taco.py or preproc_lcb_test6.py"
MADE_BY = {
    "instruction": PROBLEM_STAGE,
    "public_test_cases": PROBLEM_STAGE,
    "hidden_test_cases": PROBLEM_STAGE,
    "modified_test_cases": "run_perturbation.py",
    "perturbed_public_test_cases": "run_perturbation.py",
    "responses": "run_single_turn_vllm.py or run_single_turn_litellm.py",
    "conversations": "run_multi_turn_vllm.py or run_multi_turn_litellm.py",
    "public_pass_rates": "run_multi_turn_vllm.py or run_multi_turn_litellm.py",
    "public_exec_results": "run_multi_turn_vllm.py or run_multi_turn_litellm.py",
    "all_pass_rates": "eval_multi_turn.py",
    "conversation": "process_multi_turn_taco.py",
    "previous_code": "extract_turn_level_errors.py",
}
"""The stage that writes a field: what to run, where an input is of another stage."""


def missing_fields(row: Record, fields: Sequence[str]) -> str | None:
    """What a complaint says of those of ``fields`` that the row lacks, all at once; None if it has all."""
    missing = [field for field in fields if field not in row]
    if not missing:
        return None
    first, *others = map(repr, missing)
    also = f", also {', '.join(others)}" if others else ""
    made = next((f" ({name!r} is written by {MADE_BY[name]})" for name in missing if name in MADE_BY), "")
    return f"missing field {first}{also}{made}"


def require_fields(path: object, line: int, row: Record, fields: Sequence[str]) -> None:
    """Raise ``InputError`` naming those of ``fields`` that the row lacks."""
    complaint = missing_fields(row, fields)
    if complaint is not None:
        raise InputError.at(path, line, complaint)


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file, which may be compressed with gzip; no byte order mark. Raises ``InputError``."""
    with open(path, "rb") as file:
        is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    try:
        with gzip.open(path) if is_gzip else open(path, "rb") as file:
            for number, line in enumerate(file):
                yield line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError.at(path, None, f"gzip cannot read it: {error}") from None


def count_lines(path: str | Path) -> int:
    """Number of lines, for progress bars."""
    return sum(1 for _ in read_lines(path))


def _as_it_is(row: Record) -> Any:
    return row


def read_jsonl(
    path: str | Path,
    fields: Sequence[str] = ("id",),
    unique: str | None = "id",
    parse: Callable[[Record], T] = _as_it_is,
    on_invalid: Callable[[InputError], None] | None = None,
    may_be_empty: bool = False,
) -> Iterator[T]:
    """Yield what ``parse`` makes of each row of a JSONL file (the row itself by default), one at a time.

    ``fields`` must be present in each row; ``unique`` names the field whose values may not repeat (None: no check);
    ``parse`` may raise ``ValueError`` about a row. The first invalid line raises ``InputError``, or is passed to
    ``on_invalid`` and skipped. A missing file raises ``InputError`` at once, one without rows when that is known.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError.at(path, None, "no such file")
    rows = _parsed_rows(path, fields, unique, parse, on_invalid)
    return rows if may_be_empty else _not_empty(path, rows)


def _not_empty(path: Path, rows: Iterator[T]) -> Iterator[T]:
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise InputError.at(path, None, "holds no records")


def _parsed_rows(
    path: Path,
    fields: Sequence[str],
    unique: str | None,
    parse: Callable[[Record], T],
    on_invalid: Callable[[InputError], None] | None,
) -> Iterator[T]:
    seen: dict[Any, int] = {}
    for number, raw in enumerate(read_lines(path), start=1):
        if not raw.strip():
            continue
        try:
            row = _parse_line(path, number, raw)
            require_fields(path, number, row, fields)
            if unique is not None:
                first = seen.setdefault(id_key(row[unique]), number)
                if first != number:
                    raise InputError.at(path, number, f"duplicate {unique} {row[unique]!r} (first on line {first})")
            try:
                parsed = parse(row)
            except ValueError as error:
                raise InputError.at(path, number, str(error)) from None
        except InputError as error:
            if on_invalid is None:
                raise
            on_invalid(error)
            continue
        yield parsed


def id_key(value: Any) -> str:
    """An id as a key of dictionaries. Ids may be numbers or texts; 1 and "1" are different ids."""
    return json.dumps(value, sort_keys=True)


def _parse_line(path: Path, number: int, raw: bytes) -> Record:
    try:
        row = json.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        torn = "" if raw.endswith(b"\n") else " (the file ends inside this line)"
        raise InputError.at(path, number, f"not valid JSON{torn}: {error}") from None
    if not isinstance(row, dict):
        raise InputError.at(path, number, f"expected an object, found {type(row).__name__}")
    return row


def dump_line(row: Record) -> bytes:
    """One record as a UTF-8 line."""
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def write_jsonl(path: str | Path, rows: Iterable[Record]) -> int:
    """Write all rows to a temporary file beside ``path``, then replace ``path``. Returns the number of rows."""
    return write_lines(path, map(dump_line, rows))


def write_lines(path: str | Path, lines: Iterable[bytes]) -> int:
    """``write_jsonl`` for lines that are encoded already, each with its newline."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    count = 0
    try:
        with open(temporary, "wb") as file:
            for line in lines:
                file.write(line)
                count += 1
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


class RecordFile:
    """An output file that grows by one record at a time and can be resumed after kill -9.

    Records carry their input row's hash in ``input_hash``. On opening, a torn last line is cut off and records are
    kept by id, the last one winning; ``finish`` rewrites the file with each id once, in the order of the input.
    ``id_field`` names the field that holds the id. While it is open the file is locked: ``InputError`` for a second
    writer. Use it in a ``with`` statement, or ``close`` it.
    """

    def __init__(self, path: str | Path, id_field: str = "id"):
        self.path = Path(path)
        self._id_field = id_field
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._offsets: dict[str, int] = {}
        self._hashes: dict[str, str | None] = {}
        self._adopted: set[str] = set()
        self._file = open(self.path, "a+b")  # noqa: SIM115 - held open for the run
        try:
            if _in_use(self._file, self.path):
                raise InputError.at(self.path, None, "another process is writing it; wait for its end, or stop it")
            self._load()
        except InputError:
            self._file.close()
            raise

    def __enter__(self) -> "RecordFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> None:
        self._file.seek(0)
        offset = 0
        for raw in self._file:
            if not raw.endswith(b"\n"):
                break
            row = _parse_line(self.path, len(self._offsets) + 1, raw)
            self._remember(row, offset)
            offset += len(raw)
        self._file.truncate(offset)
        self._file.seek(0, os.SEEK_END)

    def _remember(self, row: Record, offset: int) -> None:
        key = id_key(row[self._id_field])
        self._offsets[key] = offset
        self._hashes[key] = row.get("input_hash")

    def get(self, id_: Any, input_hash: str) -> Record | None:
        """The stored record of this id if it was made from the same input row, else None."""
        key = id_key(id_)
        if self._hashes.get(key) != input_hash or key not in self._offsets:
            return None
        return self._read(key)

    def _read(self, key: str) -> Record:
        with open(self.path, "rb") as file:
            file.seek(self._offsets[key])
            record = json.loads(file.readline())
        return {**record, "input_hash": self._hashes[key]} if key in self._adopted else record

    def unhashed(self, id_: Any) -> Record | None:
        """The stored record of this id if it does not say which input row it was made from, else None."""
        key = id_key(id_)
        return self._read(key) if key in self._offsets and self._hashes[key] is None else None

    def adopt(self, id_: Any, input_hash: str) -> None:
        """Take the stored record of this id for one of the input row with this hash; ``finish`` writes it down."""
        key = id_key(id_)
        self._hashes[key] = input_hash
        self._adopted.add(key)

    def append(self, row: Record) -> None:
        """Add one record (needs an id); it survives kill -9 of this process from here on."""
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(dump_line(row))
        self._file.flush()
        self._remember(row, offset)
        self._adopted.discard(id_key(row[self._id_field]))

    def refuse_loss(self, input_ids: Iterable[Any]) -> None:
        """Raise ``InputError`` if there are records of ids that the input lacks: ``finish`` would drop them."""
        lost = self._offsets.keys() - {id_key(id_) for id_ in input_ids}
        if lost:
            raise InputError.at(
                self.path,
                None,
                f"{len(lost)} of its {len(self._offsets)} records have ids that the input lacks (such as {min(lost)}); "
                "give the whole input, or choose another output",
            )

    def finish(self, ids: Iterable[Any]) -> int:
        """Rewrite the file atomically: the records of ``ids``, in that order, each once. Returns their number."""
        keys = [id_key(id_) for id_ in ids]
        count = write_jsonl(self.path, (self._read(key) for key in keys if key in self._offsets))
        self.close()  # and with it the lock, which is the old file's
        return count

    def close(self) -> None:
        """Close without rewriting (interrupted run)."""
        self._file.close()


def _in_use(file: IO[bytes], path: Path) -> bool:
    """Lock ``file`` until it is closed; True if another process holds it, or has replaced it by now."""
    try:
        return is_taken(file) or not os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return True
