"""Dataset cards beside each built data set, and uploading on request.

A card is ``<output>.card.md`` in the hub's format. The licence of a derived set is that of the input's card. What holds
LiveCodeBench tests is never uploaded: its hidden tests are encoded at the source to keep them out of training data.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.cli.flags import hub_upload
from cobalt.errors import InputError
from cobalt.preproc.livecodebench_rows import SOURCE as LIVECODEBENCH_SOURCE
from cobalt.records import read_jsonl
from cobalt.records.manifest import manifest_path

UNKNOWN_LICENCE = "unknown"
NOT_REDISTRIBUTABLE = "LiveCodeBench's hidden tests must not be redistributed"


@dataclass(frozen=True)
class CardInfo:
    """What a card says about a set; ``license`` and ``source`` are taken from the input's card when not given."""

    title: str
    rules: Sequence[str]
    counts: Mapping[str, Any]
    license: str | None = None
    source: str | None = None


def card_path(output: str | Path) -> Path:
    """Where the card of ``output`` lives."""
    output = Path(output)
    return output.with_name(output.name + ".card.md")


def publish(info: CardInfo, outputs: Sequence[str | Path], inputs: Sequence[str | Path], repo_id: str | None) -> None:
    """Write the card beside each output and, with ``repo_id``, upload the outputs with one card."""
    card = _card(info, inputs)
    for output in outputs:
        card_path(output).write_text(card)
    if repo_id is not None:
        _upload(card, outputs, repo_id)


def _card(info: CardInfo, inputs: Sequence[str | Path]) -> str:
    from huggingface_hub import DatasetCard, DatasetCardData

    license_ = info.license or next((found for path in inputs if (found := _license_of(path))), UNKNOWN_LICENCE)
    source = info.source or ", ".join(f"`{Path(path).name}`" for path in inputs)
    data = DatasetCardData(license=license_, pretty_name=info.title, task_categories=["text-generation"], tags=["code"])
    rules = "\n".join(f"- {rule}" for rule in info.rules)
    counts = json.dumps(info.counts, indent=2)
    body = f"""---
{data.to_yaml()}
---

# {info.title}

Made from {source}. Licence of the source: {license_}.

## Rules
{rules}

## Counts
```json
{counts}
```
"""
    return str(DatasetCard(body))


def _license_of(path: str | Path) -> str | None:
    """The licence on the card beside an input file, if it has one."""
    from huggingface_hub import DatasetCard

    card = card_path(path)
    if not card.is_file():
        return None
    return DatasetCard.load(card).data.to_dict().get("license")


def refuse_livecodebench(paths: Iterable[str | Path], repo_id: str | None) -> None:
    """Raise ``InputError`` if records made from LiveCodeBench would be uploaded."""
    if repo_id is None:
        return
    for path in paths:
        if any(row.get("source") == LIVECODEBENCH_SOURCE for row in read_jsonl(path, fields=(), unique=None)):
            raise InputError.at(path, None, f"--push_to_hub {repo_id}: {NOT_REDISTRIBUTABLE}")


def _upload(card: str, outputs: Sequence[str | Path], repo_id: str) -> None:
    with hub_upload(repo_id, repo_type="dataset") as api:
        for output in outputs:
            for path in (Path(output), manifest_path(output)):
                api.upload_file(path_or_fileobj=str(path), path_in_repo=path.name, repo_id=repo_id, repo_type="dataset")
        api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo_id, repo_type="dataset")
