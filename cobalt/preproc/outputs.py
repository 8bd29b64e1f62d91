"""What every built data set has: a card beside each file, and an upload on request.

A card is ``<output>.card.md`` in the hub's format: files with hashes, command and licence. The licence of a derived set
is that of the input's card. Settings and counts are in the manifest. What holds LiveCodeBench tests is never uploaded:
its hidden tests are encoded at the source to keep them out of training data.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cobalt.cli.flags import hub_upload
from cobalt.errors import InputError
from cobalt.records import read_jsonl
from cobalt.records.jsonl import write_whole
from cobalt.records.manifest import file_sha256, manifest_path
from cobalt.records.rows import LIVECODEBENCH
from cobalt.tables import markdown_table

NOT_REDISTRIBUTABLE = "LiveCodeBench's hidden tests must not be redistributed"
UNKNOWN_LICENCE = "unknown"


def card_path(output: str | Path) -> Path:
    return Path(f"{output}.card.md")


def publish(
    title: str,
    command: str,
    outputs: Sequence[str | Path],
    inputs: Sequence[str | Path],
    repo_id: str | None,
    licence: str | None = None,
    source: str | None = None,
) -> None:
    """Write the card beside each output and, with ``repo_id``, upload the outputs with one card.

    ``licence`` and ``source`` are those of the inputs where they are not given.
    """
    from huggingface_hub import DatasetCard, DatasetCardData

    for path in map(card_path, inputs):
        if licence is None and path.is_file():
            licence = DatasetCard.load(path).data.to_dict().get("license")
    licence = licence or UNKNOWN_LICENCE
    data = DatasetCardData(license=licence, pretty_name=title, task_categories=["text-generation"], tags=["code"])
    origin = source or ", ".join(f"`{Path(path).name}`" for path in inputs)
    files = [(Path(output).name, file_sha256(output)) for output in outputs]
    body = f"""---
{data.to_yaml()}
---

# {title}

Made by `{command}` of Cobalt from {origin}; licence: {licence}. Settings and counts are in the manifest of each file.

{markdown_table(("file", "SHA-256"), files)}
"""
    card = str(DatasetCard(body))
    for output in outputs:
        write_whole(card_path(output), card)
    if repo_id is not None:
        with hub_upload(repo_id, repo_type="dataset") as api:
            files = [(str(path), path.name) for output in outputs for path in (Path(output), manifest_path(output))]
            for content, name in [*files, (card.encode(), "README.md")]:
                api.upload_file(path_or_fileobj=content, path_in_repo=name, repo_id=repo_id, repo_type="dataset")


def refuse_livecodebench(paths: Iterable[str | Path], repo_id: str | None) -> None:
    """Raise ``InputError`` if records made from LiveCodeBench would be uploaded."""
    for path in paths if repo_id is not None else ():
        if any(row.get("source") == LIVECODEBENCH for row in read_jsonl(path, fields=(), unique=None)):
            raise InputError(f"{path}: --push_to_hub {repo_id}: {NOT_REDISTRIBUTABLE}")
