"""Reading, writing and resuming JSONL files: the only home of these in the project.

Reading is strict: a malformed line, a missing field, a duplicate id or an empty file is an ``InputError`` that names
file, line and field. Files that grow are appended to, one ``write`` per record, so that a process killed at any moment
leaves at most one torn last line, which the next run cuts off.
"""

import codecs
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from cobalt.errors import InputError

Record = dict[str, Any]
T = TypeVar("T")
Raw = TypeVar("Raw")

DAMAGED = (ValueError, TypeError, LookupError, AttributeError)
"""What code raises that meets a stored record of another shape."""
COMPRESSED = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
"""What a compressed file begins with, by gzip and by xz."""
OTHER_KINDS = {b"PAR1": ("a parquet file", "parquet"), b"[": ("a JSON array", "json")}
"""What files begin with that hold rows but are no JSONL, and the name that ``datasets`` has for their kind."""
TAR_AT = 257
"""Where a tar archive says that it is one (POSIX)."""
PROBLEM_STAGE = "preproc_taco.py or preproc_lcb_test6.py"
MULTI_TURN_STAGE = "run_multi_turn_vllm.py or run_multi_turn_litellm.py"
MADE_BY = {
    "instruction": PROBLEM_STAGE,
    "public_test_cases": PROBLEM_STAGE,
    "hidden_test_cases": PROBLEM_STAGE,
    "modified_test_cases": "run_perturbation.py",
    "perturbed_public_test_cases": "run_perturbation.py",
    "responses": "run_single_turn_vllm.py or run_single_turn_litellm.py",
    "conversations": MULTI_TURN_STAGE,
    "public_pass_rates": MULTI_TURN_STAGE,
    "public_exec_results": MULTI_TURN_STAGE,
    "all_pass_rates": "eval_multi_turn.py",
    "conversation": "process_multi_turn_taco.py",
    "response": "process_multi_turn_taco.py --for rft",
    "chosen": "process_multi_turn_taco.py --for dpo",
    "previous_code": "extract_turn_level_errors.py",
}
"""The stage that writes a field: what to run if an input lacks it."""


def row_hash(row: Record) -> str:
    """Hash of a row's content, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(row, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:16]


def id_key(value: Any) -> str:
    """An id as a key of dictionaries. Ids may be numbers or texts; 1 and "1" are different ids."""
    return json.dumps(value, sort_keys=True)


def refuse_half_characters(*values: Any) -> None:
    """Raise ``ValueError`` for half of a surrogate pair in a text, which JSON can hold and no tokenizer takes."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text cannot be written as UTF-8: {error}") from None


def missing_fields(row: Record, fields: Sequence[str]) -> str | None:
    """Names all of ``fields`` that the row lacks, and a stage that writes one of them; None if it has all."""
    missing = [field for field in fields if field not in row]
    if not missing:
        return None
    first, *others = map(repr, missing)
    also = f", also {', '.join(others)}" if others else ""
    made = next((f" ({name!r} is written by {MADE_BY[name]})" for name in missing if name in MADE_BY), "")
    return f"missing field {first}{also}{made}"


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file, which may be compressed with gzip or xz; no byte order mark. Raises ``InputError``."""
    with open(path, "rb") as file:
        begins = file.read(max(map(len, COMPRESSED)))
    opened = next((opened for magic, opened in COMPRESSED.items() if begins.startswith(magic)), open)
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file):
                yield line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError.at(path, None, f"it cannot be decompressed: {error}") from None


def read_json(path: str | Path) -> Any:
    """The JSON document of a file, which may be compressed. Raises ``ValueError``, or as ``read_lines``."""
    return json.loads(b"".join(read_lines(path)))


def count_lines(path: str | Path) -> int:
    """Number of lines, for progress bars."""
    return sum(1 for _ in read_lines(path))


def read_jsonl(
    path: str | Path,
    fields: Sequence[str] = ("id",),
    unique: str | None = "id",
    parse: Callable[[Record], T] = lambda row: row,
    on_invalid: Callable[[InputError], None] | None = None,
    may_be_empty: bool = False,
    loads: Callable[[str], Any] = json.loads,
) -> Iterator[T]:
    """Yield what ``parse`` makes of each row of a JSONL file (the row itself by default), one at a time.

    ``fields`` must be present in each row. Rows that have the field ``unique`` may not repeat its values (None: no
    check). ``parse`` may raise ``ValueError`` about a row. The first invalid line raises ``InputError``, or is passed
    to ``on_invalid`` and skipped. A missing file raises ``InputError`` at once, a file without rows at its end.
    ``loads`` reads a line.
    """
    if not Path(path).is_file():
        raise InputError.at(path, None, no_file(path))
    return checked_rows(
        path, _numbered_lines(path), partial(parse_line, loads=loads), fields, unique, parse, on_invalid, may_be_empty
    )


def no_file(path: str | Path) -> str:
    """Why ``path`` is no input: a pipe or a folder is none either."""
    if Path(path).is_dir():
        return "is a folder, not a file"
    return "is no regular file; it is read more than once" if Path(path).exists() else "no such file"


def _numbered_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, from 1. Raises ``InputError`` for another kind of file, also to skip none of it."""
    for number, raw in enumerate(read_lines(path), start=1):
        if number == 1 and raw[TAR_AT:].startswith(b"ustar"):
            raise InputError.at(path, None, f"is a tar archive; unpack it first: tar -xf {path}")
        for beginning, (kind, name) in OTHER_KINDS.items() if number == 1 else ():
            if raw.lstrip().startswith(beginning):
                how = f"datasets.load_dataset('{name}', data_files='{path}', split='train').to_json('FILE.jsonl')"
                raise InputError.at(path, None, f"is {kind}; JSONL is wanted, an object per line. In Python: {how}")
        if raw.strip():
            yield number, raw


def checked_rows(
    source: str | Path,
    numbered: Iterable[tuple[int, Raw]],
    load: Callable[[Raw], Record],
    fields: Sequence[str],
    unique: str | None,
    parse: Callable[[Record], T],
    on_invalid: Callable[[InputError], None] | None,
    may_be_empty: bool = False,
) -> Iterator[T]:
    """``read_jsonl`` of rows from anywhere, with their numbers. ``load`` makes a record of one, or a ``ValueError``."""
    seen: dict[str, int] = {}
    is_empty = True
    for number, raw in numbered:
        try:
            row = load(raw)
            if missing := missing_fields(row, fields):
                raise ValueError(missing)
            if unique is not None and unique in row:
                first = seen.setdefault(id_key(row[unique]), number)
                if first != number:
                    raise ValueError(f"duplicate {unique} {row[unique]!r} (first on line {first})")
            parsed = parse(row)
        except ValueError as error:
            complaint = InputError.at(source, number, str(error))
            if on_invalid is None:
                raise complaint from None
            on_invalid(complaint)
            continue
        is_empty = False
        yield parsed
    if is_empty and not may_be_empty:
        raise InputError.at(source, None, "holds no records")


class InvalidLines:
    """Counts the invalid lines of an input: ``read_jsonl(on_invalid=InvalidLines(...).handler)``.

    ``skip`` (--skip_invalid): tell and skip them, not stop at the first. ``quiet``: a second pass over the same lines.
    """

    def __init__(self, skip: bool, quiet: bool = False):
        self.count = 0
        self.handler: Callable[[InputError], None] | None = self._skip if skip else None
        self._quiet = quiet

    def _skip(self, error: InputError) -> None:
        self.count += 1
        if not self._quiet:
            print(f"skipped: {error}", file=sys.stderr)


class LongInteger(str):
    """The digits of an integer that is too long for ``int``."""


def load_json(text: str) -> Any:
    """``json.loads`` for texts with integers of more than 4,300 digits, which it would refuse."""
    return json.loads(
        text,
        parse_int=lambda digits: (
            int(digits) if len(digits) <= sys.int_info.default_max_str_digits else LongInteger(digits)
        ),
    )


def parse_line(raw: bytes, loads: Callable[[str], Any] = json.loads) -> Record:
    """The object of a line. Raises ``ValueError``."""
    try:
        row = loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        torn = "" if raw.endswith(b"\n") else " (the file ends inside this line)"
        raise ValueError(f"not valid JSON{torn}: {error}") from None
    return checked_object(row)


def checked_object(value: Any) -> Record:
    """The value. Raises ``ValueError`` for another value of JSON."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {type(value).__name__}")
    return value


def dump_line(row: Record) -> bytes:
    """One record as a UTF-8 line."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 has no bytes for
        return json.dumps(row).encode() + b"\n"


def write_jsonl(path: str | Path, rows: Iterable[Record]) -> int:
    """Write all rows to a temporary file beside ``path``, then replace ``path``. Returns the number of rows."""
    return write_lines(path, map(dump_line, rows))


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """An ``OSError`` of the block names ``path``: a full disk alone names no file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_lines(path: str | Path, lines: Iterable[bytes]) -> int:
    """``write_jsonl`` for lines that are encoded already, each with its newline."""
    path = Path(os.path.realpath(path))  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    count = 0
    try:
        with naming(path), open(temporary, "wb") as file:
            for line in lines:
                file.write(line)
                count += 1
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def write_whole(path: str | Path, text: str) -> None:
    """A text file that appears whole or not at all."""
    write_lines(path, [text.encode()])


def cut_torn_line(path: Path) -> None:
    """Cut off what a killed process, or a full disk, has left of the last line."""
    with suppress(FileNotFoundError), open(path, "r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def is_taken(file: IO[Any]) -> bool:
    """Lock ``file`` until it is closed, by all processes that inherited it; True if another holder has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False


def refuse_other_writer(file: IO[Any], locked: Path, output: Path) -> None:
    """Lock ``file``, opened at ``locked``. Raises ``InputError`` about ``output`` if another run has it locked."""
    taken = is_taken(file)
    try:  # a run that has just ended has replaced or removed the file that was opened here
        gone = not os.path.samestat(os.fstat(file.fileno()), os.stat(locked))
    except FileNotFoundError:
        gone = True
    if taken or gone:
        raise InputError.at(output, None, "another process is writing it; wait for its end, or stop it")


class RecordFile:
    """An output file that grows by one record at a time and can be resumed after kill -9.

    Records carry their input row's hash in ``input_hash`` and their id in ``id_field``. Opening cuts off a torn last
    line; of several records of an id the last one counts. ``finish`` rewrites the file with each id once, in the order
    of the input. While it is open the file is locked: ``InputError`` for a second writer. Close it (``with``).

    Each record that ``get`` can give takes about 300 bytes of memory. ``needed``: which of the file's records are.
    """

    def __init__(self, path: str | Path, id_field: str = "id", needed: Callable[[Record], bool] = lambda _row: True):
        self.path = Path(path)
        self._id_field = id_field
        self._places: dict[str, tuple[int, str | None]] = {}  # by id: the line's offset, and its input's hash
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a+b")  # noqa: SIM115 - held open for the run
        try:
            refuse_other_writer(self._file, self.path, self.path)
            self._file.seek(0)
            end = 0
            for number, raw in enumerate(self._file, start=1):
                if not raw.endswith(b"\n"):
                    break
                try:
                    self._remember(parse_line(raw), end, needed)
                except DAMAGED as error:
                    raise self._damaged(number, error) from None
                end += len(raw)
            self._file.truncate(end)
        except InputError:
            self.close()
            raise

    def __enter__(self) -> "RecordFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._places)

    def _remember(self, row: Record, offset: int, needed: Callable[[Record], bool] = lambda _row: True) -> None:
        if missing := missing_fields(row, [self._id_field]):
            raise ValueError(missing)
        if needed(row):
            self._places[id_key(row[self._id_field])] = offset, row.get("input_hash")

    def forget(self, ids: Iterable[Any]) -> None:
        """Records of these ids are not asked for again. They stay in the file."""
        for id_ in ids:
            self._places.pop(id_key(id_), None)

    def get(self, id_: Any, input_hash: str | None, parse: Callable[[Record], T] = lambda row: row) -> T | None:
        """What ``parse`` makes of the stored record of this id if it was made from the same input row, else None.

        Raises ``InputError`` that names the line if ``parse`` fails.
        """
        key = id_key(id_)
        if key not in self._places or self._places[key][1] != input_hash:
            return None
        try:
            return parse(self._read(key))
        except DAMAGED as error:
            with open(self.path, "rb") as file:
                number = file.read(self._places[key][0]).count(b"\n") + 1
            raise self._damaged(number, error) from None

    def _damaged(self, number: int, error: Exception) -> InputError:
        told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return InputError.at(self.path, number, f"{told}; delete this line to have its record made again")

    def _read(self, key: str) -> Record:
        with open(self.path, "rb") as file:
            file.seek(self._places[key][0])
            return json.loads(file.readline())

    def append(self, row: Record) -> None:
        """Add one record (needs an id); it survives kill -9 of this process from here on."""
        offset = self._file.seek(0, os.SEEK_END)
        with naming(self.path):
            self._file.write(dump_line(row))
            self._file.flush()
        self._remember(row, offset)

    def refuse_loss(self, input_ids: Iterable[Any], problem_of: Callable[[Any], Any] | None = None) -> None:
        """Raise ``InputError`` if there are records of ids that the input lacks: ``finish`` would drop them.

        ``problem_of``: the part of a record's id that is one of the input's.
        """
        known = {id_key(id_) for id_ in input_ids}
        lost = self._places.keys() - known
        if problem_of is not None:
            lost = {key for key in lost if id_key(problem_of(json.loads(key))) not in known}
        if lost:
            problem = (
                f"{len(lost)} of its {len(self._places)} records have ids that the input lacks (such as {min(lost)})"
            )
            raise InputError.at(self.path, None, f"{problem}; give the whole input, or choose another output")

    def refuse_other_input(self, hashes: Iterable[tuple[Any, str]], is_done: Callable[[Record], bool]) -> None:
        """Raise ``InputError`` if most records are done, and were made from other rows than the input has at their ids.

        ``hashes``: ids and hashes of the input's rows. Of these some may have changed, and an earlier stage may have
        completed those whose records are not done.
        """
        other = [id_ for id_, input_hash in hashes if self._places.get(id_key(id_), (0, input_hash))[1] != input_hash]
        done = [id_ for id_ in other if self.get(id_, self._places[id_key(id_)][1], is_done)]
        if 2 * len(done) > len(self):
            told = f"{len(done)} of its {len(self)} records were made from other rows with the same ids (such as"
            told += f" {done[0]!r}), and would be replaced; choose another output, or move this one away"
            raise InputError.at(self.path, None, told)

    def finish(self, ids: Iterable[Any]) -> int:
        """Rewrite the file atomically: the records of ``ids``, in that order, each once. Returns their number."""
        keys = [key for key in map(id_key, ids) if key in self._places]
        count = write_jsonl(self.path, map(self._read, keys))
        self.close()  # and with it the lock, which is the old file's
        return count

    def close(self) -> None:
        """Close without rewriting (interrupted run)."""
        with naming(self.path):
            self._file.close()
