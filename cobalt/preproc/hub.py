"""Rows of a hub dataset, checked as strictly as lines of a file, and the licence on its card."""

from collections.abc import Callable, Iterator

from cobalt.errors import InputError, SetupError, first_line
from cobalt.preproc.taco_rows import Record


def hub_rows(
    name: str, split: str, parse: Callable[[Record], Record], on_invalid: Callable[[InputError], None] | None
) -> Iterator[Record]:
    """Yield the rows of ``name``; ``HF_HOME`` and ``HF_HUB_OFFLINE`` are honoured.

    ``parse`` raises ``ValueError`` about a row that cannot be used.

    Raises ``SetupError`` if it cannot be reached, ``InputError`` for an unknown split, an invalid row or a repeated id.
    """
    seen: set[str] = set()
    for index, row in enumerate(_load(name, split)):
        try:
            _check(row, seen)
            parse(row)
        except ValueError as error:
            complaint = InputError.at(f"{name} ({split})", index, str(error))
            if on_invalid is None:
                raise complaint from None
            on_invalid(complaint)
            continue
        yield row


def hub_licence(name: str) -> str | None:
    """The licence on a hub dataset's card; None if it says none, or cannot be read."""
    from huggingface_hub import DatasetCard

    try:
        return DatasetCard.load(name, repo_type="dataset").data.to_dict().get("license")
    except (OSError, ValueError):
        return None


def _load(name: str, split: str) -> Iterator[Record]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        return map(dict, load_dataset(name, split=split))
    except (OSError, DatasetsError) as error:
        raise SetupError(
            f"hub dataset {name} cannot be loaded ({first_line(error)}); give --input_file instead"
        ) from None
    except ValueError as error:
        raise InputError(f"hub dataset {name}: {first_line(error)}") from None


def _check(row: Record, seen: set[str]) -> None:
    if "id" not in row:
        raise ValueError("missing field 'id'")
    if repr(row["id"]) in seen:
        raise ValueError(f"duplicate id {row['id']!r}")
    seen.add(repr(row["id"]))
