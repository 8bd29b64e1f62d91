"""``--adopt``: taking over an output that has no manifest, such as a released file, record by record."""

from collections.abc import Callable, Iterable

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.records import RecordFile
from cobalt.records.jsonl import Record


@dataclass(frozen=True, kw_only=True)
class AdoptConfig(CommandConfig):
    """For commands that resume their output."""

    adopt: bool = False
    """Take over an output without a manifest (a released file), each record checked against its input row."""


def adopt_records(
    output: RecordFile,
    rows: Iterable[tuple[Record, str]],
    check: Callable[[Record, Record], None],
    id_field: str = "id",
) -> int:
    """Take the records of ``output`` without an ``input_hash`` for those of these ``rows``; returns how many.

    ``check(record, row)`` raises ``ValueError`` for a record that the command would not have made of the row: that is
    an ``InputError``, and the output stays as it was.
    """
    adopted = 0
    for row, input_hash in rows:
        record = output.unhashed(row[id_field])
        if record is None:
            continue
        try:
            check(record, row)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"missing field {error}" if isinstance(error, KeyError) else error
            raise InputError.at(
                output.path, None, f"{id_field} {row[id_field]!r} cannot be adopted: {reason}"
            ) from None
        output.adopt(row[id_field], input_hash)
        adopted += 1
    return adopted


def refuse_other_fields(record: Record, row: Record, replaced: frozenset[str] = frozenset()) -> None:
    """Raise ``ValueError`` for the first field of ``row`` that ``record`` lacks or holds with another value.

    ``replaced``: fields that the command writes anew.
    """
    for name, value in row.items():
        if name not in replaced and record.get(name) != value:
            raise ValueError(f"field '{name}' is not that of its input row")
