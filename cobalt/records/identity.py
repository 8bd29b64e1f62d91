"""A name for a model that changes when its weights do, although its path may not."""

import hashlib
from pathlib import Path

SAMPLED_BYTES = 1 << 20  # of the beginning and the end of each file
IDENTITY_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}


def model_identity(model: str, revision: str | None = None) -> str:
    """``name@fingerprint`` of a model directory, ``name[@revision]`` of a hub model.

    The fingerprint covers sizes, beginnings and ends of configuration, tokenizer and weight files.
    """
    path = Path(model)
    if not path.is_dir():
        return f"{model}@{revision}" if revision else model
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.suffix in IDENTITY_SUFFIXES:
            digest.update(f"{file.name}:{file.stat().st_size}:".encode())
            digest.update(_ends(file))
    return f"{path.resolve().name}@{digest.hexdigest()[:12]}"


def _ends(file: Path) -> bytes:
    with open(file, "rb") as stream:
        head = stream.read(SAMPLED_BYTES)
        stream.seek(max(file.stat().st_size - SAMPLED_BYTES, 0))
        return head + stream.read(SAMPLED_BYTES)
